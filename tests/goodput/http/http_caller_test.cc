#include "tests/goodput/http/http_caller.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "tests/goodput/testing/openai_server.h"

namespace baton {
namespace {

using testing::HasSubstr;

bool Never() { return false; }

std::unique_ptr<HttpCaller> CallerOf(const OpenAiServer& server) {
  const size_t colon = server.address().rfind(':');
  return HttpCaller::Start(server.address().substr(0, colon), server.address().substr(colon + 1),
                           server.address())
      .value();
}

HttpCall Completion() {
  return {.method = "POST",
          .target = "/v1/completions",
          .fields = {{"Content-Type", "application/json"}},
          .body = R"({"prompt": [1, 2], "max_tokens": 3, "stream": true, "seed": 1})"};
}

// Receives a stream, and lets the test wait for its parts.
class TestReceiver final : public HttpReceiver {
 public:
  void OnSend(Time now) override { sent = now; }
  void OnHead(int status) override { head = status; }
  bool OnBody(absl::string_view bytes, Time read) override {
    EXPECT_GE(read, last);
    last = read;
    MutexLock lock(&mutex_);
    body.append(bytes.data(), bytes.size());
    changed_.SignalAll();
    return !refuses;
  }
  void OnEnd(absl::Status status) override {
    MutexLock lock(&mutex_);
    end = std::move(status);
    ended_ = true;
    changed_.SignalAll();
  }
  void WaitForBody(const std::string& part) {
    MutexLock lock(&mutex_);
    while (body.find(part) == std::string::npos && !ended_) changed_.Wait(&mutex_);
  }
  void WaitForEnd() {
    MutexLock lock(&mutex_);
    while (!ended_) changed_.Wait(&mutex_);
  }

  Time sent, last;
  int head = 0;
  std::string body;
  absl::Status end;
  bool refuses = false;

