#include "common/fetch/fetch.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fnmatch.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/fetch/gguf_choice.h"
#include "common/fetch/http_client.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr absl::Duration kLongestPause = absl::Seconds(30);

struct HubFile {
  std::string path;
  int64_t size = 0;
  std::string sha256;  // set for files in large file storage
  std::string git_id;  // set for other files: SHA-1 of "blob SIZE\0" and the bytes
};

struct Snapshot {
  std::string commit;
  std::vector<HubFile> files;
};

std::string Megabytes(int64_t bytes) { return absl::StrFormat("%.1f MB", bytes / 1e6); }

// Returns true if `path` is a file of weights in a model's folder.
bool IsSafetensors(const std::string& path) {
  return fnmatch("*.safetensors", path.c_str(), FNM_PATHNAME) == 0;
}

// Turns the hub's refusal into an error that says what it means and what to do. `held`: the
// revision is the commit that the folder holds.
absl::Status Refusal(const FetchOptions& options, const HttpReply& reply, bool held = false) {
  const auto header = [&](const char* name) {
    const auto found = reply.headers.find(name);
    return found == reply.headers.end() ? std::string() : found->second;
  };
  const std::string says = header("x-error-message");
  const std::string words =
      absl::StrCat(" (the hub answered ", reply.status, says.empty() ? "" : ": ", says, ")");
  const std::string code = header("x-error-code");
  const std::string what = absl::StrCat("'", options.name, "' at ", options.endpoint);
  switch (reply.status) {
    case 401:
      return absl::UnauthenticatedError(absl::StrCat(
          options.token.empty()
              ? absl::StrCat("no access to ", what,
                             " without a token: check the name, and where the model is private or "
                             "gated give a token that may read it (--token-file or $HF_TOKEN)")
              : absl::StrCat("the token is not valid for ", what,
                             ": make a new one that may read this model"),
          words));
    case 403:
      return absl::PermissionDeniedError(
          absl::StrCat("the token's account may not read ", what, ": accept the conditions at ",
                       options.endpoint, "/", options.name, " with that account", words));
    case 404:
      if (code == "RevisionNotFound" && held) {
        return absl::NotFoundError(
            absl::StrCat(options.folder, " holds files of commit ", options.revision, ", which ",
                         what, " no longer has: take another folder, or empty this one", words));
      }
      if (code == "RevisionNotFound") {
        return absl::NotFoundError(absl::StrCat(what, " has no revision '", options.revision,
                                                "': --revision takes a branch, a tag or a commit",
                                                words));
      }
      return absl::NotFoundError(absl::StrCat(
          "there is no ", what,
          ": the name is ORGANISATION/MODEL, in upper and lower case as the hub shows it", words));
    default:
      return absl::FailedPreconditionError(absl::StrCat(
          "can't read ", what, words, reply.error_body.empty() ? "" : ": ", reply.error_body));
  }
}

bool MayWorkLater(int status) {
  return status == 0 || status == 408 || status == 429 || status >= 500;
}

// Calls `attempt` until its reply is final, or until `attempts` calls in a row brought no progress.
// `progress` returns true if the last call brought progress.
absl::StatusOr<HttpReply> WithRetries(const FetchOptions& options, const std::string& what,
                                      const std::function<HttpReply()>& attempt,
                                      const std::function<bool()>& progress) {
  absl::Duration pause = options.first_pause;
  for (int failed = 0;;) {
    HttpReply reply = attempt();
    if (reply.transport.ok() && !MayWorkLater(reply.status)) return reply;
    if (!reply.transport.ok() && !absl::IsUnavailable(reply.transport)) return reply.transport;
    if (progress()) {
      failed = 0;
      pause = options.first_pause;
    }
    const std::string why = reply.transport.ok() ? absl::StrCat("the hub answered ", reply.status)
                                                 : std::string(reply.transport.message());
    if (++failed >= options.attempts) {
      return absl::UnavailableError(
          absl::StrCat("can't fetch ", what, " from ", options.endpoint, ": ", why, " (", failed,
                       failed == 1 ? " attempt" : " attempts in a row",
                       "); check the address, name resolution (DNS), and whether this machine may "
                       "connect to it (HTTPS_PROXY, a NetworkPolicy). What has arrived is kept, "
                       "and the next run continues from there"));
    }
    const absl::Duration wait = std::max(pause, std::min(reply.retry_after, kLongestPause));
    options.say(absl::StrCat(what, ": ", why, "; next attempt in ", absl::FormatDuration(wait)));
    absl::SleepFor(wait);
    pause = std::min(2 * pause, kLongestPause);
  }
}

