#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/api_key.h"
#include "common/base/program.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/rpc_server.h"
#include "router/client/chat_session.h"
#include "router/client/generate_request.h"
#include "router/client/printing.h"
#include "router/client/received_answer.h"
#include "router/client/router_calls.h"

namespace {

// StopStrings and BadWords hold all values of a flag that may be given several times, in order. The
// first entry is not from the command line: it is the flag's default value, which Abseil reports
// too.
std::vector<std::string>& StopStrings() {
  static auto* strings = new std::vector<std::string>;
  return *strings;
}
std::vector<std::string>& BadWords() {
  static auto* strings = new std::vector<std::string>;
  return *strings;
}

}  // namespace

ABSL_FLAG(std::string, router, "127.0.0.1:50051", "HOST:PORT of the router");
ABSL_FLAG(
    absl::Duration, timeout, absl::InfiniteDuration(),
    "max time that the call takes, such as 500ms or 1m30s; the command wait has a default of 60s");
ABSL_FLAG(bool, json, false,
          "generate, tokenize, detokenize, models: prints the result as one JSON object");
ABSL_FLAG(std::string, model, "",
          "name of the model to ask, as `models` shows it; default: the model that is served");

ABSL_FLAG(bool, timing, false,
          "generate, chat: prints to standard error how much time each phase took");
ABSL_FLAG(std::string, request_id, "",
          "generate: name of the request in logs and answers, up to 128 bytes; default: the router "
          "makes one");
ABSL_FLAG(
    std::string, mode, "",
    "generate, chat: kind of worker that computes the prompt: disaggregated (prefill workers), "
    "colocated (decode workers) or auto (the router decides); default: the router's --mode");
ABSL_FLAG(
    std::optional<std::string>, token_ids, std::nullopt,
    "generate: prompt as token ids, such as 1,2,3, instead of a text; nothing is added to them");
ABSL_FLAG(std::string, chat, "no",
          "generate: yes: sends the text as the message of a user, which the model's chat template "
          "makes a prompt of; no: the text is the prompt; auto: yes if the model has a template");
ABSL_FLAG(std::optional<float>, temperature, std::nullopt,
          "generate, chat: sampling temperature, 0 (greedy) to 100; default: the model's own");
ABSL_FLAG(
    std::optional<float>, top_p, std::nullopt,
    "generate, chat: samples among the likeliest tokens whose probabilities together reach this "
    "value, above 0 up to 1; default: the model's own");
ABSL_FLAG(
    std::optional<uint32_t>, top_k, std::nullopt,
    "generate, chat: samples among this many of the likeliest tokens, 1 to 2147483647; 0: among "
    "all; default: the model's own");
ABSL_FLAG(
    std::optional<float>, min_p, std::nullopt,
    "generate, chat: samples among tokens at least this many times as likely as the likeliest one, "
    "0 to 1; default: the model's own");
ABSL_FLAG(
    std::optional<uint64_t>, seed, std::nullopt,
    "generate, chat: seed for sampling, 0 to 18446744073709551615; the same seed gives the same "
    "answer; default: a random seed, shown with --timing and --json");
ABSL_FLAG(std::optional<double>, slo_ttft_ms, std::nullopt,
          "generate: target for the time to the first token, in milliseconds; --timing and --json "
          "show if it was met");
ABSL_FLAG(std::optional<double>, slo_tpot_ms, std::nullopt,
          "generate: target for the mean time per token after the first, in milliseconds; --timing "
          "and --json show if it was met");
ABSL_FLAG(std::optional<uint32_t>, max_tokens, std::nullopt,
          "generate, chat: max tokens to generate, from 1 to what the prompt leaves of the model's "
          "context; default: all of that");
ABSL_FLAG(std::optional<uint32_t>, min_tokens, std::nullopt,
          "generate, chat: min tokens to generate before an end token may come, 0 to --max-tokens");
ABSL_FLAG(std::string, stop, "",
          "generate, chat: string that ends the answer and is left out of it; may be given up to "
          "16 times")
    .OnUpdate([] { StopStrings().push_back(absl::GetFlag(FLAGS_stop)); });
ABSL_FLAG(std::string, stop_token_ids, "",
          "generate, chat: token ids that end the answer, such as 1,2,3");
ABSL_FLAG(bool, ignore_eos, false,
          "generate, chat: does not end the answer at the model's end tokens");
