#include "tests/goodput/http/http_caller.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>

#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <pthread.h>
#include <sys/resource.h>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/mutex.h"

namespace baton {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using SteadyClock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 16 << 10;
constexpr uint32_t kMaxHeadBytes = 64 << 10;
constexpr uint64_t kMaxBodyBytes = uint64_t{1} << 30;  // Max length of an answer's body.

class CallerConnection;
using ConnectionPtr = std::shared_ptr<CallerConnection>;

// Lets this process open as many files as the system allows, because every request has a
// connection.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string Request(const HttpCall& call, const std::string& authority) {
  std::string text =
      absl::StrCat(call.method, " ", call.target, " HTTP/1.1\r\nHost: ", authority, "\r\n");
  for (const auto& [name, value] : call.fields) absl::StrAppend(&text, name, ": ", value, "\r\n");
  if (call.method != "GET") absl::StrAppend(&text, "Content-Length: ", call.body.size(), "\r\n");
  absl::StrAppend(&text, "\r\n", call.body);
  return text;
}

}  // namespace

struct HttpCaller::Io {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{context.get_executor()};
  std::vector<tcp::endpoint> endpoints;
  std::string authority;
  std::atomic<uint64_t>* opened = nullptr;
  // The members below belong to the I/O thread.
  absl::flat_hash_map<uint64_t, ConnectionPtr> open;  // Connections of open requests.
  // Connections without a request. The last one was used last.
  std::vector<ConnectionPtr> idle;
  std::thread thread;
};

namespace {

// A connection and the request that it carries, if any. I/O thread only. One read is pending from
// the time at which the connection is open until it is closed, so that a server's closing of an
// idle connection is seen at once.
class CallerConnection : public std::enable_shared_from_this<CallerConnection> {
 public:
  CallerConnection(asio::io_context* context, const std::vector<tcp::endpoint>* endpoints,
                   std::function<void(const ConnectionPtr&, uint64_t id, bool reusable)> on_free,
                   std::function<void(const ConnectionPtr&)> on_closed)
      : socket_(*context),
        timer_(*context),
        endpoints_(endpoints),
        on_free_(std::move(on_free)),
        on_closed_(std::move(on_closed)) {}

  // Begins a request. The connection must have none.
  void Begin(uint64_t id, std::string request, HttpReceiver* receiver, SteadyClock::time_point now,
             SteadyClock::time_point deadline) {
    id_ = id;
    receiver_ = receiver;
    request_ = std::move(request);
    written_ = false;
    answered_ = false;
    NewParser();
    receiver_->OnSend(now);
    timer_.expires_at(deadline);
    timer_.async_wait([self = shared_from_this(), id](beast::error_code error) {
      if (error || self->id_ != id || self->receiver_ == nullptr) return;
      self->Fail(absl::DeadlineExceededError("no complete answer in time"));
    });
    if (connected_) {
      Write();
    } else {
      Connect();
    }
  }

  // Ends the request, and the connection.
  void Fail(absl::Status status) {
    Close();
    End(std::move(status), /*reusable=*/false);
  }

  void Close() {
    closed_ = true;
    beast::error_code ignored;
    socket_.close(ignored);
  }

  bool usable(SteadyClock::time_point now) const {
    return !closed_ && now - freed_ < HttpCaller::kMaxIdle;
  }

 private:
  void NewParser() {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(kMaxHeadBytes);
    parser_->body_limit(kMaxBodyBytes);
    has_head_ = false;
  }

  void Connect() {
    asio::async_connect(
        socket_, *endpoints_,
        [self = shared_from_this()](beast::error_code error, const tcp::endpoint&) {
          if (self->closed_) return;
          if (error) {
            self->Fail(absl::UnavailableError(absl::StrCat("can't connect: ", error.message())));
            return;
          }
          beast::error_code ignored;
          self->socket_.set_option(tcp::no_delay(true), ignored);
          self->connected_ = true;
          self->Write();
          self->Read();
        });
  }

  void Write() {
    asio::async_write(socket_, asio::buffer(request_),
                      [self = shared_from_this(), id = id_](beast::error_code error, size_t) {
                        // An error is left to the read: the server may have answered before it
                        // closed the connection.
                        if (!error && self->id_ == id) self->written_ = true;
                      });
  }

