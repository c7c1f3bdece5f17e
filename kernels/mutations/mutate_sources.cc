// Usage: mutate_sources FOLDER LIST... -- SOURCE...
//
// Writes a copy of each source to FOLDER/SOURCE. The mutations of the lists can be switched on in
// the copy by number. Also writes FOLDER/all_mutations.cc, a table of the mutations. All paths
// start at the working directory, which must be the root of the repository. Mutations are numbered
// from 1, across all lists. A file whose contents do not change is not written, so it is not
// compiled again.
//
// If a list is wrong or does not fit the sources, the program prints every error, writes nothing
// and exits with status 1.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/mutations/is_on.h"
#include "kernels/mutations/mutation_list.h"
#include "kernels/mutations/switched_source.h"

namespace baton::mutations {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> Contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool Write(const fs::path& path, const std::string& contents) {
  if (Contents(path) == contents) return true;
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary);
  file << contents;
  file.close();
  if (!file) std::fprintf(stderr, "%s cannot be written\n", path.c_str());
  return file.good();
}

struct NumberedMutation {
  int number;
  std::string list, name;
};

class SourceMutator {
 public:
  SourceMutator(std::vector<std::string> lists, std::vector<std::string> sources)
      : list_paths_(std::move(lists)), sources_(std::move(sources)) {}

  // Writes the mutated sources and all_mutations.cc into `folder`. Prints every error. Returns
  // false if there was any.
  bool Run(const fs::path& folder) {
    for (const std::string& source : sources_) changes_[source];
    for (const std::string& path : list_paths_) Read(path);
    for (const std::string& source : sources_) Switch(source);
    if (wrong_) return false;
    for (const auto& [source, code] : code_) {
      if (!Write(folder / source, code)) return false;
    }
    return Write(folder / "all_mutations.cc", Table());
  }

 private:
  void Complain(absl::string_view what) {
    if (!wrong_) {
      std::fprintf(stderr, "\nMutations do not fit the sources (kernels/mutations/README.md):\n");
    }
    std::fprintf(stderr, "%s\n", std::string(what).c_str());
    wrong_ = true;
  }

  void Read(const std::string& path) {
    const std::optional<std::string> contents = Contents(path);
    if (!contents.has_value()) return Complain(absl::StrCat(path, ": cannot be read"));
    const absl::StatusOr<std::vector<ListedMutation>> listed = ParseMutationList(path, *contents);
    if (!listed.ok()) return Complain(listed.status().message());
    for (const ListedMutation& mutation : *listed) {
      const std::string of = absl::StrCat(": mutation '", mutation.name, "'");
      if (++number_ > kMaxMutations) {
        return Complain(absl::StrCat(path, ":", mutation.line, of, ": there are more than ",
                                     kMaxMutations, ", which is_on.h has room for"));
      }
      const auto source = changes_.find(mutation.file);
      if (source == changes_.end()) {
        return Complain(absl::StrCat(path, ":", mutation.line, of, ": ", mutation.file,
                                     " is not among the sources that are copied"));
      }
      for (const Replacement& replacement : mutation.replacements) {
        source->second.push_back({number_, absl::StrCat(path, ":", replacement.line, of),
                                  replacement.text, replacement.wrong});
      }
      mutations_.push_back({number_, fs::path(path).stem().string(), mutation.name});
    }
  }

  void Switch(const std::string& source) {
    const std::optional<std::string> contents = Contents(source);
    if (!contents.has_value()) return Complain(absl::StrCat(source, ": cannot be read"));
    const std::vector<SwitchedChange>& changes = changes_[source];
    const absl::StatusOr<SwitchedSource> switched = SwitchChanges(source, *contents, changes);
    if (!switched.ok()) return Complain(switched.status().message());
    for (size_t i = 0; i < changes.size(); ++i) {
      places_.try_emplace(changes[i].number, absl::StrCat(source, ":", switched->lines[i]));
    }
    code_[source] = absl::StrCat("#include \"kernels/mutations/is_on.h\"\n#line 1 \"",
                                 fs::absolute(source).string(), "\"\n", switched->code);
  }

  std::string Table() const {
    std::string table =
        "#include \"kernels/mutations/mutations.h\"\n\n"
        "namespace baton::mutations {\n\n"
        "std::vector<Mutation> AllMutations() {\n"
        "  return {\n";
    for (const NumberedMutation& mutation : mutations_) {
      absl::StrAppend(&table, "      {", mutation.number, ", \"", absl::CEscape(mutation.list),
                      "\", \"", absl::CEscape(mutation.name), "\", \"",
                      absl::CEscape(places_.at(mutation.number)), "\"},\n");
    }
    return absl::StrCat(table, "  };\n}\n\n}  // namespace baton::mutations\n");
  }

  const std::vector<std::string> list_paths_, sources_;
  int number_ = 0;
  bool wrong_ = false;
  std::vector<NumberedMutation> mutations_;
  std::map<std::string, std::vector<SwitchedChange>> changes_;  // key: source
  std::map<std::string, std::string> code_;                     // key: source
  std::map<int, std::string> places_;                           // key: number of the mutation
};

int Main(int argc, char** argv) {
  std::vector<std::string> lists, sources;
  bool in_sources = false;
  for (int i = 2; i < argc; ++i) {
    if (std::string(argv[i]) == "--") {
      in_sources = true;
    } else {
      (in_sources ? sources : lists).push_back(argv[i]);
    }
  }
  if (lists.empty() || sources.empty()) {
    std::fprintf(stderr, "usage: %s FOLDER LIST... -- SOURCE...\n", argv[0]);
    return 2;
  }
  return SourceMutator(lists, sources).Run(argv[1]) ? 0 : 1;
}

}  // namespace
}  // namespace baton::mutations

int main(int argc, char** argv) { return baton::mutations::Main(argc, argv); }
