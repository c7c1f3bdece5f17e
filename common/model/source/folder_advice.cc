#include "common/model/source/folder_advice.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/model/source/json_reader.h"

namespace baton {
namespace {

constexpr size_t kMaxAdapterBytes = 1 << 20;
constexpr size_t kMaxEntries = 10000;  // max entries read from a folder
constexpr char kWanted[] = "config.json, tokenizer.json and *.safetensors";

// Escapes and shortens a name from the file system, so that it fits into a message of one line.
std::string Shown(absl::string_view name) { return absl::CHexEscape(name.substr(0, 500)); }

std::string In(absl::string_view folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
}

// Returns what the symbolic link `path` points to, or "" if `path` is no link.
std::string LinkTarget(const std::string& path) {
  char target[4096];
  const ssize_t bytes = readlink(path.c_str(), target, sizeof target);
  return bytes < 0 ? "" : std::string(target, static_cast<size_t>(bytes));
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  DIR* const open = opendir(folder.c_str());
  if (open == nullptr) return names;
  while (const dirent* entry = readdir(open)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace(name);
    if (names.size() == kMaxEntries) break;
  }
  closedir(open);
  return names;
}

// Names of all entries of one folder.
struct Names {
  std::set<std::string> names;

  bool Has(const std::string& name) const { return names.count(name) > 0; }
  // Returns the first name with this beginning and end, or "".
  std::string First(absl::string_view begin, absl::string_view end) const {
    for (const std::string& name : names) {
      if (absl::StartsWith(name, begin) && absl::EndsWith(name, end)) return name;
    }
    return "";
  }
};

// Returns the path of the snapshot that `refs/main` of a hub's cache names. If there is none,
// returns the last snapshot by name, or "" if the cache has no snapshot.
std::string Snapshot(const std::string& cache) {
  const std::string snapshots = In(cache, "snapshots");
  const auto ref = ReadSmallFile(In(cache, "refs/main"), 200);
  const std::string revision(absl::StripAsciiWhitespace(ref.value_or("")));
  if (!revision.empty() && !absl::StrContains(revision, '/') && IsFolder(In(snapshots, revision))) {
    return In(snapshots, revision);
  }
  const std::set<std::string> revisions = NamesIn(snapshots);
  return revisions.empty() ? "" : In(snapshots, *revisions.rbegin());
}

// Returns true if `text` looks like a model's name on a hub: "owner/model".
bool IsHubName(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  if (parts.size() != 2) return false;
  return std::all_of(parts.begin(), parts.end(), [](absl::string_view part) {
    return !part.empty() && absl::ascii_isalnum(part[0]) &&
           std::all_of(part.begin(), part.end(), [](unsigned char c) {
             return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
           });
  });
}

std::string NoFolder(const std::string& folder) {
  const bool is_file = absl::EndsWith(folder, ".gguf");
  if (IsHubName(folder) && !is_file) {
    return absl::StrCat("there is no folder '", Shown(folder),
                        "'; if it is a model's name on a hub: Baton downloads nothing, so fetch it "
                        "with `hf download ",
                        Shown(folder), " --local-dir DIR` and give that folder");
  }
  std::string parent = folder;
  while (!parent.empty() && !IsFolder(parent)) {
    const size_t slash = parent.rfind('/');
    parent.resize(slash == parent.npos ? 0 : slash == 0 && parent.size() > 1 ? 1 : slash);
  }
  const std::string rest =
      parent.empty() ? "" : absl::StrCat(", of which ", Shown(parent), " exists");
  if (is_file) return absl::StrCat("there is no file '", Shown(folder), "'; check the path", rest);
  return absl::StrCat("there is no folder '", Shown(folder), "'; check the path", rest);
}

std::string IsAFile(const std::string& name) {
  const size_t slash = name.rfind('/');
  const std::string parent = slash == name.npos ? "." : name.substr(0, slash);
  return absl::StrCat("'", Shown(name), "' is a file; give the folder that holds ", kWanted,
                      absl::EndsWith(name, ".safetensors") || absl::EndsWith(name, ".json")
                          ? absl::StrCat(": ", Shown(parent))
                          : "");
}

std::string Adapter(const std::string& folder) {
  std::string base;
  auto json = JsonReader::Open(In(folder, "adapter_config.json"), kMaxAdapterBytes);
  if (json.ok()) base = Shown(json->String("base_model_name_or_path", ""));
  if (base.empty()) base = "its base model";
  return absl::StrCat(
      "'", Shown(folder), "' is a LoRA adapter of ", base,
      ", which Baton does not apply; merge them (peft: merge_and_unload, then save_pretrained) and "
      "give the folder of the result");
}

std::string NoTokenizer(const std::string& folder, const Names& in) {
  const std::string make =
      absl::StrCat("python3 -c 'from transformers import AutoTokenizer as T; T.from_pretrained(\"",
                   Shown(folder), "\").save_pretrained(\"", Shown(folder), "\")'");
  const std::string old = in.Has("tokenizer.model") ? "tokenizer.model, a SentencePiece model"
                          : in.Has("vocab.json") && in.Has("merges.txt")
                              ? "vocab.json and merges.txt"
                          : in.Has("tekken.json") ? "tekken.json"
                                                  : "";
  if (old.empty()) {
    return absl::StrCat("'", Shown(folder),
                        "' has no tokenizer.json; fetch it from where the model came from");
  }
  return absl::StrCat("'", Shown(folder), "' has no tokenizer.json but ", old,
                      ", which Baton does not read; make one with transformers: ", make);
}

std::string OtherWeights(const std::string& folder, const Names& in) {
  if (const std::string gguf = in.First("", ".gguf"); !gguf.empty()) {
    return absl::StrCat("'", Shown(folder), "' has weights as GGUF; give the file: --model ",
                        Shown(In(folder, gguf)));
  }
  for (const absl::string_view end : {".incomplete", ".part", ".aria2", ".crdownload"}) {
    if (const std::string part = in.First("", end); !part.empty()) {
      return absl::StrCat("'", Shown(folder), "' has a download that did not finish (", Shown(part),
                          "); run it again");
    }
  }
  std::string other;
  for (const std::string& name : in.names) {
    // Skips files that training leaves beside the weights.
    if (name == "training_args.bin" || name == "optimizer.pt" || name == "scheduler.pt") continue;
    for (const absl::string_view end : {".bin", ".pth", ".pt", ".ckpt"}) {
      if (other.empty() && absl::EndsWith(name, end)) other = name;
    }
  }
  if (!other.empty()) {
    return absl::StrCat("'", Shown(folder), "' has weights as PyTorch pickles (", Shown(other),
                        "), which can run code and which Baton does not read; convert them with "
                        "transformers: python3 -c 'from transformers import AutoModelForCausalLM "
                        "as M; M.from_pretrained(\"",
                        Shown(folder), "\", torch_dtype=\"auto\").save_pretrained(\"NEW\")', ",
                        "and copy tokenizer.json beside them");
  }
  for (const absl::string_view end : {".h5", ".msgpack", ".onnx", ".npz", ".mlmodel"}) {
    if (const std::string name = in.First("", end); !name.empty()) {
      return absl::StrCat("'", Shown(folder), "' has weights of another framework (", Shown(name),
                          "), which Baton does not read; give a folder with ", kWanted);
    }
  }
  if (const std::string shard = in.First("model-", ".safetensors"); !shard.empty()) {
    return absl::StrCat("'", Shown(folder), "' has shards (", Shown(shard),
                        ") but no model.safetensors.index.json; fetch it from where the model "
                        "came from");
  }
  if (const std::string name = in.First("", ".safetensors"); !name.empty()) {
    return absl::StrCat("'", Shown(folder), "' has weights of another name (", Shown(name),
                        "); call them model.safetensors if they are this model's whole weights in "
                        "Hugging Face's layout");
  }
  return "";
}

// Lists the subfolders of `folder` that have a config.json.
std::string ModelsBelow(const std::string& folder, const Names& in) {
  std::string found;
  for (const std::string& name : in.names) {
    const std::string below = In(folder, name);
    if (access(In(below, "config.json").c_str(), F_OK) != 0) continue;
    absl::StrAppend(&found, found.empty() ? "" : " or ", below);
    if (found.size() > 200) break;
  }
  return found;
}

std::string Explain(const std::string& folder, absl::string_view name) {
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) {
    if (errno == ENOENT && LinkTarget(folder).empty()) return NoFolder(folder);
    return std::string(ModelFileError(errno, folder).message());
  }
  if (!S_ISDIR(info.st_mode)) return IsAFile(folder);
  const Names in = {NamesIn(folder)};
  if (in.names.empty()) {
    if (access(folder.c_str(), R_OK | X_OK) != 0) {
      return std::string(ModelFileError(errno, folder).message());
    }
    return absl::StrCat("'", Shown(folder), "' is empty; put the model's ", kWanted, " there");
  }
  if (IsFolder(In(folder, "snapshots")) && (in.Has("refs") || in.Has("blobs"))) {
    const std::string snapshot = Snapshot(folder);
    if (snapshot.empty()) {
      return absl::StrCat("'", Shown(folder),
                          "' is the root of a hub's cache and has no snapshot; its download did "
                          "not finish: run it again");
    }
    return absl::StrCat("'", Shown(folder),
                        "' is the root of a hub's cache; the model is in its snapshot: ",
                        "--model ", Shown(snapshot));
  }
  if (const std::string model = in.First("models--", ""); !model.empty()) {
    const std::string snapshot = Snapshot(In(folder, model));
    return absl::StrCat("'", Shown(folder), "' is a hub's cache of models; give one of them, such ",
                        "as --model ", Shown(snapshot.empty() ? In(folder, model) : snapshot));
  }
  if (name == "tokenizer.json") return NoTokenizer(folder, in);
  if (in.Has("adapter_config.json")) return Adapter(folder);
  if (name != "config.json" || in.First("", ".safetensors").empty()) {
    if (const std::string other = OtherWeights(folder, in); !other.empty()) return other;
  }
  if (name == "config.json") {
    if (in.Has("params.json")) {
      return absl::StrCat("'", Shown(folder),
                          "' is a model in its maker's own layout (params.json)"
                          "; give its Hugging Face folder, with ",
                          kWanted);
    }
    if (const std::string below = ModelsBelow(folder, in); !below.empty()) {
      return absl::StrCat("'", Shown(folder),
                          "' has no config.json, but a folder in it has: ", "--model ",
                          Shown(below));
    }
    if (in.names.size() == 1 && in.Has("tokenizer.model")) {
      return absl::StrCat("'", Shown(folder),
                          "' has only a tokenizer.model, no model; give a folder with ", kWanted);
    }
  }
  return absl::StrCat("'", Shown(folder), "' has no ", name, "; give a Hugging Face folder with ",
                      kWanted, ", or fetch what is missing from where the model came from");
}

}  // namespace

absl::Status MissingModelFile(const std::string& folder, absl::string_view name) {
  const std::string path = In(folder, name);
  if (!LinkTarget(path).empty()) return ModelFileError(ENOENT, path);
  return absl::NotFoundError(Explain(folder, name));
}

absl::Status ModelFileError(int error, const std::string& path) {
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, ": Permission denied; this process runs as user ", geteuid(), " and group ",
        getegid(), ": let them read it (chmod -R a+rX), or run it as its owner"));
  }
  if (error == ELOOP) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the links form a circle; put the files themselves there"));
  }
  if (const std::string target = LinkTarget(path); error == ENOENT && !target.empty()) {
    return absl::NotFoundError(absl::StrCat(path, ": is a link to ", Shown(target),
                                            ", which does not exist; copy model folders together "
                                            "with the files that their links point to (cp -rL)"));
  }
  return absl::ErrnoToStatus(error, path);
}

}  // namespace baton
