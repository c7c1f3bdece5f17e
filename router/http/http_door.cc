#include "router/http/http_door.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/error_details.h"
#include "common/base/log.h"
#include "common/base/program.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "router/http/chat_request.h"
#include "router/http/completion_call.h"
#include "router/http/openai_error.h"
#include "router/http/text_messages.h"

namespace baton {
namespace {

constexpr size_t kMaxIdBytes = 128;
constexpr size_t kMaxNamedFields = 1000;
constexpr char kChatPath[] = "/v1/chat/completions";
constexpr char kRequestIdField[] = "X-Request-Id";

using Fields = std::vector<std::pair<std::string, std::string>>;

// Returns the id that the client gave, if it can be sent back; "" otherwise.
std::string RequestIdOf(const HttpHead& head) {
  const absl::string_view id = head.Get(kRequestIdField);
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  return plain && id.size() <= kMaxIdBytes ? std::string(id) : "";
}

bool IsLoopback(absl::string_view host) {
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.") ||
         absl::EndsWith(host, ".localhost");
}

// Returns the host of HOST or HOST:PORT, in lower case.
std::string HostOf(absl::string_view host_port) {
  const size_t colon = host_port.rfind(':');
  const bool port = colon != absl::string_view::npos && host_port.back() != ']';
  return absl::AsciiStrToLower(port ? host_port.substr(0, colon) : host_port);
}

// Returns the media type without its parameters, in lower case.
std::string MediaTypeOf(const HttpHead& head) {
  absl::string_view type = head.Get("Content-Type");
  type = absl::StripAsciiWhitespace(type.substr(0, type.find(';')));
  return absl::AsciiStrToLower(type);
}

// Reads a header with a positive number of the unit that its name says. Nothing if there is none.
absl::StatusOr<std::optional<double>> NumberOf(const HttpHead& head, absl::string_view name) {
  const absl::string_view text = head.Get(name);
  if (text.empty()) return std::nullopt;
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || !(number > 0) || !std::isfinite(number)) {
    return BadParameter(
        name, absl::StrCat("the header ", name, " is '", absl::CHexEscape(text.substr(0, 100)),
                           "'; it takes a number above 0"));
  }
  return number;
}

// Decodes %XX in a path. Nothing if that is not valid.
std::optional<std::string> Unescape(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    int value = 0;
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(text[i + 1]) ||
        !absl::SimpleHexAtoi(text.substr(i + 1, 2), &value)) {
      return std::nullopt;
    }
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

HttpResponse FromError(OpenAiError error) {
  return {error.http, std::move(error.fields), std::move(error.body)};
}

HttpResponse Json(std::string body) {
  return {200, {{"Content-Type", "application/json"}}, std::move(body)};
}

}  // namespace

// A path and its methods. HEAD is allowed wherever GET is.
struct HttpDoor::Route {
  const char* path;
  bool get, post;
  bool open = false;    // Needs no key.
  bool prefix = false;  // Followed by a name.
};

const std::vector<HttpDoor::Route>& HttpDoor::Routes() {
  static const auto* const routes = new std::vector<Route>{
      {"/v1/completions", false, true}, {"/v1/chat/completions", false, true},
      {"/v1/models", true, false},      {"/v1/models/", true, false, false, true},
      {"/tokenize", false, true},       {"/detokenize", false, true},
      {"/health", true, false, true},   {"/ping", true, true, true},
      {"/version", true, false, true},  {"/metrics", true, false, true}};
  return *routes;
}

absl::StatusOr<std::unique_ptr<HttpDoor>> HttpDoor::Listen(Door* door, Options options) {
  auto http = std::unique_ptr<HttpDoor>(new HttpDoor(door, std::move(options)));
  HttpDoor* const self = http.get();
  ASSIGN_OR_RETURN(
      http->server_,
      HttpServer::Listen(
          {.listen = self->options_.listen,
           .counts = self->options_.counts,
           .max_body_bytes = self->options_.max_body_bytes,
           .request_time = door->limits().request_limit,
           .max_age = self->options_.connection_age,
           .check = [self](const HttpHead& head) { return self->Check(head); },
           .handle =
               [self](const std::shared_ptr<HttpExchange>& exchange) { self->Handle(exchange); },
           .error =
               [self](int status, absl::string_view message) {
                 self->refused_.Add();
                 // The head of such a request may be in doubt, so nothing of it is used.
                 return self->Finish(
                     {}, FromError(status == 503 ? ToOpenAiError(absl::UnavailableError(message))
                                                 : MakeOpenAiError(status, message)));
               }}));
  return http;
}

HttpDoor::HttpDoor(Door* door, Options options)
    : door_(door),
      options_(std::move(options)),
      created_(absl::ToUnixSeconds(absl::Now())),
      whole_answers_(options_.max_answer_bytes) {}

