#include "router/http/http_door.h"

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/scratch_folder.h"
#include "common/chat/chat_renderer.h"
#include "common/rpc/status.h"
#include "router/http/http_server_fixture.h"
#include "router/router_server_fixture.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Post(const std::string& path, const std::string& body, const std::string& fields = "") {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\n", fields,
                      "Content-Length: ", body.size(), "\r\n\r\n", body);
}
std::string Get(const std::string& path, const std::string& fields = "") {
  return absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n", fields, "\r\n");
}
constexpr char kCompletions[] = "/v1/completions";
constexpr char kChats[] = "/v1/chat/completions";

// A router with both doors, and fake workers.
class HttpDoorTest : public RouterServerFixture {
 protected:
  void StartHttp(RouterServer::Options options = {}) {
    options.http.listen = "127.0.0.1:0";
    StartRouter(std::move(options));
  }
  // Starts workers and waits until they get requests.
  void Serve(FakeWorkers::Options options = {}) {
    StartWorkers(options);
    ASSERT_TRUE(Await(
        [this] { return Ask("GET /health HTTP/1.1\r\nHost: a.localhost\r\n\r\n").status == 200; }));
  }
  RawHttpClient::Answer Ask(const std::string& request) {
    RawHttpClient client(router_->http_address());
    client.Send(request);
    return client.HearAnswer();
  }
  json AskJson(const json& body, const std::string& fields = "") {
    const auto answer = Ask(Post(kCompletions, body.dump(), fields));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body, nullptr, false);
  }
  // Asks for a stream and returns the events, without the last one, which must be [DONE].
  std::vector<json> Stream(json body, const std::string& fields = "") {
    body["stream"] = true;
    const auto answer = Ask(Post(kCompletions, body.dump(), fields));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Events(answer.body);
  }
  static std::vector<json> Events(const std::string& body) {
    std::vector<json> events;
    bool done = false;
    for (const absl::string_view part : absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
      EXPECT_FALSE(done);
      EXPECT_EQ(part.substr(0, 6), "data: ");
      done = part == "data: [DONE]";
      if (!done) events.push_back(json::parse(std::string(part.substr(6))));
    }
    EXPECT_TRUE(done) << body;
    return events;
  }
  static std::string TextOf(const std::vector<json>& events, int index = 0) {
    std::string text;
    for (const json& event : events) {
      for (const json& choice : event["choices"]) {
        if (choice["index"] == index) text += choice["text"].get<std::string>();
      }
    }
    return text;
  }
  // Expects a refusal before the core, and returns its message.
  std::string Refused(const std::string& request, int status, const std::string& param = "",
                      const std::string& code = "") {
    const auto answer = Ask(request);
    EXPECT_EQ(answer.status, status) << request << answer.body;
    const json body = json::parse(answer.body, nullptr, false);
    EXPECT_TRUE(body.is_object()) << answer.body;
    const json error = body.value("error", json::object());
    if (!param.empty()) {
      EXPECT_EQ(error.value("param", ""), param) << answer.body;
    }
    if (!code.empty()) {
      EXPECT_EQ(error.value("code", ""), code) << answer.body;
    }
    return error.value("message", "");
  }
};

const json kSky = {{"prompt", "Why is the sky blue?"}, {"max_tokens", 40}};

TEST_F(HttpDoorTest, BothDoorsGiveTheSameAnswer) {
  StartHttp();
  Serve();
  const GenerateOutcome grpc = Generate(RouterServerFixture::Ask("Why is the sky blue?", 40));
  ASSERT_TRUE(grpc.status.ok());
  const json whole = AskJson(kSky);
  EXPECT_EQ(whole["choices"][0]["text"], grpc.text);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["usage"]["completion_tokens"], 40);
  EXPECT_EQ(whole["model"], "demo");
  const std::vector<json> events = Stream(kSky);
  EXPECT_EQ(TextOf(events), grpc.text);
  EXPECT_EQ(events.size(), 41u) << "40 tokens and the finish";
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "length");
  for (const json& event : events) EXPECT_EQ(event["id"], events[0]["id"]);
  EXPECT_TRUE(Await([this] { return router_->requests() == 0; })) << "a call was not closed";
}

