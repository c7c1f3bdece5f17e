#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

// A request by HTTP.
struct HttpCall {
  std::string method;  // "GET" or "POST".
  std::string target;  // Path, and the query if there is one.
  // Header fields beside Host and Content-Length. They must not hold line ends.
  std::vector<std::pair<std::string, std::string>> fields;
  std::string body;
};

// A whole answer.
struct CallerAnswer {
  int status = 0;
  std::string body;
};

// Receives one answer. The I/O thread of the client calls the functions, which must not block.
class HttpReceiver {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~HttpReceiver() = default;
  // The I/O thread begins to send the request: it writes to a connection, or opens one.
  virtual void OnSend(Time now) = 0;
  // The head of the answer has come.
  virtual void OnHead(int status) = 0;
  // The next bytes of the body, and the time at which they were read from the socket. Returns false
  // to break off the request; OnEnd then says Cancelled.
  virtual bool OnBody(absl::string_view bytes, Time read) = 0;
  // Called once, after all others. May destroy the receiver.
  //   Ok                the answer is whole, whatever its HTTP status is
  //   Unavailable       no connection, or it broke, or the answer is not HTTP
  //   DeadlineExceeded  the deadline has passed
  //   Cancelled         by Cancel(), or because OnBody returned false
  virtual void OnEnd(absl::Status status) = 0;
};

// A client of one HTTP/1.1 server, for thousands of requests at once. One thread of its own does
// all I/O. Each open request has a connection of its own; the connection of an answer that is whole
// is kept for a later request, at most for a few seconds. No request is ever sent twice.
class HttpCaller {
 public:
  // Max time for which a connection without a request is used again. Servers close such connections
  // after five seconds or more, and a request that meets the closing would be lost.
  static constexpr auto kMaxIdle = std::chrono::seconds(4);
  static constexpr size_t kMaxReplyBytes = 64 << 20;  // For Ask().

  // Looks up the host and starts the thread. Returns Unavailable if the host has no address. A
  // connection uses the first address that answers.
  static absl::StatusOr<std::unique_ptr<HttpCaller>> Start(const std::string& host,
                                                           const std::string& port,
                                                           const std::string& authority);
  // No request may be open.
  ~HttpCaller();

  // Any thread. Returns a number that names a request for Send() and Cancel().
  uint64_t NewId() { return ++last_id_; }
  // Any thread. Sends a request. `receiver` must live until its OnEnd() is called.
  void Send(uint64_t id, HttpCall call, HttpReceiver* receiver, HttpReceiver::Time deadline);
  // Any thread. Ends a request with Cancelled. Does nothing if it has ended.
  void Cancel(uint64_t id);

  // Sends a request, and blocks until the whole answer is there. Not on the I/O thread. Returns the
  // errors of HttpReceiver::OnEnd; Cancelled once `stopped` returns true; and Unavailable if the
  // answer is too long.
  absl::StatusOr<CallerAnswer> Ask(HttpCall call, absl::Duration timeout,
                                   absl::FunctionRef<bool()> stopped);

  // Any thread. Number of connections that were opened so far.
  uint64_t connections_opened() const { return opened_; }

 private:
  struct Io;
  explicit HttpCaller(std::unique_ptr<Io> io);

  std::atomic<uint64_t> last_id_ = 0, opened_ = 0;
  const std::unique_ptr<Io> io_;
};

}  // namespace baton
