#include "common/up/up_options.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr int kMaxWorkers = 99;

// `demo-model` is given by ./baton and by installed programs. It names the demo model, which is
// served if there is no --model.
constexpr absl::string_view kValueFlags[] = {"model",  "prefill",     "decode", "prompt",
                                             "listen", "http-listen", "mode",   "demo-model"};
// `no-install` and `no-build` are for ./baton, which has already acted on them.
constexpr absl::string_view kBoolFlags[] = {"once", "detach", "check", "no-install", "no-build"};

// Flags with the same meaning in router, prefill worker and decode worker, so that one value serves
// the whole cluster. All other flags that router and workers share must be written with the role:
// --router-stall and --decode-stall, for example, are different times.
constexpr absl::string_view kOfAllPrograms[] = {"attach-token", "drain-grace", "log-format",
                                                "log-level", "model-name"};

// Flags whose value is an address that only one process can listen on.
constexpr absl::string_view kAddressFlags[] = {"listen", "metrics-listen"};

// One word of the command line that is a flag.
struct Word {
  std::string written;  // the flag as the user wrote it, without its value
  std::string name;     // without the leading dashes; "_" is written "-"
  std::optional<std::string> value;
};

Word SplitWord(absl::string_view word) {
  const size_t equals = word.find('=');
  Word split;
  split.written = std::string(word.substr(0, equals));
  absl::string_view name = split.written;
  absl::ConsumePrefix(&name, "-");
  absl::ConsumePrefix(&name, "-");
  split.name = absl::StrReplaceAll(name, {{"_", "-"}});
  if (equals != word.npos) split.value = std::string(word.substr(equals + 1));
  return split;
}

absl::Status Refuse(absl::string_view why) { return absl::InvalidArgumentError(why); }

// Returns the number of letters to insert, delete or replace to turn `a` into `b`.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

class Parser {
 public:
  Parser(const std::vector<std::string>& words,
         const std::function<absl::StatusOr<FlagTable>(Role)>& flags_of)
      : words_(words), flags_of_(flags_of) {
    options_.check = absl::c_linear_search(words, "--check");
  }