TEST_F(HttpDoorTest, SeveralPromptsAndAnswersHaveTheirIndices) {
  StartHttp();
  Serve();
  const json body = {{"prompt", {"Hello", "Why"}}, {"n", 2}, {"max_tokens", 5}};
  const json whole = AskJson(body);
  ASSERT_EQ(whole["choices"].size(), 4u);
  const std::string of_why = AskJson({{"prompt", "Why"}, {"max_tokens", 5}})["choices"][0]["text"];
  for (int i = 0; i < 4; ++i) EXPECT_EQ(whole["choices"][i]["index"], i);
  EXPECT_EQ(whole["choices"][2]["text"], of_why);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 20);
  EXPECT_EQ(TextOf(Stream(body), 2), of_why);
  const std::vector<TokenId> ids = *DemoTokenizer().Encode("Why");
  EXPECT_EQ(AskJson({{"prompt", {ids}}, {"max_tokens", 5}})["choices"][0]["text"], of_why);
}

TEST_F(HttpDoorTest, UsageAndTimingComeWhereTheyAreAskedFor) {
  StartHttp();
  Serve();
  json body = kSky;
  body["stream_options"] = {{"include_usage", true}};
  const std::vector<json> events = Stream(body, "x-baton-timing: 1\r\n");
  const json& last = events.back();
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"]["completion_tokens"], 40);
  EXPECT_TRUE(last["timing"].contains("prefill_ms")) << last;
  EXPECT_FALSE(AskJson(kSky).contains("timing"));
}

TEST_F(HttpDoorTest, ARefusalIsAStatusWithItsParameter) {
  StartHttp();
  const auto ask = [](const json& body) { return Post(kCompletions, body.dump()); };
  EXPECT_THAT(Refused(ask({{"prompt", "a"}, {"model", "gpt-9"}}), 404, "model", "model_not_found"),
              HasSubstr("'gpt-9' is not served"));
  EXPECT_THAT(Refused(ask({{"prompt", "a"}, {"max_tokens", 5000}}), 400, "max_tokens",
                      "context_length_exceeded"),
              AllOf(HasSubstr("5000"), HasSubstr("4096")));
  Refused(ask({{"prompt", "a"}, {"temperature", 101}}), 400, "temperature");
  Refused(ask({{"prompt", "a"}, {"top_p", "x"}}), 400, "top_p");
  Refused(ask({{"max_tokens", 1}}), 400, "prompt");
  Refused(ask({{"prompt", "a"}, {"guided_json", {{"a", 1}}}}), 400, "guided_json");
  Refused(Post(kCompletions, "{\"prompt\": "), 400);
  EXPECT_THAT(Refused(Post("/completions", "{}"), 404),
              AllOf(HasSubstr("did you mean /v1/completions"), HasSubstr("GET /v1/models")));
  Refused(Get(kCompletions), 405);
  Refused(Post(kCompletions, "{}", "Content-Type: text/plain\r\n"), 415);
  Refused(Post(kCompletions, "{}", "x-slo-ttft-ms: soon\r\n"), 400);
  Refused("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421);
  EXPECT_EQ(router_->counters().arrived, 0u) << "none of them reached the core";
}

TEST_F(HttpDoorTest, AChatIsRenderedWithTheModelsTemplate) {
  const auto chat =
      ChatRenderer::Load(*ReadChatTexts(BATON_SOURCE_DIR "/common/model/demo"), "auto");
  ASSERT_TRUE(chat.ok()) << chat.status();
  RouterServer::Options options;
  options.model.chat = chat->get();
  StartHttp(std::move(options));
  Serve();
  const json messages = {{{"role", "user"}, {"content", "Why is the <|user|> sky blue?"}}};
  const json there = json::parse(Ask(Post("/tokenize", json{{"messages", messages}}.dump())).body);
  const auto plain =
      DemoTokenizer().Encode("Why is the <|user|> sky blue?", {.add_special = false});
  const auto before = DemoTokenizer().Encode("<|begin_of_text|><|user|>",
                                             {.parse_special = true, .add_special = false});
  const auto behind = DemoTokenizer().Encode("<|end_of_turn|><|assistant|>",
                                             {.parse_special = true, .add_special = false});
  std::vector<TokenId> ids = *before;
  ids.insert(ids.end(), plain->begin(), plain->end());
  ids.insert(ids.end(), behind->begin(), behind->end());
  EXPECT_EQ(there["tokens"], json(ids));

  const json body = {{"messages", messages}, {"max_tokens", 20}, {"temperature", 0}};
  const auto whole = Ask(Post(kChats, body.dump()));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json answer = json::parse(whole.body);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], ids.size());
  // The same at gRPC.
  v1::GenerateRequest request;
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_text("Why is the <|user|> sky blue?");
  request.mutable_sampling()->set_max_tokens(20);
  request.mutable_sampling()->set_temperature(0);
  const GenerateOutcome outcome = Generate(request);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.error_message();
  EXPECT_EQ(answer["choices"][0]["message"]["content"], outcome.text);
  EXPECT_EQ(outcome.summary.usage().prompt_tokens(), ids.size());
  // Options for texts are refused with messages.
  request.set_parse_special(true);
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(HttpDoorTest, AChatNeedsATemplate) {
  StartHttp();
  Serve();
  const json hello = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
  for (const char* const path : {kChats, "/tokenize"}) {
    EXPECT_EQ(Refused(Post(path, hello.dump()), 400, "messages"), "the model has no chat template");
  }
  // A stream that can't begin is refused by its status.
  json stream = hello;
  stream["stream"] = true;
  Refused(Post(kChats, stream.dump()), 400, "messages");
  EXPECT_TRUE(Await([this] { return router_->requests() == 0; })) << "a call was not closed";
}