  void Read() {
    socket_.async_read_some(buffer_.prepare(kReadBytes),
                            [self = shared_from_this()](beast::error_code error, size_t bytes) {
                              self->OnRead(error, bytes);
                            });
  }

  void OnRead(beast::error_code error, size_t bytes) {
    const auto now = SteadyClock::now();
    if (closed_) return;
    buffer_.commit(bytes);
    if (receiver_ ==
        nullptr) {  // The server closes an idle connection, or sends without a request.
      Close();
      on_closed_(shared_from_this());
      return;
    }
    answered_ = answered_ || bytes > 0;
    if (!error) {
      if (Parse(now)) Read();
      return;
    }
    if (error == asio::error::eof && has_head_) {
      // Without a length, a body ends with its connection.
      beast::error_code unfinished;
      parser_->put_eof(unfinished);
      if (!unfinished && parser_->is_done()) {
        Close();
        End(absl::OkStatus(), /*reusable=*/false);
        return;
      }
    }
    const std::string why = error == asio::error::eof ? "the server closed it" : error.message();
    Fail(absl::UnavailableError(absl::StrCat(
        "the connection broke ",
        answered_ ? "before the answer was complete" : "before an answer came", ": ", why)));
  }

  // Takes what is in the buffer. Returns false if the connection must not be read any more.
  bool Parse(SteadyClock::time_point now) {
    while (receiver_ != nullptr && buffer_.size() > 0) {
      beast::error_code error;
      const size_t used = parser_->put(buffer_.data(), error);
      buffer_.consume(used);
      const bool needs_more = error == http::error::need_more;
      if (error && !needs_more) {
        Fail(absl::UnavailableError(absl::StrCat("the answer is not HTTP: ", error.message())));
        return false;
      }
      if (!Deliver(now)) return false;
      if (receiver_ == nullptr) break;
      if (needs_more || used == 0) return true;
    }
    // Bytes that belong to no request make the connection useless.
    if (receiver_ != nullptr || buffer_.size() == 0) return !closed_;
    Close();
    on_closed_(shared_from_this());
    return false;
  }

  // Gives the receiver what has been parsed. Returns false if the connection was closed.
  bool Deliver(SteadyClock::time_point now) {
    if (!parser_->is_header_done()) return true;
    const int status = static_cast<int>(parser_->get().result_int());
    if (status < 200) {  // An interim answer: the real one follows.
      if (parser_->is_done()) NewParser();
      return true;
    }
    if (!has_head_) {
      has_head_ = true;
      receiver_->OnHead(status);
    }
    std::string& body = parser_->get().body();
    if (!body.empty()) {
      const bool goes_on = receiver_->OnBody({body.data(), body.size()}, now);
      body.clear();
      if (!goes_on) {
        Fail(absl::CancelledError("broken off by the receiver"));
        return false;
      }
    }
    if (!parser_->is_done()) return true;
    const bool reusable = parser_->get().keep_alive() && written_ && buffer_.size() == 0;
    if (!reusable) Close();
    End(absl::OkStatus(), reusable);
    return reusable;
  }

  void End(absl::Status status, bool reusable) {
    timer_.cancel();
    HttpReceiver* const receiver = receiver_;
    receiver_ = nullptr;
    freed_ = SteadyClock::now();
    request_.clear();
    on_free_(shared_from_this(), id_, reusable);
    receiver->OnEnd(std::move(status));
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  const std::vector<tcp::endpoint>* const endpoints_;
  const std::function<void(const ConnectionPtr&, uint64_t id, bool reusable)> on_free_;
  const std::function<void(const ConnectionPtr&)> on_closed_;
  bool connected_ = false;
  bool closed_ = false;
  SteadyClock::time_point freed_;  // End of the last request.
  beast::flat_buffer buffer_;

  // The request.
  uint64_t id_ = 0;
  HttpReceiver* receiver_ = nullptr;  // Null: the connection is idle.
  std::string request_;
  bool written_ = false;   // The whole request has been written.
  bool answered_ = false;  // A byte of the answer has come.
  bool has_head_ = false;
  std::optional<http::response_parser<http::string_body>> parser_;
};

// Collects a whole answer for a thread that waits.
class WaitingReceiver final : public HttpReceiver {
 public:
  void OnSend(Time) override {}
  void OnHead(int status) override { reply_.status = status; }
  bool OnBody(absl::string_view bytes, Time) override {
    too_long_ = reply_.body.size() + bytes.size() > HttpCaller::kMaxReplyBytes;
    if (!too_long_) reply_.body.append(bytes.data(), bytes.size());
    return !too_long_;
  }
  void OnEnd(absl::Status status) override {
    MutexLock lock(&mutex_);
    status_ = too_long_ ? absl::UnavailableError(absl::StrCat("the answer has more than ",
                                                              HttpCaller::kMaxReplyBytes, " bytes"))
                        : std::move(status);
    ended_ = true;
    changed_.SignalAll();
  }

