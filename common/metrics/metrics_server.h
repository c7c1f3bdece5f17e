#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton {

// A small HTTP/1.1 server with one page, GET /metrics, on a thread of its own. Everything about it
// is bounded: connections, bytes of a request, and time. One request a connection, which is then
// closed; further connections wait in the kernel's backlog for a place.
class MetricsServer {
 public:
  struct Options {
    std::string listen;  // HOST:PORT; port 0 takes any free one
    int max_connections = 16;
    size_t max_request_bytes = 8 << 10;            // request line and header; a body is refused
    absl::Duration time_limit = absl::Seconds(5);  // for the request; again for the answer
  };
  // Takes the address; who connects waits until Serve(). InvalidArgument when `listen` is not
  // HOST:PORT; Unavailable when it can't be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Listen(Options options);
  // Cuts what is open and joins. `text` is not called afterwards.
  ~MetricsServer();

  // Once: starts the thread, which calls `text` for every page.
  void Serve(std::function<std::string()> text);

  // HOST:PORT it listens on, the port filled in.
  const std::string& address() const { return address_; }

 private:
  struct Parts;
  explicit MetricsServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace baton