TEST_F(HttpDoorTest, AWrongChatIsRefusedWithItsParameter) {
  StartHttp();
  const auto refused = [&](absl::string_view members, const std::string& param) {
    return Refused(Post(kChats, absl::StrCat(R"({"messages": [{"role": "user", "content": "a"}], )",
                                             members, "}")),
                   400, param);
  };
  refused(R"("echo": true)", "echo");
  refused(R"("top_logprobs": 2)", "top_logprobs");
  refused(R"("chat_template": "x")", "chat_template");
  refused(R"("continue_final_message": true)", "continue_final_message");
  EXPECT_THAT(
      refused(R"("tools": [{"type": "function", "function": {"name": "f"}}])", "tool_choice"),
      HasSubstr(R"(send "tool_choice": "none")"));
  Refused(Post(kChats, R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"),
          400, "messages[0].content[0].type");
  Refused(Post(kChats, R"({"prompt": "a"})"), 400, "prompt");
  Refused(Post(kCompletions, R"({"prompt": "a", "messages": [{"role": "user"}]})"), 400,
          "messages");
  Refused(Get(kChats), 405);
  EXPECT_THAT(Refused(Post("/chat/completions", "{}"), 404),
              HasSubstr("did you mean /v1/chat/completions"));
  EXPECT_EQ(router_->counters().arrived, 0u) << "none of them reached the core";
}

TEST_F(HttpDoorTest, HealthIsWhetherARequestCanBeServed) {
  StartHttp();
  EXPECT_EQ(Ask(Get("/health")).status, 503);
  EXPECT_EQ(Ask(Get("/ping")).status, 200) << "the process works";
  Serve();
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  RawHttpClient client(router_->http_address());
  client.Send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.HearAnswer(/*head_only=*/true).status, 200);
  EXPECT_TRUE(json::parse(Ask(Get("/version")).body).contains("version"));
}

