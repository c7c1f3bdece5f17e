#include "router/http/http_server.h"

#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "router/http/http_answer.h"
#include "router/http/http_connection.h"
#include "router/http/http_listener.h"

namespace baton {

namespace asio = boost::asio;
using asio::ip::tcp;

struct HttpServer::Parts {
  explicit Parts(Options options)
      : share(std::move(options)), listener(&share.io, share.options.counts) {}

  // These run on the I/O thread.
  bool Take(int fd, const std::string& address, int port);
  void TooMany(int fd);
  void BeginEnd();
  void CloseAll();
  // Notes whether a request is coming or being answered.
  void NoteBusy();
  std::vector<std::shared_ptr<HttpConnection>> Open() const;

  HttpConnectionShare share;
  HttpListener listener;
  asio::executor_work_guard<asio::io_context::executor_type> work{share.io.get_executor()};
  std::thread thread;
  bool is_shut_down = false;  // Thread of the caller.

  Mutex mutex;
  CondVar noted;
  bool busy ABSL_GUARDED_BY(mutex) = true;
};

bool HttpServer::Parts::Take(int fd, const std::string& address, int port) {
  tcp::socket socket(share.io);
  boost::system::error_code error;
  // No function that is used here depends on whether it is IPv4 or IPv6.
  socket.assign(tcp::v4(), fd, error);
  if (error) {
    close(fd);
    return false;
  }
  socket.non_blocking(true, error);
  std::make_shared<HttpConnection>(&share, std::move(socket), address, port)->Start();
  return true;
}

void HttpServer::Parts::TooMany(int fd) {
  HttpAnswer answer(share.options.error(503, "too many connections are open; come again later"),
                    nullptr, {});
  answer.MakePiece(true, SystemNow());
  std::string bytes;
  for (const absl::string_view part : answer.Pending()) bytes.append(part.data(), part.size());
  // Unread bytes would turn the end of the connection into a reset, by which the client may lose
  // the answer.
  recv(fd, share.scratch.data(), share.scratch.size(), MSG_DONTWAIT);
  send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
}

std::vector<std::shared_ptr<HttpConnection>> HttpServer::Parts::Open() const {
  std::vector<std::shared_ptr<HttpConnection>> open;
  for (HttpConnection* const connection : share.connections) {
    open.push_back(connection->shared_from_this());
  }
  return open;
}

void HttpServer::Parts::NoteBusy() {
  bool any = false;
  for (const HttpConnection* const connection : share.connections) any |= connection->busy();
  MutexLock lock(&mutex);
  busy = any;
  noted.SignalAll();
}

void HttpServer::Parts::BeginEnd() {
  listener.Stop();
  share.ending = true;
  for (const auto& connection : Open()) connection->CloseIfIdle();
  share.changed = [this] { NoteBusy(); };
  NoteBusy();
}

void HttpServer::Parts::CloseAll() {
  share.changed = nullptr;
  for (const auto& connection : Open()) connection->Close(connection->busy());
  work.reset();
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(Options options) {
  BATON_CHECK(options.counts != nullptr && options.check && options.handle && options.error);
  auto parts = std::make_unique<Parts>(std::move(options));
  RETURN_IF_ERROR(parts->listener.Listen(parts->share.options.listen));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(parts)));
}

HttpServer::HttpServer(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)),
      address_(WithPort(parts_->share.options.listen, parts_->listener.port())) {}

HttpServer::~HttpServer() {
  Shutdown(absl::ZeroDuration());
  parts_->share.inbox->Close();
}

void HttpServer::Serve() {
  Parts* const p = parts_.get();
  p->listener.Start(
      [p](int fd, const std::string& address, int port) { return p->Take(fd, address, port); },
      [p](int fd) { p->TooMany(fd); });
  p->thread = std::thread([p] {
    pthread_setname_np(pthread_self(), "http");
    p->share.io.run();
  });
}

void HttpServer::Shutdown(absl::Duration grace) {
  Parts* const p = parts_.get();
  if (std::exchange(p->is_shut_down, true) || !p->thread.joinable()) return;
  asio::post(p->share.io, [p] { p->BeginEnd(); });
  const absl::Time until = SteadyNow() + grace;
  {
    MutexLock lock(&p->mutex);
    while (p->busy) {
      const absl::Duration left = until - SteadyNow();
      if (left <= absl::ZeroDuration()) break;
      p->noted.WaitFor(&p->mutex, left);
    }
  }
  asio::post(p->share.io, [p] { p->CloseAll(); });
  p->thread.join();  // It ends when no operation is left.
}

int64_t HttpServer::connections() const { return parts_->share.open; }
int64_t HttpServer::exchanges() const { return parts_->share.exchanges; }

}  // namespace baton
