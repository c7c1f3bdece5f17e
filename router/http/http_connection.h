#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "router/http/http_answer.h"
#include "router/http/http_exchange_inbox.h"
#include "router/http/http_request_reader.h"
#include "router/http/http_server.h"

namespace baton {

// The state that all connections of a server share. I/O thread, except for the numbers.
struct HttpConnectionShare {
  explicit HttpConnectionShare(HttpServer::Options o) : options(std::move(o)) {}

  const HttpServer::Options options;
  boost::asio::io_context io{1};
  const std::shared_ptr<HttpExchangeInbox> inbox = std::make_shared<HttpExchangeInbox>(&io);
  std::set<HttpConnection*> connections;  // Open ones.
  size_t coming_bytes = 0;                // Bytes of all bodies that are coming.
  bool ending = false;                    // The server shuts down.
  std::function<void()> changed;       // Called while `ending`, after a connection's phase changes.
  std::array<char, 16 << 10> scratch;  // Bytes that were just read.
  std::atomic<int64_t> open = 0, exchanges = 0;
};

// One connection of a client. Lives as long as it is open: the operations that wait for its socket
// and its timer own it. I/O thread only.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `address` is entered in the counts, and leaves them when the connection ends.
  HttpConnection(HttpConnectionShare* share, boost::asio::ip::tcp::socket socket,
                 std::string address, int port);

  void Start();
  // Takes what the handler has said about the exchange.
  void OnSaid(PendingExchange::Said said);
  // Closes the connection if no byte of a request has come.
  void CloseIfIdle();
  // True if a request is coming or is being answered.
  bool busy() const;
  // Ends the connection. With `reset`, the client gets a reset, and what it has not taken is
  // dropped.
  void Close(bool reset);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase {
    kReading,    // A request comes, or none is there.
    kAnswering,  // The answer is being computed or written.
    kLingering,  // The last answer was written, and what still comes is dropped.
    kClosed,
  };

  // Continues after an event: writes, begins further requests, and waits for the next event.
  void Continue();
  void OnReadable();
  // Reads once. Returns false if there is nothing, or if the connection has ended.
  bool ReadSome();
  size_t Room() const;
  void AwaitReadable();
  // Looks now and then whether the client has left, while there is no room for its bytes.
  void AwaitLeave();
  void Advance();
  // Reads on in the request. Returns false if it needs more bytes, or if it is being answered.
  bool ReadRequest();
  // Notes how much of the body has come. If all bodies together are too long now, refuses the
  // request with the longest one, which may be that of another connection.
  void CountBody();
  // Frees the request that comes, after its answer has begun or its client has left.
  void DropReader();
  void OnHead();
  void SendContinue();
  void OnRequest();
  void Refuse(int status, absl::string_view message);
  void BeginAnswer(HttpResponse response, std::shared_ptr<HttpStream> stream, bool keep_alive);
  void Write();
  void Complete();
  void Linger();

  void SetDeadline(absl::Duration from_now);
  void AwaitDeadline();
  void OnDeadline();

  HttpConnectionShare* const share_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  const std::string address_;
  const int port_;
  const Clock::time_point began_ = Clock::now();

  Phase phase_ = Phase::kReading;
  bool awaits_readable_ = false, awaits_writable_ = false, awaits_leave_ = false;
  Clock::time_point deadline_ = Clock::time_point::max();  // The end of this phase.
  Clock::time_point timer_until_ = Clock::time_point::max();

  std::string in_;  // Bytes that have come and are not read yet.
  // The request that comes; null before its first byte.
  std::unique_ptr<HttpRequestReader> reader_;
  size_t body_bytes_ = 0;                   // Bytes of its body that have come.
  std::optional<HttpResponse> after_body_;  // The answer of `check`, once the body has come.
  // These three belong to the request that is answered.
  HttpAnswer::Terms terms_;
  std::shared_ptr<PendingExchange> exchange_;  // Null if `check` or the server answers.
  std::unique_ptr<HttpAnswer> answer_;         // Null as long as the handler gives no answer.

  std::unique_ptr<boost::asio::steady_timer> leave_timer_;  // See AwaitLeave().
  size_t lingered_bytes_ = 0;
};

}  // namespace baton
