#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton {

// A small HTTP/1.1 server with one page, GET /metrics, on its own thread. All its resources are
// bounded: connections, bytes of a request, and time. A connection serves one request and is then
// closed. Connections beyond the limit wait in the kernel's backlog.
class MetricsServer {
 public:
  struct Options {
    std::string listen;  // HOST:PORT; port 0 means any free port
    // Max open connections. A further one takes the place of the oldest one whose request has not
    // come, or else of the oldest one, so that silent clients keep nobody out.
    int max_connections = 64;
    size_t max_request_bytes = 8 << 10;  // size of request line and headers; a body is refused
    // Time limit for reading the request. Sending the answer has the same limit of its own.
    absl::Duration time_limit = absl::Seconds(5);
  };
  // Binds the address. Clients that connect wait until Serve(). Returns InvalidArgument if `listen`
  // is not HOST:PORT, and Unavailable if it can't be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Listen(Options options);
  // Closes open connections and joins the thread. `text` is not called afterwards.
  ~MetricsServer();

  // Starts the thread, which calls `text` for every page. Call it once.
  void Serve(std::function<std::string()> text);

  // Returns the HOST:PORT on which this server listens, with the actual port.
  const std::string& address() const { return address_; }

 private:
  struct Parts;
  explicit MetricsServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace baton
