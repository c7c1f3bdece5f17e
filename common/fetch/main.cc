#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/program.h"
#include "common/fetch/fetch.h"

ABSL_FLAG(std::string, to, "", "folder to fill (required); created if it does not exist");
ABSL_FLAG(std::string, revision, "main", "branch, tag or commit of the model");
ABSL_FLAG(std::string, endpoint, "",
          "URL of the hub; default: $HF_ENDPOINT, or https://huggingface.co");
ABSL_FLAG(std::string, token_file, "",
          "file with the access token for the hub; default: the token in $HF_TOKEN, or none");
ABSL_FLAG(std::string, include, "",
          "shell patterns of the files to fetch, separated by commas; default: "
          "*.json,*.safetensors,*.jinja (Baton itself needs config.json, tokenizer.json and the "
          "weights), or the only GGUF file if there are no *.safetensors");
ABSL_FLAG(
    int, attempts, 8,
    "max failed attempts in a row that bring no new byte; then the program gives up (1 or more)");

namespace {

constexpr char kUsage[] =
    R"(baton-fetch: fills a folder with a model from a hub that speaks Hugging Face's protocol.

  baton-fetch ORGANISATION/MODEL --to=FOLDER [--revision=main]
  baton-fetch ORGANISATION/MODEL FILE.gguf --to=FOLDER
  baton-fetch ORGANISATION/MODEL:Q4_K_M --to=FOLDER

With a GGUF file, or with the quantisation at the end of its name, only this file is fetched; of a
split one (NAME-00001-of-00003.gguf) all parts. The last line says what to give to --model.
Without either, and without *.safetensors at the hub, the only GGUF file is fetched. Other GGUF files
of the same model may follow into the same folder.

After an interruption, run it again: it continues the files that have begun. A file gets its final
name only when its hash is the one that the hub lists (SHA-256, for small files git's hash). If all
files are there, the program ends without a connection; only a quantisation is looked up each time.
$HTTPS_PROXY names a proxy, $SSL_CERT_FILE a file of certificates to use instead of the system's.

Exit status: 0 if the folder is complete, 1 if it is not, 2 if the command line can't be used, and
128 plus the number of the signal that stopped the program.)";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int main(int argc, char** argv) {
  baton::BlockStopSignals();
  const std::vector<std::string> words = baton::StartProgram(argc, argv, kUsage);
  if (words.empty() || words.size() > 2)
    baton::RefuseToStart(absl::StrCat(
        "a model name is needed, ORGANISATION/MODEL, and at most one GGUF file of it; ",
        words.size(), " words were given"));
  baton::FetchOptions options{.name = words[0],
                              .revision = absl::GetFlag(FLAGS_revision),
                              .folder = absl::GetFlag(FLAGS_to),
                              .attempts = absl::GetFlag(FLAGS_attempts)};
  // MODEL:QUANTISATION is how other programs name a GGUF file.
  if (const std::vector<std::string> parts = absl::StrSplit(words[0], absl::MaxSplits(':', 1));
      parts.size() == 2) {
    options.name = parts[0];
    options.gguf = parts[1];
    if (options.gguf.empty() || words.size() == 2)
      baton::RefuseToStart(absl::StrCat(
          "'", words[0], "': give ORGANISATION/MODEL:QUANTISATION or ORGANISATION/MODEL FILE"));
  }
  if (words.size() == 2) options.gguf = words[1];
  for (const char c : absl::StrCat(options.name, options.revision)) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_' && c != '.' && c != '/')
      baton::RefuseToStart(
          absl::StrCat("'", options.name, "' at revision '", options.revision,
                       "': names of models and revisions have only letters, digits and -_./"));
  }
  if (options.folder.empty()) baton::RefuseToStart("--to is missing; it takes the folder to fill");
  if (options.attempts < 1)
    baton::RefuseToStart(absl::StrCat("--attempts is ", options.attempts, "; it takes 1 or more"));
  options.endpoint = absl::GetFlag(FLAGS_endpoint);
  if (options.endpoint.empty()) options.endpoint = Environment("HF_ENDPOINT");
  if (options.endpoint.empty()) options.endpoint = "https://huggingface.co";
  options.endpoint = std::string(absl::StripSuffix(options.endpoint, "/"));
  if (!absl::GetFlag(FLAGS_include).empty())
    options.include = absl::StrSplit(absl::GetFlag(FLAGS_include), ',', absl::SkipEmpty());
  if (!options.include.empty() && !options.gguf.empty())
    baton::RefuseToStart(absl::StrCat("--include is '", absl::GetFlag(FLAGS_include), "', and '",
                                      options.gguf, "' was given too; leave out one of the two"));
  const std::string token_file = absl::GetFlag(FLAGS_token_file);
  options.token = Environment("HF_TOKEN");
  if (!token_file.empty()) {
    std::ifstream in(token_file);
    if (!in) {
      baton::RefuseToStart(absl::StrCat("--token-file: can't read ", token_file, ": ",
                                        std::strerror(errno),
                                        "; it takes a file with the hub's token in it"));
    }
    options.token.assign(std::istreambuf_iterator<char>(in), {});
  }
  options.token = std::string(absl::StripAsciiWhitespace(options.token));
  for (const char c : options.token) {
    if (!absl::ascii_isgraph(c)) {
      // The message does not contain the token, because messages are logged.
      baton::RefuseToStart(absl::StrCat(token_file.empty() ? "$HF_TOKEN" : "--token-file",
                                        ": the token has a space or a control character in it; "
                                        "give it as the hub shows it"));
    }
  }
  options.say = [](absl::string_view line) {
    const std::string text = absl::StrCat(line, "\n");
    if (write(STDOUT_FILENO, text.data(), text.size()) < 0) return;
  };
  // A signal may end the process at any time: the next run continues with the files on the disk.
  const baton::LeaveOnStop leave;
  const absl::Status status = baton::Fetch(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton-fetch: %s\n", std::string(status.message()).c_str());
  return 1;
}
