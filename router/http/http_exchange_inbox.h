#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/base/mutex.h"
#include "router/http/http_exchange.h"

namespace baton {

class HttpConnection;
class PendingExchange;

// Carries what handlers say about their exchanges to the I/O thread. Exchanges may outlive the
// server, and they reach it only through this object.
class HttpExchangeInbox : public std::enable_shared_from_this<HttpExchangeInbox> {
 public:
  explicit HttpExchangeInbox(boost::asio::io_context* io) : io_(io) {}
  // Any thread. The I/O thread soon gives the exchange to its connection. Does nothing after
  // Close().
  void Push(std::shared_ptr<PendingExchange> exchange);
  // Call before `io` is destroyed.
  void Close();

 private:
  void Deliver();

  Mutex mutex_;
  boost::asio::io_context* io_ ABSL_GUARDED_BY(mutex_);  // Null after Close().
  std::vector<std::shared_ptr<PendingExchange>> said_ ABSL_GUARDED_BY(mutex_);
};

// The exchange that a handler gets. Collects what the handler says, until the I/O thread takes it.
class PendingExchange : public HttpExchange, public std::enable_shared_from_this<PendingExchange> {
 public:
  PendingExchange(std::shared_ptr<HttpExchangeInbox> inbox, HttpConnection* connection,
                  HttpHead head, std::string body)
      : inbox_(std::move(inbox)), connection_(connection) {
    head_ = std::move(head);
    body_ = std::move(body);
  }

  void Respond(HttpResponse response) override;
  void RespondWith(HttpResponse head, std::shared_ptr<HttpStream> stream) override;
  void Wake() override;
  void WhenGone(std::function<void()> gone) override;
  void Cut() override;

  // The things that the handler has said since the last call of Take().
  struct Said {
    std::optional<HttpResponse> response;
    std::shared_ptr<HttpStream> stream;
    bool woken = false;
    bool cut = false;
  };
  // I/O thread.
  Said Take();
  // I/O thread. The answer is complete, or the client has left, which calls `gone`. Later calls of
  // the handler do nothing.
  enum class End { kComplete, kLeft };
  void EndWith(End end);
  // I/O thread. Null once the exchange has ended.
  HttpConnection* connection() const { return connection_; }
  // I/O thread. Calls a `gone` that came after the client had left.
  void CallLateGone();

 private:
  bool Answer(HttpResponse response, std::shared_ptr<HttpStream> stream);
  // Pushes this exchange into the inbox, unless it is there.
  void Tell() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<HttpExchangeInbox> inbox_;
  HttpConnection* connection_;  // I/O thread.
  Mutex mutex_;
  Said said_ ABSL_GUARDED_BY(mutex_);
  bool told_ ABSL_GUARDED_BY(mutex_) = false;  // It is in the inbox.
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<End> end_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> gone_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
