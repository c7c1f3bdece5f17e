#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/host_port.h"
#include "common/base/mutex.h"
#include "common/base/steady_time.h"
#include "common/rpc/connection_counts.h"
#include "router/http/http_server.h"

namespace baton {

// Ends a test that hangs. No test waits for this long otherwise.
inline constexpr absl::Duration kHttpHang = absl::Seconds(60);

// A client's connection to which a test writes raw bytes.
class RawHttpClient {
 public:
  // A small `receive_bytes` makes a client that soon takes no more.
  explicit RawHttpClient(const std::string& address, int receive_bytes = 0)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    }
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(PortOf(address)));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~RawHttpClient() {
    if (fd_ >= 0) close(fd_);
  }
  RawHttpClient(const RawHttpClient&) = delete;
  RawHttpClient& operator=(const RawHttpClient&) = delete;

  // Sends all bytes. Returns false if the server has ended the connection.
  bool Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Sends what the socket takes now. Returns the number of bytes.
  size_t SendSome(absl::string_view bytes) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent < 0 ? 0 : static_cast<size_t>(sent);
  }
  void ShutDownSending() { shutdown(fd_, SHUT_WR); }
  void Reset() {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(std::exchange(fd_, -1));
  }
  void Close() { close(std::exchange(fd_, -1)); }

  // Waits for bytes. Returns false at the end of the connection.
  bool HearSome() {
    pollfd wait = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(kHttpHang))) <= 0) {
      ADD_FAILURE() << "the server is silent; it has said: " << heard_;
      return false;
    }
    char buffer[64 << 10];
    const ssize_t size = recv(fd_, buffer, sizeof buffer, 0);
    if (size <= 0) {
      was_reset_ = size < 0;
      return false;
    }
    heard_.append(buffer, static_cast<size_t>(size));
    return true;
  }
  // Returns all bytes until the server ends the connection.
  std::string HearAll() {
    while (HearSome()) {
    }
    return std::exchange(heard_, "");
  }
  // Returns all bytes up to the first `end`, which is included.
  std::string HearUntil(absl::string_view end) {
    size_t found;
    while ((found = heard_.find(std::string(end))) == heard_.npos) {
      if (!HearSome()) return absl::StrCat("ENDED: ", std::exchange(heard_, ""));
    }
    const std::string result = heard_.substr(0, found + end.size());
    heard_.erase(0, result.size());
    return result;
  }
  struct Answer {
    int status = 0;
    std::string head, body;
  };
  // Returns one whole answer. Chunks of the body are put together.
  Answer HearAnswer(bool head_only = false) {
    Answer answer;
    answer.head = HearUntil("\r\n\r\n");
    if (!absl::SimpleAtoi(answer.head.substr(0, answer.head.find("\r\n")).substr(9, 3),
                          &answer.status)) {
      ADD_FAILURE() << answer.head;
      return answer;
    }
    if (head_only) return answer;
    if (absl::StrContains(answer.head, "Transfer-Encoding: chunked\r\n")) {
      for (size_t size = 1; size > 0;) {
        const std::string line = HearUntil("\r\n");
        size = std::stoul(line, nullptr, 16);
        answer.body += Hear(size);
        EXPECT_EQ(Hear(2), "\r\n");
      }
    } else if (const size_t at = answer.head.find("Content-Length: "); at != std::string::npos) {
      answer.body = Hear(std::stoul(answer.head.substr(at + 16)));
    }
    return answer;
  }
  std::string Hear(size_t bytes) {
    while (heard_.size() < bytes && HearSome()) {
    }
    const std::string result = heard_.substr(0, bytes);
    heard_.erase(0, bytes);
    return result;
  }
  bool was_reset() const { return was_reset_; }

 private:
  int fd_;
  bool was_reset_ = false;
  std::string heard_;
};