HttpDoor::~HttpDoor() = default;

const HttpDoor::Route* HttpDoor::Find(const HttpHead& head) const {
  for (const Route& route : Routes()) {
    if (route.path == absl::string_view("/metrics") && !options_.metrics) continue;
    const bool found = route.prefix ? absl::StartsWith(head.path, route.path) &&
                                          head.path.size() > std::string(route.path).size()
                                    : head.path == route.path;
    if (found) return &route;
  }
  return nullptr;
}

HttpResponse HttpDoor::Finish(const HttpHead& head, HttpResponse response) const {
  std::string id = RequestIdOf(head);
  if (id.empty()) id = NewRequestId();
  response.fields.emplace_back(kRequestIdField, std::move(id));
  if (!options_.allow_origin.empty()) {
    response.fields.emplace_back("Access-Control-Allow-Origin", options_.allow_origin);
    if (options_.allow_origin != "*") response.fields.emplace_back("Vary", "Origin");
  }
  return response;
}

HttpResponse HttpDoor::Error(const HttpHead& head, const absl::Status& status) const {
  return Finish(head, FromError(ToOpenAiError(status)));
}

HttpResponse HttpDoor::NotFound(const HttpHead& head) const {
  std::vector<std::string> paths;
  std::string hint;
  for (const Route& route : Routes()) {
    if (route.path == absl::string_view("/metrics") && !options_.metrics) continue;
    paths.push_back(
        absl::StrCat(route.get ? "GET " : "POST ", route.path, route.prefix ? "{id}" : ""));
    if (absl::StrCat("/v1", head.path) == route.path) {
      hint = absl::StrCat("; did you mean ", route.path);
    }
  }
  if (absl::StartsWith(head.path, "/v1/v1/")) hint = "; the base URL ends with /v1 already";
  return Finish(head,
                FromError(MakeOpenAiError(
                    404,
                    absl::StrCat("there is no path ", absl::CHexEscape(head.path.substr(0, 200)),
                                 " here", hint, ". There are: ", absl::StrJoin(paths, ", ")),
                    "path_not_found")));
}

std::optional<HttpResponse> HttpDoor::CheckBrowser(const HttpHead& head, const Route& route) const {
  // A page from elsewhere may have its name point to 127.0.0.1 (DNS rebinding). The browser then
  // sends that name.
  const std::string host = HostOf(head.Get("Host"));
  if (IsLoopback(HostOf(server_->address())) && head.Has("Host") && !IsLoopback(host)) {
    return FromError(MakeOpenAiError(
        421, absl::StrCat("the Host is '", absl::CHexEscape(host.substr(0, 200)),
                          "', but this router listens on ", server_->address(),
                          " alone: use that address, or --http-listen on another one")));
  }
  // A browser sends a page's POST to another server without asking, unless its type is JSON.
  const std::string type = MediaTypeOf(head);
  const bool json = type.empty() || type == "application/json" || absl::EndsWith(type, "+json");
  if (route.post && head.method == "POST" && !json) {
    return FromError(MakeOpenAiError(
        415, absl::StrCat("the Content-Type is '", absl::CHexEscape(type.substr(0, 100)),
                          "'; this router takes application/json")));
  }
  const std::string encoding = absl::AsciiStrToLower(head.Get("Content-Encoding"));
  if (!encoding.empty() && encoding != "identity") {
    return FromError(MakeOpenAiError(
        415, absl::StrCat("the Content-Encoding is '", absl::CHexEscape(encoding.substr(0, 100)),
                          "'; this router takes bodies as they are")));
  }
  return std::nullopt;
}

