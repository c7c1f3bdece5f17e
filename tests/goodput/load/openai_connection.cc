#include "tests/goodput/load/openai_connection.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/api_key.h"
#include "common/base/json.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "tests/goodput/load/openai_status.h"
#include "tests/goodput/load/router_connection.h"

namespace baton {
namespace {

constexpr absl::Duration kAnswerLimit = absl::Seconds(30);
constexpr absl::Duration kAgain = absl::Milliseconds(100);  // Pause before a request is repeated.
// Id of the prompt with which the server is asked for one token. Lower ids are special tokens of
// many vocabularies.
constexpr int32_t kTriedId = 42;
// Vocabularies are smaller than this. A server that takes this id does not look at ids.
constexpr int32_t kMaxVocabulary = 1 << 22;

// Returns the status of an answer, with the message of its body.
absl::Status StatusOf(const CallerAnswer& reply) {
  return absl::Status(CodeOfHttpStatus(reply.status),
                      absl::StrCat("HTTP ", reply.status, ": ", MessageOfErrorBody(reply.body)));
}

bool IsOk(const CallerAnswer& reply) { return reply.status >= 200 && reply.status < 300; }

// Returns a number of the model's entry in /v1/models, or 0 if it has none.
uint32_t NumberOf(const std::optional<JsonValue>& object, absl::string_view key) {
  const std::optional<JsonValue> value = object ? object->Member(key) : std::nullopt;
  const std::optional<uint64_t> number = value ? value->UInt() : std::nullopt;
  return number && *number <= UINT32_MAX ? static_cast<uint32_t>(*number) : 0;
}

}  // namespace

absl::StatusOr<HttpUrl> ParseOpenAiUrl(absl::string_view url) {
  if (absl::StartsWithIgnoreCase(url, "https:")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", url, "' is an https URL; only http is supported: name a server or a proxy by http"));
  }
  absl::StatusOr<HttpUrl> parsed = ParseHttpUrl(url);
  if (!parsed.ok() || parsed->path.find_first_of("?#") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("'", url,
                                                   "' is not http://HOST[:PORT][/PATH], such as "
                                                   "http://127.0.0.1:8000/v1"));
  }
  while (absl::EndsWith(parsed->path, "/")) parsed->path.pop_back();
  if (parsed->path.empty()) parsed->path = "/v1";
  return parsed;
}

absl::StatusOr<std::unique_ptr<OpenAiConnection>> OpenAiConnection::Open(const Options& options,
                                                                         StopFlag* stop) {
  ASSIGN_OR_RETURN(HttpUrl url, ParseOpenAiUrl(options.url));
  std::unique_ptr<OpenAiConnection> connection(new OpenAiConnection(options, std::move(url), stop));
  ASSIGN_OR_RETURN(connection->key_, ApiKeyFromEnvironment("OPENAI_API_KEY"));
  const HttpUrl& parsed = connection->url_;
  ASSIGN_OR_RETURN(connection->caller_,
                   HttpCaller::Start(parsed.host, parsed.port, parsed.Authority()));
  RETURN_IF_ERROR(connection->AskForModel());
  RETURN_IF_ERROR(connection->FindFeatures());
  if (!options.vocabulary_router.empty()) {
    ASSIGN_OR_RETURN(connection->vocabulary_router_,
                     RouterConnection::Open({.endpoint = options.vocabulary_router,
                                             .connect_timeout = options.connect_timeout},
                                            stop));
    const std::string model = connection->server_.model;
    connection->server_ = connection->vocabulary_router_->server();
    connection->server_.endpoint = options.url;
    connection->server_.model = model;
  }
  return connection;
}

HttpCall OpenAiConnection::Call(absl::string_view method, std::string target) const {
  HttpCall call{.method = std::string(method), .target = std::move(target)};
  call.fields = {{"Accept", "application/json, text/event-stream"},
                 {"User-Agent", "baton-goodput"}};
  if (method == "POST") call.fields.emplace_back("Content-Type", "application/json");
  if (!key_.empty()) call.fields.emplace_back("Authorization", absl::StrCat("Bearer ", key_));
  return call;
}

absl::StatusOr<CallerAnswer> OpenAiConnection::AskUntilAnswered(const HttpCall& call) const {
  const auto end =
      StopFlag::Time::clock::now() + absl::ToChronoNanoseconds(options_.connect_timeout);
  while (true) {
    absl::StatusOr<CallerAnswer> reply =
        caller_->Ask(call, kAnswerLimit, [this] { return stop_->stopped(); });
    if (stop_->stopped()) return absl::CancelledError("stopped before the server was reached");
    const absl::Status status =
        !reply.ok() ? reply.status()
        : CodeOfHttpStatus(reply->status) == absl::StatusCode::kResourceExhausted ||
                CodeOfHttpStatus(reply->status) == absl::StatusCode::kUnavailable
            ? StatusOf(*reply)
            : absl::OkStatus();
    if (status.ok()) return reply;
    if (StopFlag::Time::clock::now() >= end) {
      return absl::UnavailableError(
          absl::StrCat("can't reach the server at ", options_.url, " within ",
                       absl::FormatDuration(options_.connect_timeout), ": ", status.message(),
                       "; start it, or name another with --openai"));
    }
    stop_->WaitUntil(StopFlag::Time::clock::now() + absl::ToChronoNanoseconds(kAgain));
  }
}

