#include "router/http/completion_call.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/inbox.h"
#include "router/http/http_door.h"
#include "router/http/http_server_fixture.h"

namespace baton {
namespace {

using nlohmann::json;

// A core that answers each request with the numbers of its tokens, on a thread of its own and a few
// tokens at a time, as the client takes them. A prompt that contains the token 7 fails in the
// middle of its answer. It fails the test if the door breaks the rules of core_events.h.
class CountingCore {
 public:
  CountingCore() : thread_([this] { Run(); }) {}
  ~CountingCore() {
    stop_ = true;
    thread_.join();
    EXPECT_TRUE(requests_.empty()) << requests_.size() << " calls were never closed";
  }
  Door::Core way() {
    return {.room = [](size_t, size_t) { return absl::OkStatus(); },
            .submit =
                [this](CoreEvent event) {
                  inbox_.PushAlways(std::move(event));
                  return true;
                },
            .tell = [this](CoreEvent event) { inbox_.PushAlways(std::move(event)); },
            .refused = [this](const Refusal&) { ++refused; }};
  }
  void Use(Door* door) { door_ = door; }

  std::atomic<int> refused = 0, cancelled = 0, finished = 0;

 private:
  struct Request {
    CheckedRequest checked;
    int sent = 0;
    bool ended = false;
    bool writable = true;
  };
  void Run() {
    while (!stop_ || !requests_.empty()) {
      std::vector<CoreEvent> events = inbox_.TakeAll();
      for (CoreEvent& event : events) Handle(std::move(event));
      for (auto& [key, request] : requests_) Go(key, request);
      if (events.empty()) std::this_thread::yield();
    }
  }
  void Handle(CoreEvent event) {
    if (auto* arrived = std::get_if<ClientArrived>(&event)) {
      requests_[arrived->request].checked = std::move(arrived->checked);
      if (const auto call = door_->Find(arrived->request)) {
        call->Send(AnswerAccepted{"r", "m", 1});
        requests_[arrived->request].writable = false;
      }
    } else if (auto* writable = std::get_if<ClientWritable>(&event)) {
      if (const auto found = requests_.find(writable->request); found != requests_.end()) {
        found->second.writable = true;
      }
    } else if (auto* cancel = std::get_if<ClientCancelled>(&event)) {
      const auto found = requests_.find(cancel->request);
      if (found == requests_.end() || std::exchange(found->second.ended, true)) return;
      ++cancelled;
      if (const auto call = door_->Find(cancel->request)) {
        call->End(absl::CancelledError("cancelled"));
      }
    } else if (auto* gone = std::get_if<ClientGone>(&event)) {
      const auto found = requests_.find(gone->request);
      if (found == requests_.end()) return;  // It never reached the core.
      EXPECT_TRUE(found->second.ended) << "a call left before its end";
      requests_.erase(found);
    }
  }
  void Go(RequestKey key, Request& request) {
    if (request.ended || !request.writable) return;
    const auto call = door_->Find(key);
    ASSERT_NE(call, nullptr);
    const int max = request.checked.sampling.max_tokens;
    if (request.sent < max) {
      AnswerDelta delta;
      for (int i = 0; i < 3 && request.sent < max; ++i, ++request.sent) {
        v1::Token token;
        token.set_token_id(request.sent);
        token.set_position(static_cast<uint32_t>(request.checked.prompt.size()) + request.sent);
        delta.tokens.push_back(token);
        absl::StrAppend(&delta.text, request.sent, " ");
        delta.text_ends.push_back(delta.text.size());
      }
      request.writable = false;
      call->Send(std::move(delta));
      const std::vector<TokenId>& prompt = request.checked.prompt;
      if (request.sent > max / 2 && std::find(prompt.begin(), prompt.end(), 7) != prompt.end()) {
        request.ended = true;
        call->End(absl::InternalError("seven"));
      }
      return;
    }
    const TokenUsage usage = {static_cast<uint32_t>(request.checked.prompt.size()), 0,
                              static_cast<uint32_t>(max)};
    call->Send(AnswerFinished{.reason = v1::FINISH_REASON_LENGTH});
    call->Send(AnswerSummary{.usage = usage, .total = usage});
    request.ended = true;
    ++finished;
    call->End(absl::OkStatus());
  }

  Door* door_ = nullptr;
  Inbox<CoreEvent> inbox_{1 << 14};
  std::map<RequestKey, Request> requests_;  // The core's thread alone.
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

std::string Numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, i, " ");
  return text;
}

// Clients that read, that leave at once, and that leave in the middle, of answers that come as a
// stream and as a whole, for one prompt and for several, some of which fail.
TEST(CompletionCallTest, EveryCallIsClosedHoweverItEnds) {
  const auto tokenizer =
      Tokenizer::FromFile(BATON_SOURCE_DIR "/common/model/demo/tokenizer.json").value();
  const ServedModel model = {"demo", *ReadModelConfig(BATON_SOURCE_DIR "/common/model/demo"),
                             tokenizer.get()};
  ConnectionCounts counts(100, 0);
  std::optional<CountingCore> core(std::in_place);
  Door door({.model = model}, core->way());
  core->Use(&door);
  {
    auto http = HttpDoor::Listen(&door, {.listen = "127.0.0.1:0",
                                         .counts = &counts,
                                         .serves = [] { return true; },
                                         .alive = [] { return true; }})
                    .value();
    http->Serve();
    constexpr int kClients = 4, kRequests = 50;
    std::vector<std::thread> clients;
    for (int client = 0; client < kClients; ++client) {
      clients.emplace_back([&http, client] {
        std::mt19937 random(static_cast<uint32_t>(client));
        const auto below = [&random](int n) { return static_cast<int>(random() % n); };
        for (int i = 0; i < kRequests; ++i) {
          json prompts = json::array();
          const int count = 1 + below(3);
          for (int p = 0; p < count; ++p) {
            prompts.push_back({1 + below(5), below(8) == 0 ? 7 : 5});
          }
          const bool fails = prompts.dump().find('7') != std::string::npos;
          const int tokens = 1 + below(40);
          const bool stream = below(2) == 0;
          const json body = {{"prompt", prompts}, {"max_tokens", tokens}, {"stream", stream}};
          const std::string text = body.dump();
          RawHttpClient connection(http->address());
          connection.Send(absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
                                       "Content-Length: ", text.size(), "\r\n\r\n", text));
          const int leaves = below(4);
          if (leaves == 0) continue;
          if (leaves == 1) {
            connection.HearSome();
            if (below(2) == 0) connection.Reset();
            continue;
          }
          const auto answer = connection.HearAnswer();
          if (fails) {
            EXPECT_TRUE(answer.status == 500 ||
                        (stream && answer.body.find("seven") != std::string::npos))
                << answer.status << answer.body;
            continue;
          }
          EXPECT_EQ(answer.status, 200) << answer.body;
          if (stream) {
            EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
          } else {
            const json whole = json::parse(answer.body);
            for (const json& choice : whole["choices"]) {
              EXPECT_EQ(choice["text"], Numbers(tokens));
            }
          }
        }
      });
    }
    for (std::thread& client : clients) client.join();
    http->Shutdown(absl::Seconds(30));
    // Cancelled calls end once the core hears of it.
    while (door.calls() > 0) std::this_thread::yield();
  }
  EXPECT_GT(core->finished, 0);
  EXPECT_GT(core->cancelled, 0);
  core.reset();
}

}  // namespace
}  // namespace baton
