#include "tests/goodput/slo_folder.h"

#include <cstdlib>
#include <filesystem>
#include <map>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

ABSL_DECLARE_FLAG(std::string, slo);

namespace baton {
namespace {

namespace fs = std::filesystem;

std::string NameOf(const std::string& path) { return fs::path(path).stem().string(); }

}  // namespace

std::vector<std::string> SloFolders() {
  std::vector<std::string> folders;
  if (const char* named = std::getenv("BATON_SLO"); named != nullptr) {
    folders = absl::StrSplit(named, ':', absl::SkipEmpty());
  }
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return folders;
  const fs::path above = program.parent_path().parent_path();
  folders.push_back((above / "share/baton/slo").string());
  folders.push_back((above.parent_path() / "tests/goodput/slo").string());
  return folders;
}

std::vector<std::string> FindSloFiles(const std::vector<std::string>& folders) {
  std::map<std::string, std::string> by_name;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->path().extension() != ".json") continue;
      by_name.emplace(NameOf(entry->path().string()), entry->path().string());
    }
  }
  std::vector<std::string> files;
  for (const auto& [name, path] : by_name) files.push_back(path);
  return files;
}

absl::StatusOr<SloFile> ReadSlo(const std::string& name, const std::vector<std::string>& folders) {
  std::error_code error;
  if (fs::is_regular_file(name, error)) return ReadSloFile(name);
  const std::vector<std::string> files = FindSloFiles(folders);
  for (const std::string& file : files) {
    if (NameOf(file) == name) return ReadSloFile(file);
  }
  const std::string names = absl::StrJoin(
      files, ", ",
      [](std::string* out, const std::string& file) { absl::StrAppend(out, NameOf(file)); });
  return absl::NotFoundError(absl::StrCat(
      "--slo is '", name, "': there is no such file, and no SLO of that name; ",
      names.empty() ? "give the path of a file with latency targets (tests/goodput/README.md)"
                    : absl::StrCat("the SLOs are ", names, " (`slos` shows their targets)")));
}

absl::StatusOr<SloFile> ReadSloFromFlag() {
  return ReadSlo(absl::GetFlag(FLAGS_slo), SloFolders());
}

}  // namespace baton