  // Waits for at most `wait`. Returns true if the answer has ended.
  bool Wait(absl::Duration wait) {
    MutexLock lock(&mutex_);
    if (!ended_) changed_.WaitFor(&mutex_, wait);
    return ended_;
  }
  absl::StatusOr<CallerAnswer> Take() {
    MutexLock lock(&mutex_);
    if (!status_.ok()) return std::move(status_);
    return std::move(reply_);
  }

 private:
  CallerAnswer reply_;  // Belongs to the I/O thread until the end.
  bool too_long_ = false;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpCaller>> HttpCaller::Start(const std::string& host,
                                                              const std::string& port,
                                                              const std::string& authority) {
  RaiseFileLimit();
  auto io = std::make_unique<Io>();
  beast::error_code error;
  tcp::resolver resolver(io->context);
  for (const auto& found : resolver.resolve(host, port, error)) {
    io->endpoints.push_back(found.endpoint());
  }
  if (error || io->endpoints.empty()) {
    return absl::UnavailableError(absl::StrCat("no address of ", host, ": ", error.message()));
  }
  io->authority = authority;
  return std::unique_ptr<HttpCaller>(new HttpCaller(std::move(io)));
}

HttpCaller::HttpCaller(std::unique_ptr<Io> io) : io_(std::move(io)) {
  io_->opened = &opened_;
  io_->thread = std::thread([all = io_.get()] {
    pthread_setname_np(pthread_self(), "http caller");
    all->context.run();
  });
}

HttpCaller::~HttpCaller() {
  io_->context.stop();
  io_->thread.join();
  BATON_CHECK(io_->open.empty()) << "requests outlive their HTTP client";
  io_->idle.clear();
}

void HttpCaller::Send(uint64_t id, HttpCall call, HttpReceiver* receiver,
                      HttpReceiver::Time deadline) {
  std::string request = Request(call, io_->authority);
  asio::post(
      io_->context, [io = io_.get(), id, text = std::move(request), receiver, deadline]() mutable {
        const auto now = SteadyClock::now();
        ConnectionPtr connection;
        while (!io->idle.empty() && connection == nullptr) {
          connection = std::move(io->idle.back());
          io->idle.pop_back();
          if (connection->usable(now)) continue;
          connection->Close();
          connection = nullptr;
        }
        if (connection == nullptr) {
          ++*io->opened;
          connection = std::make_shared<CallerConnection>(
              &io->context, &io->endpoints,
              [io](const ConnectionPtr& one, uint64_t ended, bool reusable) {
                io->open.erase(ended);
                if (reusable) io->idle.push_back(one);
              },
              [io](const ConnectionPtr& one) {
                io->idle.erase(std::remove(io->idle.begin(), io->idle.end(), one), io->idle.end());
              });
        }
        io->open.emplace(id, connection);
        connection->Begin(id, std::move(text), receiver, now, deadline);
      });
}

void HttpCaller::Cancel(uint64_t id) {
  asio::post(io_->context, [io = io_.get(), id] {
    const auto found = io->open.find(id);
    if (found == io->open.end()) return;
    const ConnectionPtr connection = found->second;
    connection->Fail(absl::CancelledError("cancelled by the client"));
  });
}

absl::StatusOr<CallerAnswer> HttpCaller::Ask(HttpCall call, absl::Duration timeout,
                                             absl::FunctionRef<bool()> stopped) {
  WaitingReceiver receiver;
  const uint64_t id = NewId();
  Send(id, std::move(call), &receiver, SteadyClock::now() + absl::ToChronoNanoseconds(timeout));
  while (!receiver.Wait(absl::Milliseconds(50))) {
    if (stopped()) Cancel(id);
  }
  return receiver.Take();
}

}  // namespace baton