ABSL_FLAG(std::optional<uint32_t>, logprobs, std::nullopt,
          "generate: number of alternatives to show for each token of the answer, 0 to 20, with "
          "their log probabilities; without --json they follow the answer as a table");

ABSL_FLAG(std::optional<uint32_t>, prompt_logprobs, std::nullopt,
          "generate: number of alternatives to show for each token of the prompt, 0 to 20, with "
          "their log probabilities; shown only with --json");
ABSL_FLAG(std::optional<uint32_t>, n, std::nullopt,
          "generate: number of answers, 1 to 64, each sampled on its own; they are printed one "
          "after the other");
ABSL_FLAG(
    std::optional<float>, repetition_penalty, std::nullopt,
    "generate, chat: penalty on tokens that are in the prompt or in the answer so far, 0.01 to "
    "100; above 1 they become less likely, below 1 more likely");
ABSL_FLAG(
    std::optional<float>, presence_penalty, std::nullopt,
    "generate, chat: value subtracted once from the logit of each token that is in the answer so "
    "far, -2 to 2");
ABSL_FLAG(
    std::optional<float>, frequency_penalty, std::nullopt,
    "generate, chat: value subtracted from the logit of a token for each time that it is in the "
    "answer so far, -2 to 2");
ABSL_FLAG(
    std::string, logit_bias, "",
    "generate, chat: values to add to the logits of tokens, as ID=VALUE, such as 17=-100,18=2.5; "
    "each value is from -100 to 100");
ABSL_FLAG(
    std::string, bad_word, "",
    "generate, chat: string that the answer must not contain, as the tokeniser splits it at the "
    "start of a text or after a blank; may be given up to 64 times")
    .OnUpdate([] { BadWords().push_back(absl::GetFlag(FLAGS_bad_word)); });
ABSL_FLAG(
    std::string, bad_word_ids, "",
    "generate, chat: sequences of token ids that the answer must not contain, such as 1,2,3;4;5,6");

ABSL_FLAG(bool, parse_special, false,
          "generate, tokenize: turns special tokens written in the text, such as <|user|>, into "
          "their ids; otherwise they are plain text");
ABSL_FLAG(bool, add_special, true,
          "generate, tokenize: adds the special tokens that the model expects around a text, such "
          "as BOS");
ABSL_FLAG(
    std::string, cache_salt, "",
    "generate, chat: shares cached KV only with requests of the same salt, at most 256 bytes; "
    "default: with all requests without a salt");
ABSL_FLAG(
    bool, prefix_cache, true,
    "generate, chat: uses KV that workers have cached for the beginning of the prompt, and leaves "
    "its own; --no-prefix-cache computes everything");
ABSL_FLAG(bool, pieces, false,
          "tokenize: prints one line for each token, with its id and its bytes");
ABSL_FLAG(bool, skip_special, false, "detokenize: leaves special tokens out of the text");

namespace baton {
namespace {

constexpr char kUsage[] = R"(baton-client: sends requests to a router.