// Asks the hub for the files at the revision. `held`: this is the commit that the folder holds.
absl::StatusOr<Snapshot> List(const FetchOptions& options, bool held) {
  std::string body;
  const HttpGet get = {.url = absl::StrCat(options.endpoint, "/api/models/", options.name,
                                           "/revision/", options.revision, "?blobs=true"),
                       .token = options.token,
                       .take = [&](int, absl::string_view bytes) {
                         absl::StrAppend(&body, bytes);
                         return body.size() < 64 << 20
                                    ? absl::OkStatus()
                                    : absl::DataLossError(
                                          "the hub's list of files is larger than 64 MiB; check "
                                          "the name and --endpoint");
                       }};
  ASSIGN_OR_RETURN(const HttpReply reply, WithRetries(
                                              options, "the list of files",
                                              [&] {
                                                body.clear();
                                                return Get(get);
                                              },
                                              [] { return false; }));
  if (reply.status != 200) return Refusal(options, reply, held);
  Snapshot snapshot;
  const json listed = json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto text = [](const json& object, const char* key) {
    return object.contains(key) && object[key].is_string() ? object[key].get<std::string>()
                                                           : std::string();
  };
  if (listed.is_object() && listed.contains("siblings") && listed["siblings"].is_array()) {
    snapshot.commit = text(listed, "sha");
    for (const json& sibling : listed["siblings"]) {
      if (!sibling.is_object()) continue;
      HubFile file{.path = text(sibling, "rfilename"), .git_id = text(sibling, "blobId")};
      file.size = sibling.contains("size") && sibling["size"].is_number_integer()
                      ? sibling["size"].get<int64_t>()
                      : -1;
      if (sibling.contains("lfs") && sibling["lfs"].is_object())
        file.sha256 = text(sibling["lfs"], "sha256");
      snapshot.files.push_back(std::move(file));
    }
  }
  if (snapshot.commit.empty()) {
    return absl::DataLossError(absl::StrCat(
        options.endpoint,
        " did not answer with a list of files; check that --endpoint is a hub. It says: ",
        absl::CHexEscape(body.substr(0, 200))));
  }
  return snapshot;
}

// Returns the files to fetch: a GGUF model, the files that Baton reads in a folder, or those that
// match the patterns.
absl::StatusOr<std::vector<HubFile>> Choose(const FetchOptions& options, const Snapshot& snapshot) {
  const std::vector<std::string> patterns =
      options.include.empty() ? std::vector<std::string>{"*.json", "*.safetensors", "*.jinja"}
                              : options.include;
  const std::string which =
      absl::StrCat("'", options.name, "' at revision '", options.revision, "'");
  std::vector<std::string> names;
  bool weights = false;
  for (const HubFile& file : snapshot.files) {
    names.push_back(file.path);
    weights |= IsSafetensors(file.path);
  }
  const auto has = [&](absl::string_view path) {
    return std::find(names.begin(), names.end(), path) != names.end();
  };
  std::vector<std::string> gguf;
  if (!options.gguf.empty() || (options.include.empty() && !weights)) {
    absl::StatusOr<std::vector<std::string>> model = ChooseGguf(names, options.gguf);
    if (options.gguf.empty() && absl::IsNotFound(model.status()))
      return absl::FailedPreconditionError(
          absl::StrCat(which,
                       " has no weights as .safetensors or .gguf, which Baton reads; look for a "
                       "conversion of it (.bin is not read)"));
    if (!model.ok())
      return absl::Status(model.status().code(),
                          absl::StrCat(which, " ", model.status().message()));
    gguf = *std::move(model);
  }
  // Some models contain their weights twice: the second time in files with another layout,
  // "consolidated...".
  const bool twice = has("model.safetensors") || has("model.safetensors.index.json");
  const auto wanted = [&](const std::string& path) {
    if (!gguf.empty()) return std::find(gguf.begin(), gguf.end(), path) != gguf.end();
    if (options.include.empty() && twice && absl::StartsWith(path, "consolidated")) return false;
    return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0;
    });
  };
  std::vector<HubFile> chosen;
  for (const HubFile& file : snapshot.files) {
    if (!wanted(file.path)) continue;
    const fs::path path(file.path);
    if (path.is_absolute() || path.lexically_normal() != path ||
        absl::StartsWith(file.path, "..") || file.size < 0 ||
        (file.sha256.empty() && file.git_id.empty())) {
      return absl::DataLossError(absl::StrCat("the hub lists a file that can't be stored safely: '",
                                              absl::CHexEscape(file.path), "', of ", file.size,
                                              " bytes"));
    }
    chosen.push_back(file);
  }
  if (!options.include.empty()) {
    if (chosen.empty())
      return absl::NotFoundError(
          absl::StrCat(which, " has no file that matches ", absl::StrJoin(options.include, ",")));
    return chosen;
  }
  if (!gguf.empty()) return chosen;
  for (const char* needed : {"config.json", "tokenizer.json"}) {
    if (!has(needed))
      return absl::FailedPreconditionError(
          absl::StrCat(which, " has no ", needed, ", which Baton needs"));
  }
  return chosen;
}