// A stream of which a test gives the parts. Any thread.
class TestHttpStream : public HttpStream {
 public:
  // Call HttpExchange::Wake() afterwards.
  void Give(absl::string_view bytes, bool complete = false) {
    MutexLock lock(&mutex_);
    absl::StrAppend(&left_, bytes);
    complete_ |= complete;
  }
  bool Fill(size_t bytes, std::string* out) override {
    MutexLock lock(&mutex_);
    largest_ = std::max(largest_, bytes);
    out->append(left_, 0, bytes);
    filled_ += std::min(bytes, left_.size());
    left_.erase(0, bytes);
    return !(complete_ && left_.empty());
  }
  void Drained() override {
    MutexLock lock(&mutex_);
    drained_ = filled_;
    changed_.SignalAll();
  }
  size_t largest() {
    MutexLock lock(&mutex_);
    return largest_;
  }
  size_t filled() {
    MutexLock lock(&mutex_);
    return filled_;
  }
  // Waits until so many bytes have left the process.
  void WaitUntilDrained(size_t bytes) {
    MutexLock lock(&mutex_);
    while (drained_ < bytes) ASSERT_TRUE(changed_.WaitFor(&mutex_, kHttpHang)) << drained_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::string left_ ABSL_GUARDED_BY(mutex_);
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  size_t largest_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t filled_ ABSL_GUARDED_BY(mutex_) = 0, drained_ ABSL_GUARDED_BY(mutex_) = 0;
};

// An event that one thread awaits and another one causes.
class HttpTestEvent {
 public:
  void Happen() {
    MutexLock lock(&mutex_);
    ++times_;
    changed_.SignalAll();
  }
  void Wait(int times = 1) {
    MutexLock lock(&mutex_);
    while (times_ < times) ASSERT_TRUE(changed_.WaitFor(&mutex_, kHttpHang)) << times_;
  }
  int times() {
    MutexLock lock(&mutex_);
    return times_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int times_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A server whose exchanges wait for the test. GET /check is answered, and /no is refused, by
// `check`; a request for /echo gets its method, path, query and body.
class HttpServerTest : public testing::Test {
 protected:
  static constexpr char kGetWait[] = "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n";
  static constexpr char kGetCheck[] = "GET /check HTTP/1.1\r\nHost: x\r\n\r\n";

  void Serve(HttpServer::Options options = {}) {
    options.listen = "127.0.0.1:0";
    options.counts = &counts_;
    options.check = [](const HttpHead& head) -> std::optional<HttpResponse> {
      if (head.path == "/check") return HttpResponse{.body = "checked"};
      if (head.path == "/no") return HttpResponse{.status = 404, .body = "no such path"};
      return std::nullopt;
    };
    options.handle = [this](std::shared_ptr<HttpExchange> exchange) {
      const HttpHead& head = exchange->head();
      if (head.path == "/echo") {
        return exchange->Respond({.body = absl::StrCat(head.method, " ", head.path, "?", head.query,
                                                       " ", exchange->body())});
      }
      MutexLock lock(&mutex_);
      exchanges_.push_back(std::move(exchange));
      came_.SignalAll();
    };
    options.error = [](int status, absl::string_view message) {
      return HttpResponse{.status = status,
                          .fields = {{"Content-Type", "text/x-error"}},
                          .body = std::string(message)};
    };
    auto server = HttpServer::Listen(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Serve();
  }
  std::shared_ptr<HttpExchange> NextExchange() {
    MutexLock lock(&mutex_);
    while (exchanges_.empty()) {
      if (!came_.WaitFor(&mutex_, kHttpHang)) ADD_FAILURE() << "no request has come";
    }
    std::shared_ptr<HttpExchange> next = std::move(exchanges_.front());
    exchanges_.pop_front();
    return next;
  }
  static void WaitUntil(const std::function<bool()>& reached) {
    const absl::Time until = SteadyNow() + kHttpHang;
    while (!reached()) {
      ASSERT_LT(SteadyNow(), until);
      poll(nullptr, 0, 1);
    }
  }
  // Sends one request on a connection of its own. Returns all that the server says.
  std::string Ask(absl::string_view request) {
    RawHttpClient client(server_->address());
    EXPECT_TRUE(client.Send(request));
    return client.HearAll();
  }

  ConnectionCounts counts_{10000, 0};
  Mutex mutex_;
  CondVar came_;
  std::deque<std::shared_ptr<HttpExchange>> exchanges_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;
};

}  // namespace baton