  baton-client generate "TEXT"     prints the answer as it comes; with `-` instead of a text, reads
                                   the text from standard input
  baton-client generate --token-ids=1,2,3
  baton-client chat                a conversation: reads lines, and prints the answers; /help there
                                   prints its commands
  baton-client tokenize "TEXT"     prints the token ids of the text; `-` reads standard input
  baton-client detokenize 1,2,3    prints the text of the token ids
  baton-client models              prints which model is served, and how many workers are ready
  baton-client health              prints the router's health; fails, with the reason, unless it is
                                   SERVING
  baton-client wait                returns once the router can serve
  baton-client COMMAND --help      prints the flags of one command

If the router has keys, set $BATON_API_KEY to one of them: baton-client then sends it.

Exit status: 0 if all went well, 1 if the call failed, 2 if the command line can't be used, and 130
after an interruption, which also cancels the call.)";

// The commands, and the flags that each one understands besides --router, --timeout and the log
// flags.
const std::vector<CommandHelp>& Commands() {
  static const auto* commands = new std::vector<CommandHelp>{
      {.name = "generate",
       .usage =
           "baton-client generate \"TEXT\": prints the answer as it comes; with `-` instead of a "
           "text,\nreads the text from standard input.",
       .groups = {{"Prompt", "token-ids chat parse-special add-special model"},
                  {"Length and end of the answer",
                   "max-tokens min-tokens stop stop-token-ids ignore-eos"},
                  {"Sampling", "temperature top-p top-k min-p seed n"},
                  {"Penalties and banned words",
                   "repetition-penalty presence-penalty frequency-penalty logit-bias bad-word "
                   "bad-word-ids"},
                  {"What is printed", "json timing logprobs prompt-logprobs"},
                  {"How it is served",
                   "mode prefix-cache cache-salt slo-ttft-ms slo-tpot-ms request-id"}}},
      {.name = "chat",
       .usage = "baton-client chat: a conversation with the model, which needs a chat template. "
                "Reads lines\nfrom standard input and prints the answers. /help there prints the "
                "commands; Ctrl-C ends an\nanswer alone, and the program if no answer is coming.",
       .groups = {{"Model", "model"},
                  {"Length and end of an answer",
                   "max-tokens min-tokens stop stop-token-ids ignore-eos"},
                  {"Sampling", "temperature top-p top-k min-p seed"},
                  {"Penalties and banned words",
                   "repetition-penalty presence-penalty frequency-penalty logit-bias bad-word "
                   "bad-word-ids"},
                  {"What is printed", "timing"},
                  {"How it is served", "mode prefix-cache cache-salt"}}},
      {.name = "tokenize",
       .usage =
           "baton-client tokenize \"TEXT\": prints the token ids of the text; `-` reads standard "
           "input.",
       .groups = {{"Text", "parse-special add-special model"}, {"What is printed", "json pieces"}}},
      {.name = "detokenize",
       .usage = "baton-client detokenize 1,2,3: prints the text of the token ids.",
       .groups = {{"Text", "skip-special model"}, {"What is printed", "json"}}},
      {.name = "models",
       .usage =
           "baton-client models: prints which model is served, and how many workers are ready.",
       .groups = {{"What is printed", "json"}}},
      {.name = "health",
       .usage = "baton-client health: prints the router's health; fails, with the reason, unless "
                "it is SERVING."},
      {.name = "wait", .usage = "baton-client wait: returns once the router can serve."},
  };
  return *commands;
}

bool Understands(const CommandHelp& command, const std::string& flag) {
  return absl::c_any_of(command.groups, [&](const FlagGroup& group) {
    const std::vector<absl::string_view> names = absl::StrSplit(group.flags, ' ');
    return absl::c_linear_search(names, flag);
  });
}

bool Given(absl::string_view flag) {
  return std::binary_search(GivenFlags().begin(), GivenFlags().end(), flag);
}

// Exits with status 2 and a message if command, arguments and flags do not fit together.
void CheckCommandLine(const std::vector<std::string>& words) {
  if (words.empty())
    RefuseToStart(
        "a command is needed: generate, chat, tokenize, detokenize, models, health or wait");
  const auto command =
      absl::c_find_if(Commands(), [&](const CommandHelp& one) { return one.name == words[0]; });
  if (command == Commands().end()) {
    RefuseToStart(absl::StrCat(
        "unknown command '", words[0],
        "': the commands are generate, chat, tokenize, detokenize, models, health and wait"));
  }
  for (const std::string& given : GivenFlags()) {
    const std::string flag = absl::StrReplaceAll(given, {{"_", "-"}});
    if (flag == "router" || flag == "timeout" || absl::StartsWith(flag, "log-")) continue;
    if (Understands(*command, flag)) continue;
    RefuseToStart(absl::StrCat("--", flag, " is not a flag of ", words[0], "; ", words[0],
                               " --help lists its flags"));
  }
  if (words[0] == "chat" && words.size() > 1) {
    RefuseToStart(
        "chat takes no text: type it there, or send it with generate --chat=yes \"TEXT\"");
  }
  const bool needs_text = words[0] == "tokenize" || words[0] == "detokenize";
  const bool takes_text = needs_text || words[0] == "generate";
  if (words.size() > (takes_text ? 2 : 1)) {
    RefuseToStart(absl::StrCat(
        "'", words.back(), "' is one word too many; put a text of several words between quotes"));
  }
  if (needs_text && words.size() < 2) {
    RefuseToStart(
        absl::StrCat(words[0], words[0] == "tokenize" ? " needs a text" : " needs ids: 1,2,3"));
  }
  const std::string chat = absl::GetFlag(FLAGS_chat);
  if (chat != "yes" && chat != "no" && chat != "auto") {
    RefuseToStart(absl::StrCat("--chat is '", chat, "'; it takes yes, no or auto"));
  }
  if (absl::GetFlag(FLAGS_timeout) <= absl::ZeroDuration()) {
    RefuseToStart(absl::StrCat("--timeout=", absl::FormatDuration(absl::GetFlag(FLAGS_timeout)),
                               " is too short; it takes a time above 0, such as --timeout=30s"));
  }
}

template <typename T>
T OrRefuse(absl::StatusOr<T> value) {
  if (!value.ok()) RefuseToStart(value.status().message());
  return *std::move(value);
}

std::string TextOf(const std::string& word) {
  if (word != "-") return word;
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

v1::GenerateRequest RequestFromFlags(const std::vector<std::string>& words) {
  GenerateOptions options;
  if (words.size() > 1) options.text = TextOf(words[1]);
  if (Given("token_ids")) options.token_ids = absl::GetFlag(FLAGS_token_ids);
  options.parse_special = absl::GetFlag(FLAGS_parse_special);
  options.cache_salt = absl::GetFlag(FLAGS_cache_salt);
  if (!absl::GetFlag(FLAGS_prefix_cache)) options.prefix_cache = false;
  if (Given("add_special")) options.add_special = absl::GetFlag(FLAGS_add_special);
  options.request_id = absl::GetFlag(FLAGS_request_id);
  options.model = absl::GetFlag(FLAGS_model);
  options.mode = absl::GetFlag(FLAGS_mode);
  options.temperature = absl::GetFlag(FLAGS_temperature);
  options.top_p = absl::GetFlag(FLAGS_top_p);
  options.top_k = absl::GetFlag(FLAGS_top_k);
  options.min_p = absl::GetFlag(FLAGS_min_p);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.slo_ttft_ms = absl::GetFlag(FLAGS_slo_ttft_ms);
  options.slo_tpot_ms = absl::GetFlag(FLAGS_slo_tpot_ms);
  options.max_tokens = absl::GetFlag(FLAGS_max_tokens);
  options.min_tokens = absl::GetFlag(FLAGS_min_tokens);
  options.stop.assign(StopStrings().begin() + 1, StopStrings().end());
  options.stop_token_ids = absl::GetFlag(FLAGS_stop_token_ids);
  if (Given("ignore_eos")) options.ignore_eos = absl::GetFlag(FLAGS_ignore_eos);
  options.logprobs = absl::GetFlag(FLAGS_logprobs);
  options.prompt_logprobs = absl::GetFlag(FLAGS_prompt_logprobs);
  options.n = absl::GetFlag(FLAGS_n);
  options.repetition_penalty = absl::GetFlag(FLAGS_repetition_penalty);
  options.presence_penalty = absl::GetFlag(FLAGS_presence_penalty);
  options.frequency_penalty = absl::GetFlag(FLAGS_frequency_penalty);
  options.logit_bias = absl::GetFlag(FLAGS_logit_bias);
  options.bad_words.assign(BadWords().begin() + 1, BadWords().end());
  options.bad_word_ids = absl::GetFlag(FLAGS_bad_word_ids);
  return OrRefuse(MakeGenerateRequest(options));
}

// Writes all of `text` to standard output and flushes it. Returns Cancelled if standard output is
// closed.
absl::Status Print(absl::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return written && std::fflush(stdout) == 0 ? absl::OkStatus()
                                             : absl::CancelledError("standard output was closed");
}

// Prints the log probabilities of all answers. Makes one more call to get the text of the tokens.
absl::Status PrintLogprobs(RouterCalls* calls, const ReceivedAnswer& answer) {
  v1::DetokenizeRequest request;
  request.set_model(absl::GetFlag(FLAGS_model));
  const std::vector<int32_t> ids = answer.LogprobIds();
  request.mutable_token_ids()->Add(ids.begin(), ids.end());
  ASSIGN_OR_RETURN(const auto response, calls->Detokenize(request));
  std::map<int32_t, std::string> pieces;
  for (size_t i = 0; i < ids.size() && static_cast<int>(i) < response.pieces_size(); ++i) {
    pieces[ids[i]] = response.pieces(static_cast<int>(i));
  }
  return Print(answer.LogprobTable(pieces));
}

// Makes the text of a request the message of a user, as --chat wants it.
absl::Status MakeChat(RouterCalls* calls, v1::GenerateRequest* request) {
  const std::string choice = absl::GetFlag(FLAGS_chat);
  if (choice == "no" || !request->has_text()) return absl::OkStatus();
  if (choice == "auto") {
    ASSIGN_OR_RETURN(const v1::ListModelsResponse models, calls->ListModels());
    if (models.models_size() == 0 || !models.models(0).takes_chat()) return absl::OkStatus();
  }
  std::string text = std::move(*request->mutable_text());
  v1::ChatMessage& message = *request->mutable_chat()->add_messages();
  message.set_role("user");
  message.set_text(std::move(text));
  return absl::OkStatus();
}

absl::Status Generate(RouterCalls* calls, v1::GenerateRequest request) {
  RETURN_IF_ERROR(MakeChat(calls, &request));
  const bool json = absl::GetFlag(FLAGS_json);
  // Limits the memory for answers. The router refuses an n that is above its limit.
  ReceivedAnswer answer(SteadyNow(), std::clamp(request.sampling().n(), 1u, 64u));
  bool printed = false;
  const absl::Status status = calls->Generate(request, [&](const v1::GenerateEvent& event) {
    RETURN_IF_ERROR(answer.Add(event, SteadyNow()));
    if (json) return absl::OkStatus();
    const std::string text = answer.TakePrintable();
    printed |= !text.empty();
    return Print(text);
  });
  if (printed) Print("\n").IgnoreError();
  RETURN_IF_ERROR(status);
  if (!answer.complete())
    return absl::DataLossError("the stream ended before the answer was complete");
  if (!json) std::fputs(answer.NoteLines("baton-client: ").c_str(), stderr);
  if (absl::GetFlag(FLAGS_timing)) std::fputs(answer.TimingTable().c_str(), stderr);
  if (json) return Print(JsonLine(answer.ToJson()));
  return request.sampling().has_logprobs() ? PrintLogprobs(calls, answer) : absl::OkStatus();
}

absl::Status Tokenize(RouterCalls* calls, const std::string& text) {
  v1::TokenizeRequest request;
  if (absl::Status status = CheckUtf8("the text", text); !status.ok())
    RefuseToStart(status.message());
  request.set_text(text);
  request.set_model(absl::GetFlag(FLAGS_model));
  request.set_parse_special(absl::GetFlag(FLAGS_parse_special));
  if (Given("add_special")) request.set_add_special(absl::GetFlag(FLAGS_add_special));
  ASSIGN_OR_RETURN(const auto response, calls->Tokenize(request));
  if (absl::GetFlag(FLAGS_json)) return Print(JsonLine(TokensJson(response)));
  std::fputs(DroppedNote(response).c_str(), stderr);
  if (absl::GetFlag(FLAGS_pieces)) return Print(PieceLines(response));
  return Print(absl::StrCat(absl::StrJoin(response.token_ids(), ","), "\n"));
}

absl::Status Detokenize(RouterCalls* calls, const std::string& ids) {
  v1::DetokenizeRequest request;
  const std::vector<int32_t> token_ids = OrRefuse(ParseTokenIds("detokenize", ids));
  request.mutable_token_ids()->Add(token_ids.begin(), token_ids.end());
  request.set_model(absl::GetFlag(FLAGS_model));
  request.set_skip_special(absl::GetFlag(FLAGS_skip_special));
  ASSIGN_OR_RETURN(const auto response, calls->Detokenize(request));
  return Print(absl::GetFlag(FLAGS_json) ? JsonLine(TextJson(request, response))
                                         : absl::StrCat(response.text(), "\n"));
}

absl::Status Models(RouterCalls* calls) {
  ASSIGN_OR_RETURN(const auto response, calls->ListModels());
  return Print(absl::GetFlag(FLAGS_json) ? JsonLine(ModelsJson(response)) : ModelLines(response));
}

absl::Status Health(RouterCalls* calls) {
  ASSIGN_OR_RETURN(const auto answer, calls->HealthWithModels());
  RETURN_IF_ERROR(Print(absl::StrCat(answer.health, "\n")));
  if (answer.health != "SERVING") {
    std::string why;
    for (const v1::Model& model : answer.models.models()) why = model.not_serving_because();
    return absl::UnavailableError(why.empty() ? "the router can't serve now" : why);
  }
  for (const v1::Model& model : answer.models.models()) {
    std::fputs(ReasonLines(model, "baton-client: ").c_str(), stderr);
  }
  return absl::OkStatus();
}

// Longest line that Linux' terminals give to a program, in bytes without the end of the line.
constexpr size_t kTerminalLine = 4095;

// Reads lines until the end of the input. If a person types them, an answer that fails is only
// told; otherwise it ends the program.
absl::Status Chat(RouterCalls* calls, const v1::GenerateRequest& base, const std::string& router) {
  const bool person = isatty(STDIN_FILENO) != 0;
  const auto note = [](absl::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
  };
  ChatSession session(
      base, absl::GetFlag(FLAGS_timing),
      {.generate = [calls](const v1::GenerateRequest& request,
                           const auto& on_event) { return calls->Generate(request, on_event); },
       .print = Print,
       .note = note,
       .router = router});
  if (person) {
    ASSIGN_OR_RETURN(const v1::ListModelsResponse models, calls->ListModels());
    const std::string name = models.models_size() > 0 ? models.models(0).name() : "the model";
    note(absl::StrCat("a conversation with ", name, "; /help prints the commands; Ctrl-D ends\n"));
  }
  std::string line;
  while (true) {
    if (person) note("> ");
    if (!std::getline(std::cin, line)) break;
    if (person && line.size() >= kTerminalLine) {
      note(absl::StrCat("the line was not sent: a terminal gives at most ", kTerminalLine,
                        " bytes of one, so its end may be lost; put it into a file, and send it "
                        "with generate --chat=yes - < FILE\n"));
      continue;
    }
    const ChatSession::Next next = session.Take(line);
    if (next == ChatSession::Next::kEnd) break;
    if (next == ChatSession::Next::kFailed && !person) std::exit(1);  // The reason was printed.
  }
  if (person && std::cin.eof()) note("\n");
  return absl::OkStatus();
}

absl::Status Run(RouterCalls* calls, const std::vector<std::string>& words,
                 const v1::GenerateRequest& request) {
  const std::string& command = words[0];
  if (command == "generate") return Generate(calls, request);
  if (command == "chat") return Chat(calls, request, absl::GetFlag(FLAGS_router));
  if (command == "tokenize") return Tokenize(calls, TextOf(words[1]));
  if (command == "detokenize") return Detokenize(calls, TextOf(words[1]));
  if (command == "models") return Models(calls);
  if (command == "health") return Health(calls);
  return calls->WaitUntilServing();
}

int Main(int argc, char** argv) {
  const std::vector<std::string> words = StartProgram(
      argc, argv,
      {kUsage, {{"The call", "router timeout"}, {"Log", "log-level log-format"}}, Commands()});
  CheckCommandLine(words);
  const std::string router = absl::GetFlag(FLAGS_router);
  if (!IsHostPort(router))
    RefuseToStart(absl::StrCat("--router=", router, " is not HOST:PORT, such as 127.0.0.1:50051"));
  v1::GenerateRequest request;
  if (words[0] == "generate") request = RequestFromFlags(words);
  if (words[0] == "chat") request = RequestFromFlags({words[0], ""});
  absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  if (words[0] == "wait" && !Given("timeout")) timeout = absl::Seconds(60);
  std::string key = OrRefuse(ApiKeyFromEnvironment(kApiKeyVariable));

  BlockStopSignals();
  // Both objects live until the process ends, because the thread that waits for a signal may use
  // them until then.
  static auto* const calls = new RouterCalls(router, timeout, std::move(key));
  static auto* const interrupted = new std::atomic<bool>(false);
  if (words[0] == "chat") {
    // Ctrl-C ends the answer that is coming, and otherwise the program.
    std::thread([] {
      while (NextStopSignal() == SIGINT && calls->CancelRunning()) continue;
      std::_Exit(130);
    }).detach();
  } else {
    std::thread([] {
      WaitForStop();
      *interrupted = true;
      calls->Stop();
    }).detach();
  }
  absl::Status status = Run(calls, words, request);
  if (*interrupted) return 130;
  if (status.ok()) return 0;
  // The timeout ended the call before the router could say what the request was waiting for, so ask
  // the router now.
  if (absl::IsDeadlineExceeded(status)) {
    const absl::StatusOr<std::string> why = calls->WhyNotServing();
    if (absl::IsUnavailable(why.status())) {
      status =
          absl::DeadlineExceededError(absl::StrCat(status.message(), "; ", why.status().message()));
    } else if (why.ok() && !why->empty()) {
      status = absl::DeadlineExceededError(
          absl::StrCat(status.message(), "; the router does not serve: ", *why));
    }
  }
  std::fprintf(stderr, "baton-client: %s", FailureLine(status, router).c_str());
  return 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