absl::Status OpenAiConnection::AskForModel() {
  server_.endpoint = options_.url;
  ASSIGN_OR_RETURN(const CallerAnswer reply, AskUntilAnswered(Call("GET", url_.path + "/models")));
  const auto refuse = [&](absl::string_view why) {
    return absl::UnavailableError(
        absl::StrCat("the server at ", options_.url, " does not say which models it has: ", why));
  };
  if (reply.status == 401 || reply.status == 403) {
    return absl::UnauthenticatedError(absl::StrCat(
        "the server at ", options_.url, " takes no request ",
        key_.empty() ? "without a key; set $OPENAI_API_KEY" : "with the key in $OPENAI_API_KEY",
        ": ", StatusOf(reply).message()));
  }
  if (!IsOk(reply) && options_.model.empty()) {
    return refuse(absl::StrCat(StatusOf(reply).message(), "; name one with --openai-model"));
  }
  server_.model = options_.model;
  if (!IsOk(reply)) return absl::OkStatus();  // A proxy may have no list.
  const auto text = JsonText::Parse(reply.body);
  if (!text.ok()) return refuse(absl::StrCat("its list is not JSON: ", text.status().message()));
  std::vector<std::string> names;
  const std::optional<JsonValue> list = (*text)->root().Member("data");
  if (!list) return refuse("its list has no `data`");
  list->ForEachElement([&](JsonValue model) {
        const std::optional<JsonValue> id = model.Member("id");
        if (!id || !id->String()) return absl::OkStatus();
        names.emplace_back(*id->String());
        if (server_.model.empty()) server_.model = names[0];
        if (names.back() != server_.model) return absl::OkStatus();
        server_.context_tokens = NumberOf(model, "max_model_len");
        server_.vocab_size =
            std::max(NumberOf(model, "vocab_size"), NumberOf(model.Member("meta"), "n_vocab"));
        return absl::OkStatus();
      })
      .IgnoreError();
  if (names.empty()) return refuse("its list is empty");
  if (!std::count(names.begin(), names.end(), server_.model)) {
    return absl::NotFoundError(absl::StrCat("the server at ", options_.url, " has no model '",
                                            server_.model, "'; it has ",
                                            absl::StrJoin(names, ", ")));
  }
  return absl::OkStatus();
}

std::string OpenAiConnection::Target() const {
  return absl::StrCat(url_.path, options_.chat ? "/chat/completions" : "/completions");
}

absl::StatusOr<CallerAnswer> OpenAiConnection::AskForToken(bool prompt_is_ids, int32_t id,
                                                           bool answer_ids) const {
  nlohmann::json fields = {{"model", server_.model}, {"max_tokens", 1}, {"temperature", 0}};
  if (prompt_is_ids) {
    fields["prompt"] = {id};
  } else if (options_.chat) {
    fields["messages"] = {{{"role", "user"}, {"content", "the"}}};
  } else {
    fields["prompt"] = "the";
  }
  if (answer_ids) fields["return_token_ids"] = true;
  HttpCall call = Call("POST", Target());
  call.body = fields.dump();
  return AskUntilAnswered(call);
}

absl::Status OpenAiConnection::FindFeatures() {
  CallerAnswer reply;
  for (const bool ids : {true, false}) {
    if (ids && options_.chat) continue;
    for (const bool answer_ids : {true, false}) {
      ASSIGN_OR_RETURN(reply, AskForToken(ids, kTriedId, answer_ids));
      if (!IsOk(reply)) continue;
      const auto text = JsonText::Parse(reply.body);
      if (!text.ok()) {
        return absl::UnavailableError(absl::StrCat("the answer of ", options_.url,
                                                   " is not JSON: ", text.status().message()));
      }
      features_.prompt_ids = ids;
      const auto choices = (*text)->root().Member("choices");
      if (!choices) return absl::OkStatus();
      return choices->ForEachElement([&](JsonValue choice) {
        const auto given = choice.Member("token_ids");
        features_.answer_ids = given && given->IsArray();
        return absl::OkStatus();
      });
    }
  }
  const absl::Status status = StatusOf(reply);
  return absl::Status(status.code(),
                      absl::StrCat("the server at ", options_.url,
                                   " refuses a request of one token: ", status.message()));
}