// Returns the hash of the file at `path`, of the kind that the hub lists for this file.
absl::StatusOr<std::string> HashOf(const HubFile& file, const fs::path& path) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(hash.get(), file.sha256.empty() ? EVP_sha1() : EVP_sha256(), nullptr);
  if (file.sha256.empty()) {
    const std::string head = absl::StrCat("blob ", file.size);
    EVP_DigestUpdate(hash.get(), head.c_str(), head.size() + 1);
  }
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes(1 << 20);
  while (in.read(bytes.data(), bytes.size()), in.gcount() > 0)
    EVP_DigestUpdate(hash.get(), bytes.data(), in.gcount());
  if (in.bad() || !in.eof()) return absl::DataLossError(absl::StrCat("can't read ", path.string()));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(hash.get(), digest, &size);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

int64_t SizeOf(const fs::path& path) {
  std::error_code none;
  const auto size = fs::file_size(path, none);
  return none ? 0 : static_cast<int64_t>(size);
}

absl::Status Failed(const char* what, const fs::path& path) {
  const int error = errno;
  const std::string words = absl::StrCat("can't ", what, " ", path.string(), ": ",
                                         std::generic_category().message(error));
  return error == ENOSPC || error == EDQUOT
             ? absl::ResourceExhaustedError(
                   absl::StrCat(words, "; free space, or take a larger volume"))
             : absl::FailedPreconditionError(
                   absl::StrCat(words, "; take a folder that this user may write"));
}

// Downloads a file into `part`, from the current size of `part` up to the file's size.
absl::Status Download(const FetchOptions& options, const Snapshot& snapshot, const HubFile& file,
                      const fs::path& part) {
  if (SizeOf(part) > file.size) fs::remove(part);
  const int out = open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (out < 0) return Failed("write", part);
  const absl::Cleanup close_it = [&] { close(out); };
  int64_t have = SizeOf(part);
  int64_t before = have;
  absl::Time said = absl::Now();
  const auto attempt = [&] {
    before = have;
    bool begun = false;
    return Get({.url = absl::StrCat(options.endpoint, "/", options.name, "/resolve/",
                                    snapshot.commit, "/", UrlPath(file.path)),
                .token = options.token,
                .from_byte = have,
                .take = [&](int status, absl::string_view bytes) {
                  // The request asked only for the rest of the file. A server that answers it with
                  // 200 ignores ranges and sends the whole file.
                  if (!begun && status == 200 && have > 0) {
                    have = before = 0;
                    if (ftruncate(out, 0) != 0) return Failed("write", part);
                  }
                  begun = true;
                  if (have + static_cast<int64_t>(bytes.size()) > file.size) {
                    return absl::DataLossError(absl::StrCat(
                        file.path, " is longer than the ", file.size, " bytes that the hub lists"));
                  }
                  while (!bytes.empty()) {
                    const ssize_t wrote = pwrite(out, bytes.data(), bytes.size(), have);
                    if (wrote < 0) return Failed("write", part);
                    have += wrote;
                    bytes.remove_prefix(wrote);
                  }
                  if (absl::Now() - said > absl::Seconds(2)) {
                    said = absl::Now();
                    options.say(absl::StrCat(file.path, ": ", Megabytes(have), " of ",
                                             Megabytes(file.size)));
                  }
                  return absl::OkStatus();
                }});
  };
  while (have < file.size) {
    ASSIGN_OR_RETURN(const HttpReply reply,
                     WithRetries(options, file.path, attempt, [&] { return have > before; }));
    if (reply.status == 416)
      return absl::DataLossError(
          absl::StrCat(file.path, " is shorter than the ", file.size, " bytes that the hub lists"));
    if (reply.status != 200 && reply.status != 206) return Refusal(options, reply);
    if (have == before)
      return absl::DataLossError(
          absl::StrCat(file.path, " ends after ", have, " of ", file.size, " bytes"));
  }
  if (fsync(out) != 0) return Failed("write", part);
  return absl::OkStatus();
}