TEST_F(HttpDoorTest, ModelsAreListedAndFoundByName) {
  StartHttp();
  const json list = json::parse(Ask(Get("/v1/models")).body);
  EXPECT_EQ(list["data"][0]["id"], "demo");
  EXPECT_EQ(list["data"][0]["root"], "demo");
  EXPECT_EQ(list["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(json::parse(Ask(Get("/v1/models/demo")).body)["id"], "demo");
  EXPECT_EQ(json::parse(Ask(Get("/v1/models/d%65mo")).body)["id"], "demo");
  Refused(Get("/v1/models/other"), 404, "model", "model_not_found");
}

TEST_F(HttpDoorTest, TextsAreTokenisedThereAndBack) {
  StartHttp();
  const std::string text = "Äpfel, 猫 and 🙂";
  const json there = json::parse(Ask(Post("/tokenize", json{{"prompt", text}}.dump())).body);
  EXPECT_EQ(there["tokens"].get<std::vector<TokenId>>(), *DemoTokenizer().Encode(text));
  EXPECT_EQ(there["count"], there["tokens"].size());
  EXPECT_EQ(there["max_model_len"], 4096);
  json tokens = there["tokens"];
  tokens.erase(tokens.begin());  // BOS, which is text for vLLM.
  EXPECT_EQ(json::parse(Ask(Post("/detokenize", json{{"tokens", tokens}}.dump())).body)["prompt"],
            text);
  Refused(Post("/detokenize", R"({"tokens":[5000]})"), 400);
}

TEST_F(HttpDoorTest, AClientThatLeavesEndsItsRequest) {
  StartHttp();
  Serve({.stop_after = 3});
  for (const bool stream : {false, true}) {
    json body = kSky;
    body["stream"] = stream;
    body["prompt"] = {"Hello", "Why"};
    {
      RawHttpClient client(router_->http_address());
      client.Send(Post(kCompletions, body.dump()));
      workers_->WaitForOpen(4);
      if (stream) {
        EXPECT_THAT(client.HearUntil("data: "), HasSubstr("200 OK"));
      }
    }
    workers_->WaitForOpen(0);
  }
  EXPECT_TRUE(Await([this] { return router_->requests() == 0; }));
}

TEST_F(HttpDoorTest, AClientThatLeavesEndsARequestThatWaits) {
  StartHttp();
  {
    RawHttpClient client(router_->http_address());
    client.Send(Post(kCompletions, kSky.dump()));
    EXPECT_TRUE(Await([this] { return router_->queued() == 1; }));
  }
  EXPECT_TRUE(Await([this] { return router_->requests() == 0; }));
}

TEST_F(HttpDoorTest, APromptThatIsRefusedEndsTheOthers) {
  StartHttp();
  Serve({.stop_after = 1});
  const json body = {{"prompt", {"Hello", ""}}, {"max_tokens", 5}};
  EXPECT_THAT(Refused(Post(kCompletions, body.dump()), 400, "prompt"), HasSubstr("empty"));
  workers_->WaitForOpen(0);
  EXPECT_TRUE(Await([this] { return router_->requests() == 0; }));
}

// The decode worker says that the answer ends where it does not, and each attempt ends like that.
TEST_F(HttpDoorTest, AnErrorBehindTheHeadIsAnEvent) {
  StartHttp();
  Serve({.lies_after = 2});
  json body = kSky;
  body["stream"] = true;
  const auto answer = Ask(Post(kCompletions, body.dump()));
  EXPECT_EQ(answer.status, 200);
  const std::vector<json> events = Events(answer.body);
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(events.back().contains("error")) << events.back();
}

TEST_F(HttpDoorTest, TheClientsTimeOutIsTheDeadline) {
  StartHttp();
  Serve({.stop_after = 1});
  const auto answer = Ask(Post(kCompletions, kSky.dump(), "x-stainless-read-timeout: 0.2\r\n"));
  EXPECT_EQ(answer.status, 504) << answer.body;
  EXPECT_THAT(answer.head, HasSubstr("x-should-retry: false"));
  workers_->WaitForOpen(0);
}

TEST_F(HttpDoorTest, RequestIdsAndIgnoredFieldsComeBack) {
  StartHttp();
  Serve();
  json body = kSky;
  body["max_tokens"] = 1;
  body["colour\r\nX: y"] = 1;
  const auto answer = Ask(Post(kCompletions, body.dump(), "X-Request-Id: mine\r\n"));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.head,
              AllOf(HasSubstr("X-Request-Id: mine\r\n"),
                    HasSubstr("x-baton-ignored-fields: colour"), Not(HasSubstr("\nX: y"))));
  EXPECT_EQ(json::parse(answer.body)["id"], "cmpl-mine");
  const auto replaced = Ask(Post(kCompletions, body.dump(),
                                 absl::StrCat("X-Request-Id: ", std::string(129, 'i'), "\r\n")));
  EXPECT_THAT(replaced.head, AllOf(HasSubstr("X-Request-Id: r"), Not(HasSubstr("iiii"))));
}

TEST_F(HttpDoorTest, UnknownFieldsAreRefusedWhereThatIsAskedFor) {
  RouterServer::Options options;
  options.http.refuse_unknown_fields = true;
  StartHttp(std::move(options));
  Refused(Post(kCompletions, R"({"prompt":"a","colour":1})"), 400, "colour");
}

TEST_F(HttpDoorTest, BothDoorsNeedAKey) {
  ScratchFolder folder;
  std::ofstream(folder.File("keys")) << "sk-right\n";
  RouterServer::Options options;
  options.keys = *ApiKeys::Load(folder.File("keys"), "BATON_NO_SUCH_VARIABLE");
  StartHttp(std::move(options));
  StartWorkers();
  ASSERT_TRUE(Await([this] { return HttpDoorTest::Ask(Get("/health")).status == 200; }))
      << "needs no key";
  Refused(Post(kCompletions, kSky.dump()), 401, "", "invalid_api_key");
  EXPECT_THAT(Refused(Get("/v1/models", "Authorization: Bearer sk-wrong\r\n"), 401),
              Not(HasSubstr("sk-wrong")));
  AskJson(kSky, "Authorization: Bearer sk-right\r\n");

  EXPECT_EQ(Generate(RouterServerFixture::Ask("a", 1)).status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  v1::ListModelsRequest request;
  v1::ListModelsResponse response;
  grpc::ClientContext without, with;
  EXPECT_EQ(stub_->ListModels(&without, request, &response).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  with.AddMetadata("authorization", "Bearer sk-right");
  EXPECT_TRUE(stub_->ListModels(&with, request, &response).ok());
}

TEST_F(HttpDoorTest, WholeAnswersHaveABudget) {
  RouterServer::Options options;
  options.max_open_bytes = 1 << 16;
  StartHttp(std::move(options));
  Serve();
  const json body = {{"prompt", "Hello"}, {"n", 64}, {"max_tokens", 4000}};
  const auto answer = Ask(Post(kCompletions, body.dump()));
  EXPECT_EQ(answer.status, 429) << answer.body.substr(0, 1000);
  EXPECT_THAT(answer.head, HasSubstr("Retry-After: "));
  EXPECT_THAT(answer.body, HasSubstr("ask for a stream"));
  EXPECT_TRUE(Await([this] { return router_->requests() == 0; }));
  AskJson(kSky);
}

TEST_F(HttpDoorTest, PagesOfOtherOriginsMayReadAnswersWhereThatIsAllowed) {
  RouterServer::Options options;
  options.http.allow_origin = "https://chat.example.com";
  StartHttp(std::move(options));
  const auto answer = Ask("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(answer.status, 204);
  EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Headers: "));
  EXPECT_THAT(Ask(Get("/v1/models")).head,
              HasSubstr("Access-Control-Allow-Origin: https://chat.example.com\r\n"));
}

TEST_F(HttpDoorTest, RefusalsOfTheServerItselfHaveTheirTypeAndAnId) {
  RouterServer::Options options;
  options.connections.connections = 4;
  StartHttp(std::move(options));
  const auto malformed = Ask("nonsense\r\n\r\n");
  EXPECT_EQ(malformed.status, 400);
  EXPECT_THAT(malformed.head, HasSubstr("X-Request-Id: "));
  EXPECT_EQ(json::parse(malformed.body)["error"]["type"], "invalid_request_error");

  std::vector<std::unique_ptr<RawHttpClient>> clients;
  RawHttpClient::Answer answer;
  do {
    ASSERT_LE(clients.size(), 4u);
    clients.push_back(std::make_unique<RawHttpClient>(router_->http_address()));
    clients.back()->Send(Get("/ping"));
    answer = clients.back()->HearAnswer();
  } while (answer.status == 200);
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.head, AllOf(HasSubstr("X-Request-Id: "), HasSubstr("Retry-After: 1\r\n")));
  const json error = json::parse(answer.body)["error"];
  EXPECT_EQ(error["type"], "server_error");
  EXPECT_EQ(error["code"], "unavailable");
}

TEST_F(HttpDoorTest, ShutdownLetsAnswersFinish) {
  StartHttp();
  Serve();
  const std::string address = router_->http_address();
  RawHttpClient idle(address), client(address);
  client.Send(Post(kCompletions, kSky.dump()));
  EXPECT_TRUE(Await([this] { return router_->counters().arrived == 1; }));
  router_->Shutdown(absl::Seconds(30));
  EXPECT_EQ(client.HearAnswer().status, 200);
  EXPECT_EQ(idle.HearAll(), "");
}

}  // namespace
}  // namespace baton