absl::StatusOr<int32_t> OpenAiConnection::FindVocabulary() const {
  int32_t known = kTriedId, unknown = kMaxVocabulary;
  for (int32_t id = unknown; known + 1 < unknown; id = known + (unknown - known) / 2) {
    ASSIGN_OR_RETURN(const CallerAnswer reply, AskForToken(true, id, false));
    (IsOk(reply) ? known : unknown) = id;
  }
  if (known < kMaxVocabulary) return known + 1;
  return absl::FailedPreconditionError(absl::StrCat(
      "the server at ", options_.url,
      " does not tell the size of its vocabulary, and takes any token id; give --prompts, or "
      "--endpoint=HOST:PORT of a router with the same model"));
}

absl::StatusOr<std::vector<int32_t>> OpenAiConnection::OrdinaryTokens() {
  if (features_.prompt_ids && vocabulary_router_ != nullptr)
    return vocabulary_router_->OrdinaryTokens();
  std::vector<int32_t> tokens;
  if (!features_.prompt_ids) {
    tokens.resize(kOpenAiWords);
    std::iota(tokens.begin(), tokens.end(), 0);
    return tokens;
  }
  if (server_.vocab_size == 0) {
    ASSIGN_OR_RETURN(const int32_t size, FindVocabulary());
    server_.vocab_size = static_cast<uint32_t>(size);
  }
  const uint32_t margin = server_.vocab_size / 8;
  tokens.resize(server_.vocab_size - 2 * margin);
  std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(margin));
  return tokens;
}

absl::StatusOr<std::vector<int32_t>> OpenAiConnection::Tokenize(const std::string& text,
                                                                StopFlag* stop) {
  if (stop->stopped()) return absl::CancelledError("stopped while the prompts were counted");
  if (!features_.prompt_ids) return absl::UnimplementedError("it takes no prompts of token ids");
  std::string root = url_.path;
  if (absl::EndsWith(root, "/v1")) root.resize(root.size() - 3);
  HttpCall call = Call("POST", root + "/tokenize");
  // vLLM reads `prompt`, and llama-server reads `content`.
  call.body = nlohmann::json{{"model", server_.model}, {"prompt", text}, {"content", text}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  ASSIGN_OR_RETURN(const CallerAnswer reply,
                   caller_->Ask(call, kAnswerLimit, [stop] { return stop->stopped(); }));
  if (reply.status == 404 || reply.status == 405 || reply.status == 501)
    return absl::UnimplementedError(StatusOf(reply).message());
  if (!IsOk(reply)) return StatusOf(reply);
  const auto parsed = JsonText::Parse(reply.body);
  const std::optional<JsonValue> list =
      parsed.ok() ? (*parsed)->root().Member("tokens") : std::nullopt;
  if (!list || !list->IsArray()) return absl::UnimplementedError("/tokenize gives no `tokens`");
  std::vector<int32_t> tokens;
  tokens.reserve(list->size());
  absl::Status status = list->ForEachElement([&](JsonValue token) {
    const std::optional<int64_t> id = token.Int();
    if (!id || *id < 0 || *id > INT32_MAX)
      return absl::UnimplementedError("/tokenize gives tokens that are no ids");
    tokens.push_back(static_cast<int32_t>(*id));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return tokens;
}

OutgoingRequest OpenAiConnection::Prepare(v1::GenerateRequest request) const {
  OutgoingRequest outgoing;
  outgoing.body =
      CompletionBody(request, server_.model, features_,
                     features_.answer_ids && options_.token_ids_in_answers, options_.chat);
  request.clear_prompt();
  outgoing.message = std::move(request);
  return outgoing;
}

std::unique_ptr<RequestStream> OpenAiConnection::NewStream(RequestRecord record,
                                                           RequestStream::Clock::time_point start,
                                                           bool keep_token_ids,
                                                           RequestStream::OnEnded on_ended) {
  HttpCall call = Call("POST", Target());
  call.fields.emplace_back("x-baton-timing", "1");
  return std::make_unique<OpenAiStream>(caller_.get(), std::move(call), std::move(record), start,
                                        keep_token_ids, std::move(on_ended), &counts_);
}

void OpenAiConnection::Remark(std::vector<std::string>* remarks) const {
  if (!features_.prompt_ids) {
    remarks->push_back(
        "the server takes no prompts of token ids: a prompt that comes from no file is a text of "
        "as "
        "many words as it should have tokens, and its usage tells how many tokens these are");
  }
  const uint32_t ended = counts_.ended, uneven = counts_.uneven, untold = counts_.without_usage;
  const uint64_t events = counts_.uneven_events, tokens = counts_.uneven_tokens;
  if (uneven > 0) {
    remarks->push_back(absl::StrCat("events are not tokens: ", uneven, " of ", ended,
                                    " answers had ", events, " events for ", tokens,
                                    " tokens; the first and the last token of an answer have exact "
                                    "times, and the times between "
                                    "them are those of the events, spread evenly"));
  }
  if (untold > 0) {
    remarks->push_back(absl::StrCat(
        untold, " of ", ended, " answers had no usage: each event with text counts as a token"));
  }
}

}  // namespace baton