absl::Status FetchFile(const FetchOptions& options, const Snapshot& snapshot, const HubFile& file) {
  const fs::path path = fs::path(options.folder) / file.path;
  const fs::path part = path.string() + ".part";
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  const std::string& wanted = file.sha256.empty() ? file.git_id : file.sha256;
  if (fs::exists(path) && SizeOf(path) == file.size) {
    const absl::StatusOr<std::string> there = HashOf(file, path);
    if (there.ok() && *there == wanted) return absl::OkStatus();
  }
  std::string hash;
  for (int tries = 0; tries < 2; ++tries) {
    if (SizeOf(part) > 0)
      options.say(absl::StrCat(file.path, ": continues after ", Megabytes(SizeOf(part))));
    if (absl::Status status = Download(options, snapshot, file, part); !status.ok()) {
      if (!absl::IsDataLoss(status) || tries > 0) return status;
      options.say(absl::StrCat(status.message(), "; fetching the file again from its beginning"));
      fs::remove(part);
      continue;
    }
    ASSIGN_OR_RETURN(std::string found, HashOf(file, part));
    hash = std::move(found);
    if (hash == wanted) {
      if (std::rename(part.c_str(), path.c_str()) != 0) return Failed("rename", part);
      options.say(absl::StrCat(file.path, ": ", Megabytes(file.size), ", hash as listed"));
      return absl::OkStatus();
    }
    fs::remove(part);
    if (tries == 0)
      options.say(absl::StrCat(file.path, ": its hash is wrong; fetching the file again"));
  }
  return absl::DataLossError(absl::StrCat(
      file.path, " arrived twice with a wrong hash: ", hash, ", and the hub lists ", wanted,
      "; something between this machine and the hub changes the file, such as a proxy"));
}

// Returns the content of the folder's kCompleteFile, or nothing if the folder has no valid
// kCompleteFile.
std::optional<json> Complete(const std::string& folder) {
  std::ifstream in(fs::path(folder) / std::string(kCompleteFile));
  if (!in) return std::nullopt;
  json read = json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!read.is_object() || !read.contains("files") || !read["files"].is_object())
    return std::nullopt;
  return read;
}

// Returns the names of the files that the content of a kCompleteFile lists.
std::vector<std::string> NamesIn(const json& complete) {
  std::vector<std::string> names;
  for (const auto& [path, size] : complete["files"].items()) names.push_back(path);
  return names;
}

// Says how to serve the model that was asked for, if the files have one: the chosen GGUF file, a
// folder with safetensors, or the only GGUF file.
void SayHowToServe(const FetchOptions& options, const json& complete) {
  const std::vector<std::string> names = NamesIn(complete);
  if (options.gguf.empty() && std::any_of(names.begin(), names.end(), IsSafetensors)) {
    options.say(absl::StrCat("serve it with --model ", options.folder));
    return;
  }
  const auto gguf = ChooseGguf(names, options.gguf);
  if (gguf.ok())
    options.say(absl::StrCat("serve it with --model ", options.folder, "/", gguf->front()));
}

}  // namespace