std::optional<HttpResponse> HttpDoor::Check(const HttpHead& head) {
  requests_.Add();
  const auto refuse = [this, &head](HttpResponse response) {
    refused_.Add();
    return Finish(head, std::move(response));
  };
  const Route* const route = Find(head);
  if (head.method == "OPTIONS" && !options_.allow_origin.empty() && route != nullptr) {
    HttpResponse response{204};
    response.fields = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                       {"Access-Control-Allow-Headers", "*, Authorization"},
                       {"Access-Control-Max-Age", "600"}};
    return Finish(head, std::move(response));
  }
  if (route == nullptr) {
    refused_.Add();
    return NotFound(head);
  }
  const bool get = head.method == "GET" || head.method == "HEAD";
  if (!(get && route->get) && !(head.method == "POST" && route->post)) {
    const std::string allow =
        absl::StrCat(route->get ? "GET, HEAD" : "", route->get && route->post ? ", " : "",
                     route->post ? "POST" : "");
    HttpResponse response =
        FromError(MakeOpenAiError(405,
                                  absl::StrCat(head.path, " takes ", allow, ", not ",
                                               absl::CHexEscape(head.method.substr(0, 30))),
                                  "method_not_allowed"));
    response.fields.emplace_back("Allow", allow);
    return refuse(std::move(response));
  }
  if (auto wrong = CheckBrowser(head, *route)) return refuse(*std::move(wrong));
  if (!route->open && options_.keys != nullptr) {
    const absl::Status key = options_.keys->Check(head.Get("Authorization"));
    if (!key.ok()) return refuse(FromError(ToOpenAiError(key)));
  }
  if (head.path == "/health") {
    if (options_.serves()) return Finish(head, {200});
    const std::shared_ptr<const ServingChanged> serving = door_->serving();
    return refuse(FromError(ToOpenAiError(absl::UnavailableError(
        serving->why.empty() ? "the router does not serve" : serving->why))));
  }
  if (head.path == "/ping") {
    if (options_.alive()) return Finish(head, {200});
    return refuse(FromError(ToOpenAiError(absl::UnavailableError("the router hangs"))));
  }
  if (head.path == "/version") {
    return Finish(head, Json(absl::StrCat("{\"version\":\"", kVersion, "\"}")));
  }
  if (head.path == "/metrics") {
    return Finish(
        head,
        {200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, options_.metrics()});
  }
  if (head.path == "/v1/models") return Finish(head, Models(""));
  if (route->prefix) {
    const auto id = Unescape(head.path.substr(std::string(route->path).size()));
    return Finish(head, Models(id.value_or(head.path)));
  }
  return std::nullopt;
}

HttpResponse HttpDoor::Models(const std::string& id) const {
  if (!id.empty()) {
    if (const absl::Status known = CheckModelName(id, door_->model()); !known.ok()) {
      return FromError(ToOpenAiError(known));
    }
  }
  const ModelCard card = {.name = door_->model().name,
                          .created = created_,
                          .context_tokens = door_->context_tokens(),
                          .vocab_size = door_->model().config.vocab};
  return Json(id.empty() ? ModelListAnswer({card}) : ModelCardAnswer(card));
}

CompletionSettings HttpDoor::SettingsNow() const {
  return {.model_has_temperature = door_->model().config.generation.given_temperature.has_value(),
          .refuse_unknown_fields = options_.refuse_unknown_fields,
          .context_tokens = static_cast<size_t>(door_->model().config.context)};
}

void HttpDoor::Handle(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpHead& head = exchange->head();
  absl::StatusOr<std::string> caller = door_->CallerName(head.Get(kTenantHeader), head.peer);
  if (!caller.ok()) return exchange->Respond(Error(head, caller.status()));
  // A long JSON would keep the I/O thread from other connections, and so would a chat template that
  // takes long. Those of completions are rendered when they are asked.
  const size_t bytes = exchange->body().size();
  const bool may_render = head.path == "/tokenize";
  const absl::Status status =
      door_->RunOnText(*caller, may_render ? Door::kAnyLength : bytes, bytes,
                       [this, exchange, caller = *caller](const absl::Status& turn) {
                         if (!turn.ok()) return exchange->Respond(Error(exchange->head(), turn));
                         const std::string& path = exchange->head().path;
                         if (path == "/v1/completions" || path == kChatPath)
                           return Complete(exchange, caller);
                         IgnoredFields ignored;
                         AnswerText(exchange, caller, [&]() {
                           return path == "/tokenize" ? Tokenize(*exchange, &ignored)
                                                      : Detokenize(*exchange, &ignored);
                         });
                         NoteIgnored(ignored);
                       });
  if (!status.ok()) exchange->Respond(Error(head, status));
}