 private:
  Mutex mutex_;
  CondVar changed_;
  bool ended_ = false;
};

HttpReceiver::Time InAMinute() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(1);
}

TEST(HttpCallerTest, AnswersOneAfterTheOtherUseOneConnection) {
  OpenAiServer server;
  const auto caller = CallerOf(server);
  for (int i = 0; i < 20; ++i) {
    const CallerAnswer reply =
        caller->Ask({.method = "GET", .target = "/v1/models"}, absl::Minutes(1), Never).value();
    EXPECT_EQ(reply.status, 200);
    EXPECT_THAT(reply.body, HasSubstr("served"));
    const CallerAnswer missing =
        caller->Ask({.method = "GET", .target = "/none"}, absl::Minutes(1), Never).value();
    EXPECT_EQ(missing.status, 404);
    const CallerAnswer stream = caller->Ask(Completion(), absl::Minutes(1), Never).value();
    EXPECT_THAT(stream.body, HasSubstr("data: [DONE]\n\n"));
  }
  // A connection is only given up if it was idle for seconds, on a machine that is very busy.
  EXPECT_LE(caller->connections_opened(), 60u);
  EXPECT_EQ(caller->connections_opened(), static_cast<uint64_t>(server.connections()));
}

TEST(HttpCallerTest, OpenAnswersHaveConnectionsOfTheirOwn) {
  OpenAiServer server;
  server.on_stream = [&](const OpenAiServer::Request& request, OpenAiServer::Writer* writer) {
    writer->Begin();
    server.WriteTokens(request, writer, 0, 1);
    writer->Wait(absl::InfiniteDuration());
  };
  const auto caller = CallerOf(server);
  std::vector<std::unique_ptr<TestReceiver>> receivers;
  std::vector<uint64_t> ids;
  for (int i = 0; i < 50; ++i) {
    receivers.push_back(std::make_unique<TestReceiver>());
    ids.push_back(caller->NewId());
    caller->Send(ids.back(), Completion(), receivers.back().get(), InAMinute());
  }
  for (const auto& receiver : receivers) receiver->WaitForBody("\n\n");
  EXPECT_EQ(caller->connections_opened(), 50u);
  for (const uint64_t id : ids) caller->Cancel(id);
  for (const auto& receiver : receivers) {
    receiver->WaitForEnd();
    EXPECT_EQ(receiver->head, 200);
    EXPECT_EQ(receiver->end.code(), absl::StatusCode::kCancelled);
    EXPECT_LE(receiver->sent, receiver->last);
  }
  caller->Cancel(ids[0]);  // Nothing happens, because the request has ended.
}

TEST(HttpCallerTest, EveryWayToEndHasItsStatus) {
  OpenAiServer server;
  using How = std::function<void(const OpenAiServer::Request&, OpenAiServer::Writer*)>;
  Mutex mutex;
  How current;
  server.on_stream = [&](const auto& request, OpenAiServer::Writer* writer) {
    How how;
    {
      MutexLock lock(&mutex);
      how = current;
    }
    how(request, writer);
  };
  const auto answer = [&](How how) {
    MutexLock lock(&mutex);
    current = std::move(how);
  };
  const auto caller = CallerOf(server);
  const auto end = [&](bool refuses = false) {
    TestReceiver receiver;
    receiver.refuses = refuses;
    caller->Send(caller->NewId(), Completion(), &receiver, InAMinute());
    receiver.WaitForEnd();
    return std::move(receiver.end);
  };
  answer([&](const auto& request, auto* writer) { server.Answer(request, writer, 2); });
  EXPECT_EQ(end(), absl::OkStatus());
  EXPECT_EQ(end(/*refuses=*/true).code(), absl::StatusCode::kCancelled);
  answer([&](const auto&, auto* writer) { writer->Close(); });
  EXPECT_EQ(end().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(end().message()), HasSubstr("the connection broke before an answer"));
  answer([&](const auto& request, auto* writer) {
    writer->Begin();
    server.WriteTokens(request, writer, 0, 1);
    writer->Close();
  });
  EXPECT_THAT(std::string(end().message()), HasSubstr("before the answer was complete"));
  answer([&](const auto&, auto* writer) { writer->Raw("SSH-2.0-x\r\n\r\n"); });
  EXPECT_THAT(std::string(end().message()), HasSubstr("the answer is not HTTP"));
  answer([&](const auto&, auto* writer) {  // A body without a length ends with its connection.
    writer->Raw("HTTP/1.1 200 OK\r\n\r\nall of it");
    writer->Close();
  });
  EXPECT_EQ(end(), absl::OkStatus());
  answer([&](const auto& request, auto* writer) {  // An interim answer comes before the real one.
    writer->Raw("HTTP/1.1 102 Wait\r\n\r\n");
    server.Answer(request, writer, 2);
  });
  EXPECT_EQ(end(), absl::OkStatus());
}

TEST(HttpCallerTest, TheDeadlineEndsARequest) {
  OpenAiServer server;
  server.on_stream = [&](const auto&, OpenAiServer::Writer* writer) {
    writer->Wait(absl::InfiniteDuration());
  };
  const auto caller = CallerOf(server);
  EXPECT_EQ(caller->Ask(Completion(), absl::Milliseconds(20), Never).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(caller->Ask(Completion(), absl::Minutes(10), [] { return true; }).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(HttpCallerTest, AServerThatIsNotThereIsUnavailable) {
  std::unique_ptr<HttpCaller> caller;
  {
    OpenAiServer server;
    caller = CallerOf(server);
  }
  const absl::Status status =
      caller->Ask({.method = "GET", .target = "/"}, absl::Minutes(1), Never).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("can't connect: Connection refused"));
}

TEST(HttpCallerTest, AConnectionThatTheServerWillCloseIsNotUsedAgain) {
  OpenAiServer server;
  const auto caller = CallerOf(server);
  server.on_stream = [](const auto&, OpenAiServer::Writer* writer) {
    writer->Raw("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    writer->Close();
  };
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(caller->Ask(Completion(), absl::Minutes(1), Never).value().body, "ok");
  }
  EXPECT_EQ(caller->connections_opened(), 5u);
}

}  // namespace
}  // namespace baton