absl::Status Fetch(const FetchOptions& options) {
  std::error_code failed;
  fs::create_directories(options.folder, failed);
  if (failed)
    return absl::FailedPreconditionError(absl::StrCat("can't make the folder ", options.folder,
                                                      ": ", failed.message(),
                                                      "; take one that this user may make"));
  const std::string lock_name = absl::StrCat(options.folder, "/.baton-fetch.lock");
  const int lock = open(lock_name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock < 0) return Failed("write", lock_name);
  const absl::Cleanup unlock = [&] { close(lock); };
  if (flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return absl::FailedPreconditionError(
        absl::StrCat("another baton-fetch is filling ", options.folder, "; wait until it ends"));

  FetchOptions listed = options;  // its revision is the one whose files the hub is to list
  json complete = {{"name", options.name}, {"revision", options.revision}};
  if (const std::optional<json> there = Complete(options.folder)) {
    const std::string name = there->value("name", "");
    const std::string revision = there->value("revision", "");
    const std::string commit = there->value("commit", "");
    if (name != options.name || (revision != options.revision && commit != options.revision)) {
      return absl::FailedPreconditionError(
          absl::StrCat(options.folder, " holds '", name, "' at revision '", revision, "', and '",
                       options.name, "' at revision '", options.revision,
                       "' was asked for: take another folder, or empty this one"));
    }
    std::vector<std::string> wanted;
    if (options.gguf.empty()) wanted = NamesIn(*there);
    // A quantisation may be the end of several names, and only the hub knows all of them.
    if (absl::EndsWith(options.gguf, ".gguf"))
      wanted = ChooseGguf(NamesIn(*there), options.gguf).value_or(wanted);
    const bool all =
        !wanted.empty() && std::all_of(wanted.begin(), wanted.end(), [&](const std::string& path) {
          const json& size = (*there)["files"][path];
          return size.is_number_integer() && SizeOf(fs::path(options.folder) / path) == size;
        });
    if (all) {
      options.say(absl::StrCat(options.folder, " has '", name, "' at commit ", commit, " already"));
      SayHowToServe(options, *there);
      return absl::OkStatus();
    }
    if (!options.gguf.empty() && !commit.empty()) {
      listed.revision = commit;
      complete = *there;
    }
  }

  ASSIGN_OR_RETURN(const Snapshot snapshot, List(listed, complete.contains("commit")));
  ASSIGN_OR_RETURN(const std::vector<HubFile> files, Choose(listed, snapshot));
  int64_t needed = 0;
  for (const HubFile& file : files) {
    const fs::path path = fs::path(options.folder) / file.path;
    if (SizeOf(path) != file.size)
      needed += file.size - std::min(file.size, SizeOf(path.string() + ".part"));
  }
  struct statvfs disk;
  if (statvfs(options.folder.c_str(), &disk) == 0) {
    const int64_t free = static_cast<int64_t>(disk.f_bavail) * disk.f_frsize;
    if (free < needed)
      return absl::ResourceExhaustedError(absl::StrCat(
          "'", options.name, "' needs ", Megabytes(needed), " more in ", options.folder,
          ", which has ", Megabytes(free), " free: free space, or take a larger volume"));
  }
  options.say(absl::StrCat("'", options.name, "' at commit ", snapshot.commit, ": ", files.size(),
                           files.size() == 1 ? " file, " : " files, ", Megabytes(needed),
                           " to fetch"));
  complete["commit"] = snapshot.commit;
  for (const HubFile& file : files) {
    RETURN_IF_ERROR(FetchFile(options, snapshot, file));
    complete["files"][file.path] = file.size;
  }
  const fs::path path = fs::path(options.folder) / std::string(kCompleteFile);
  const fs::path part = path.string() + ".part";
  std::ofstream(part) << complete.dump(2) << "\n";
  if (std::rename(part.c_str(), path.c_str()) != 0) return Failed("write", path);
  options.say(absl::StrCat(options.folder, " is complete"));
  SayHowToServe(options, complete);
  return absl::OkStatus();
}

}  // namespace baton