void HttpDoor::Complete(const std::shared_ptr<HttpExchange>& exchange, const std::string& caller) {
  const HttpHead& head = exchange->head();
  const absl::Time arrival = SteadyNow();
  CompletionCall::Options options = {.caller = caller, .fields = Finish(head, {}).fields};
  const std::string id = options.fields.front().second;
  std::string body = std::move(exchange->body());
  const auto read = [&]() -> absl::Status {
    const bool chat = head.path == kChatPath;
    ASSIGN_OR_RETURN(options.request, chat ? ParseChatRequest(body, SettingsNow())
                                           : ParseCompletionRequest(body, SettingsNow()));
    ASSIGN_OR_RETURN(const std::optional<double> ttft, NumberOf(head, "x-slo-ttft-ms"));
    ASSIGN_OR_RETURN(const std::optional<double> tpot, NumberOf(head, "x-slo-tpot-ms"));
    // OpenAI's clients tell for how long they wait for bytes. They do not wait longer for an answer
    // that comes as a whole. A stream may take longer, and the end of its client is seen.
    const auto wait = NumberOf(head, "x-stainless-read-timeout");
    if (!options.request.shape.stream && wait.ok() && *wait) {
      options.deadline = arrival + std::min(absl::Seconds(**wait), absl::Hours(24 * 365));
    }
    const std::optional<float> temperature = door_->model().config.generation.given_temperature;
    for (ClientRequest& prompt : options.request.prompts) {
      prompt.request_id = id;
      if (temperature && !prompt.sampling.has_temperature()) {
        prompt.sampling.set_temperature(*temperature);
      }
      prompt.ttft_ms = ttft;
      prompt.tpot_ms = tpot;
    }
    options.head = {.id = absl::StrCat(chat ? "chatcmpl-" : "cmpl-", id),
                    .created = absl::ToUnixSeconds(absl::Now()),
                    .model = door_->model().name};
    const ModelIdentity& identity = door_->serving()->identity;
    if (!identity.fingerprint.empty()) options.head.system_fingerprint = identity.ToString();
    return absl::OkStatus();
  };
  const absl::Status status = read();
  NoteIgnored(options.request.ignored);
  if (!status.ok()) {
    refused_.Add();
    OpenAiError error = ToOpenAiError(status);
    error.fields.insert(error.fields.end(), options.fields.begin(), options.fields.end());
    return exchange->Respond(FromError(std::move(error)));
  }
  options.request.shape.timing = head.Get("x-baton-timing") == "1";
  if (std::string names = IgnoredFieldsHeader(options.request.ignored); !names.empty()) {
    options.fields.emplace_back("x-baton-ignored-fields", std::move(names));
  }
  CompletionCall::Start(door_, &whole_answers_, exchange, std::move(options));
}

void HttpDoor::AnswerText(const std::shared_ptr<HttpExchange>& exchange, const std::string& caller,
                          const std::function<absl::StatusOr<std::string>()>& work) {
  const HttpHead& head = exchange->head();
  // Kept until the client has read the answer.
  auto memory = std::make_shared<std::vector<SharedBudget::Share>>();
  const auto answer = [&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(SharedBudget::Share place, door_->TakeTextCall(caller));
    memory->push_back(std::move(place));
    ASSIGN_OR_RETURN(std::string text, work());
    ASSIGN_OR_RETURN(SharedBudget::Share bytes, door_->TakeAnswerBytes(caller, text.size()));
    memory->push_back(std::move(bytes));
    return text;
  };
  absl::StatusOr<std::string> text = answer();
  if (!text.ok()) {
    door_->NoteTextCallEnd(text.status());
    refused_.Add();
    return exchange->Respond(Error(head, text.status()));
  }
  HttpResponse response = Json(*std::move(text));
  response.memory = std::move(memory);
  exchange->Respond(Finish(head, std::move(response)));
}

absl::StatusOr<std::string> HttpDoor::Tokenize(HttpExchange& exchange,
                                               IgnoredFields* ignored) const {
  ASSIGN_OR_RETURN(TokenizeBody body, ParseTokenizeBody(exchange.body(), SettingsNow()));
  *ignored = std::move(body.ignored);
  const auto* const text = std::get_if<std::string>(&body.prompt);
  ASSIGN_OR_RETURN(
      const Door::EncodedText encoded,
      text != nullptr
          ? door_->Tokenize(body.model, *text, /*parse_special=*/true, body.add_special, nullptr)
          : door_->TokenizeChat(body.model, std::get<Chat>(body.prompt), nullptr));
  return TokenizeAnswer(encoded.ids, door_->context_tokens(), body.return_token_strs,
                        *door_->model().tokenizer);
}

absl::StatusOr<std::string> HttpDoor::Detokenize(HttpExchange& exchange,
                                                 IgnoredFields* ignored) const {
  ASSIGN_OR_RETURN(DetokenizeBody body, ParseDetokenizeBody(exchange.body(), SettingsNow()));
  *ignored = std::move(body.ignored);
  ASSIGN_OR_RETURN(const std::string text,
                   door_->Detokenize(body.model, body.tokens, /*skip_special=*/false));
  return DetokenizeAnswer(text);
}

void HttpDoor::NoteIgnored(const IgnoredFields& ignored) {
  if (ignored.count == 0) return;
  ignored_fields_.Add(ignored.count);
  MutexLock lock(&mutex_);
  for (const std::string& name : ignored.names) {
    if (named_.size() >= kMaxNamedFields || !named_.insert(name).second) continue;
    Log(Severity::kWarning, "ignored_field",
        {{"field", name}, {"because", "the router does not know it; the log names it once"}});
  }
}

void HttpDoor::AddTo(MetricRegistry* registry) const {
  registry->AddCounter("baton_router_http_requests_total", "Requests that came over HTTP.", {},
                       &requests_);
  registry->AddCounter("baton_router_http_refused_total",
                       "Requests over HTTP that were refused before the core got them.", {},
                       &refused_);
  registry->AddCounter("baton_router_http_ignored_fields_total",
                       "Fields of requests over HTTP that the router does not know.", {},
                       &ignored_fields_);
}

}  // namespace baton