  absl::StatusOr<UpOptions> Parse() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      if (word.size() < 2 || word[0] != '-') {
        return Refuse(absl::StrCat("'", word, "' is not expected here; flags of up begin with --"));
      }
      RETURN_IF_ERROR(TakeFlag(SplitWord(word)));
    }
    RETURN_IF_ERROR(Check());
    return options_;
  }

 private:
  absl::Status TakeFlag(const Word& word) {
    // `up` itself has the flags --mode, --listen and --http-listen, which set the router's flags of
    // these names.
    absl::string_view own = word.name;
    if (own == "router-mode" || own == "router-listen" || own == "router-http-listen") {
      absl::ConsumePrefix(&own, "router-");
    }
    if (absl::c_linear_search(kBoolFlags, own)) return TakeBool(word);
    if (absl::c_linear_search(kValueFlags, own)) return TakeOwn(own, word);
    for (const Role role : kRoles) {
      absl::string_view name = word.name;
      if (absl::ConsumePrefix(&name, absl::StrCat(NameOf(role), "-"))) {
        return PassOn(word, name, {role});
      }
    }
    return PassOn(word, word.name, std::vector<Role>(std::begin(kRoles), std::end(kRoles)));
  }

  absl::Status TakeBool(const Word& word) {
    if (word.value.has_value() && *word.value != "true") {
      return Refuse(absl::StrCat(word.written, " takes no value, but was given '", *word.value,
                                 "'; leave the flag out to switch it off"));
    }
    if (word.name == "once") options_.once = true;
    if (word.name == "detach") options_.detach = true;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ValueOf(const Word& word) {
    if (word.value.has_value()) return *word.value;
    if (next_ == words_.size()) {
      return Refuse(absl::StrCat(word.written, " needs a value, as in ", word.written, " VALUE"));
    }
    return words_[next_++];
  }

  absl::Status TakeOwn(absl::string_view name, const Word& word) {
    ASSIGN_OR_RETURN(std::string value, ValueOf(word));
    if (name == "model") model_ = value;
    if (name == "demo-model") demo_model_ = value;
    if (name == "prompt") options_.prompt = value;
    if (name == "mode") options_.mode = value;
    if (name == "listen") {
      if (!IsHostPort(value)) {
        return Refuse(
            absl::StrCat("--listen takes HOST:PORT with a port from 0 to 65535, such as "
                         "127.0.0.1:50051, not '",
                         value, "'"));
      }
      options_.listen = value;
    }
    if (name == "http-listen") {
      if (!value.empty() && !IsHostPort(value)) {
        return Refuse(
            absl::StrCat("--http-listen takes HOST:PORT with a port from 0 to 65535, such as "
                         "127.0.0.1:8000, or nothing for no HTTP, not '",
                         value, "'"));
      }
      options_.http_listen = value;
    }
    if (name == "prefill" || name == "decode") {
      int& count = name == "prefill" ? options_.prefill : options_.decode;
      if (!absl::SimpleAtoi(value, &count) || count < 0 || count > kMaxWorkers) {
        return Refuse(absl::StrCat("--", name, " takes a number of workers, 1 to ", kMaxWorkers,
                                   ", not '", value, "'"));
      }
    }
    return absl::OkStatus();
  }

  // Passes the flag on to each of `roles` whose program has it.
  absl::Status PassOn(const Word& word, absl::string_view name, const std::vector<Role>& roles) {
    std::vector<Role> have;
    bool is_bool = false;
    std::string passed(name);
    for (const Role role : roles) {
      const absl::StatusOr<FlagTable> table = flags_of_(role);
      if (!table.ok()) return options_.check ? SkipUnknown() : table.status();
      auto flag = table->find(name);
      if (flag == table->end() && !word.value.has_value()) {  // the word may be --no-NAME
        absl::string_view positive = name;
        if (absl::ConsumePrefix(&positive, "no-")) flag = table->find(positive);
        if (flag != table->end() && !flag->second) flag = table->end();
        if (flag != table->end()) passed = absl::StrCat(positive, "=false");
      }
      if (flag == table->end()) continue;
      have.push_back(role);
      is_bool = flag->second;
    }
    if (have.empty()) return RefuseUnknown(word, name, roles);
    const bool of_router = have.front() == Role::kRouter;
    if (roles.size() > 1 && of_router && have.size() > 1 &&
        !absl::c_linear_search(kOfAllPrograms, name)) {
      return Refuse(absl::StrCat(word.written, " is a flag of the router and of workers; write ",
                                 absl::StrJoin(have, " or ", [&](std::string* out, Role role) {
                                   absl::StrAppend(out, "--", NameOf(role), "-", name);
                                 })));
    }
    std::string value;
    if (is_bool) {
      if (!absl::StrContains(passed, '=')) value = absl::StrCat("=", word.value.value_or("true"));
    } else {
      ASSIGN_OR_RETURN(std::string given, ValueOf(word));
      value = absl::StrCat("=", given);
    }
    for (const Role role : have) {
      // A flag given for one role wins over the same flag given for all roles, in whatever order
      // they come.
      std::vector<std::string>& flags = roles.size() == 1 ? special_[role] : options_.flags[role];
      flags.push_back(absl::StrCat("--", passed, value));
    }
    return absl::OkStatus();
  }

  // Skips the value of a flag of a program that could not be asked about its flags. The next word
  // counts as the flag's value unless it looks like a flag.
  absl::Status SkipUnknown() {
    if (next_ < words_.size() && !absl::StartsWith(words_[next_], "-")) ++next_;
    return absl::OkStatus();
  }

  absl::Status RefuseUnknown(const Word& word, absl::string_view name,
                             const std::vector<Role>& roles) {
    if (roles.size() == 1) {
      return Refuse(absl::StrCat("unknown flag ", word.written, " of up: baton-", NameOf(roles[0]),
                                 " has no --", name, " (baton-", NameOf(roles[0]),
                                 " --help lists what it has)"));
    }
    std::string nearest;
    size_t min = 3;  // a flag that differs in three or more letters is not suggested
    const auto consider = [&](absl::string_view known) {
      const size_t distance = Distance(name, known);
      if (distance >= min || distance >= known.size()) return;
      min = distance;
      nearest = std::string(known);
    };
    for (const absl::string_view known : kValueFlags) consider(known);
    for (const absl::string_view known : kBoolFlags) consider(known);
    for (const Role role : kRoles) {
      const absl::StatusOr<FlagTable> table = flags_of_(role);
      if (!table.ok()) continue;
      for (const auto& [known, is_bool] : *table) consider(known);
    }
    return Refuse(absl::StrCat(
        "unknown flag ", word.written, " of up",
        nearest.empty() ? ", and of baton-router, baton-prefill and baton-decode; --help lists them"
                        : absl::StrCat("; did you mean --", nearest, "?")));
  }

  absl::Status Check() {
    UpOptions& options = options_;
    if (options.mode != "disaggregated" && options.mode != "colocated" && options.mode != "auto") {
      return Refuse(
          absl::StrCat("--mode takes disaggregated, colocated or auto, not '", options.mode, "'"));
    }
    if (options.decode == 0) {
      return Refuse(absl::StrCat("--decode takes 1 to ", kMaxWorkers,
                                 ", not '0': decode workers write every answer"));
    }
    if (options.prefill == 0 && options.mode == "disaggregated") {
      return Refuse(absl::StrCat("--prefill takes 1 to ", kMaxWorkers,
                                 ", not '0': in mode disaggregated only prefill workers read "
                                 "prompts; --prefill 0 goes with --mode colocated or auto"));
    }
    if (options.prompt.empty()) return Refuse("--prompt takes a text, but was given an empty one");
    if (options.once && options.detach) {
      return Refuse(
          "--once and --detach can't be used together: --once ends after the first answer");
    }
    for (auto& [role, flags] : special_) {
      options.flags[role].insert(options.flags[role].end(), flags.begin(), flags.end());
    }
    RETURN_IF_ERROR(CheckAddresses());
    return CheckModel();
  }

  // Checks that no two processes would listen on the same port.
  absl::Status CheckAddresses() {
    for (const absl::string_view name : kAddressFlags) {
      std::map<std::string, int> takers;
      for (const auto& [role, count] :
           {std::make_pair(Role::kRouter, 1), std::make_pair(Role::kPrefill, options_.prefill),
            std::make_pair(Role::kDecode, options_.decode)}) {
        const std::string value = PassedValue(options_, role, name);
        if (PortOf(value) <= 0) continue;
        if ((takers[value] += count) > 1) {
          return Refuse(absl::StrCat("--", name, " ", value, " goes to ", takers[value],
                                     " processes, but only one of them can listen there; port 0 "
                                     "gives each of them a free port"));
        }
      }
    }
    return absl::OkStatus();
  }

  // A file whose name says so is one until a worker has read it.
  static bool IsGgufFile(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return false;
    char magic[4] = {};
    std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
    return std::filesystem::path(path).extension() == ".gguf" ||
           absl::string_view(magic, sizeof(magic)) == "GGUF";
  }

  absl::Status CheckModel() {
    namespace fs = std::filesystem;
    options_.demo = !model_.has_value() && !demo_model_.empty();
    options_.model = options_.demo ? demo_model_ : model_.value_or("");
    const std::string& model = options_.model;
    std::error_code error;
    if (model.empty()) {
      return Refuse(
          "--model DIR is needed, a Hugging Face folder with config.json, tokenizer.json "
          "and *.safetensors");
    }
    if (!fs::exists(model, error)) {
      return Refuse(
          absl::StrCat("--model ", model, ": there is no such folder or file; check the path"));
    }
    const bool gguf = IsGgufFile(model);
    if (!gguf && !fs::is_directory(model, error)) {
      return Refuse(absl::StrCat("--model ", model,
                                 " is a file, and no GGUF file; it takes one, or the folder that "
                                 "holds config.json, tokenizer.json and *.safetensors"));
    }
    // Without --check, the router that is started later checks what the folder contains, and its
    // errors are better. With --check no router is started, so this function itself reports a
    // missing config.json.
    if (options_.check && !gguf && !fs::exists(fs::path(model) / "config.json", error)) {
      return Refuse(absl::StrCat("--model ", model,
                                 ": there is no config.json in it; it takes a Hugging Face folder "
                                 "with config.json, tokenizer.json and *.safetensors"));
    }
    // The name of a file stays, since it may be a link to one whose name is a hash.
    const fs::path given(model);
    const fs::path whole =
        gguf ? fs::canonical(fs::absolute(given).parent_path(), error) / given.filename()
             : fs::canonical(given, error);
    if (!error) options_.model = whole.string();
    return absl::OkStatus();
  }

  const std::vector<std::string>& words_;
  const std::function<absl::StatusOr<FlagTable>(Role)>& flags_of_;
  size_t next_ = 0;
  UpOptions options_;
  std::optional<std::string> model_;
  std::string demo_model_;
  std::map<Role, std::vector<std::string>> special_;  // flags given with a role's prefix
};

}  // namespace

absl::string_view NameOf(Role role) {
  return role == Role::kRouter ? "router" : role == Role::kPrefill ? "prefill" : "decode";
}

FlagTable ParseFlagTable(absl::string_view lines) {
  FlagTable table;
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    table[words.first] = words.second == "bool";
  }
  return table;
}

absl::StatusOr<UpOptions> ParseUpOptions(
    const std::vector<std::string>& words,
    const std::function<absl::StatusOr<FlagTable>(Role)>& flags_of) {
  return Parser(words, flags_of).Parse();
}

std::string PassedValue(const UpOptions& options, Role role, absl::string_view name) {
  const auto flags = options.flags.find(role);
  if (flags == options.flags.end()) return "";
  const std::string prefix = absl::StrCat("--", name, "=");
  std::string value;
  for (const std::string& flag : flags->second) {
    if (absl::StartsWith(flag, prefix)) value = flag.substr(prefix.size());
  }
  return value;
}

bool Claims(const UpOptions& options, int port) {
  if (PortOf(options.listen) == port) return true;
  for (const Role role : kRoles) {
    for (const absl::string_view name : kAddressFlags) {
      if (PortOf(PassedValue(options, role, name)) == port) return true;
    }
  }
  return false;
}

}  // namespace baton
