#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/rpc/connection_counts.h"
#include "router/http/http_exchange.h"

namespace baton {

// An HTTP/1.1 server that knows nothing of models. One thread of its own, "http", does all its I/O.
//
// Guarantees:
// - The answers on a connection come in the order of its requests. The next request is handled when
//   the answer to the one before is complete.
// - A request whose end is in doubt is refused, so that no proxy in front can be made to see other
//   requests than this server does (request smuggling).
// - While an answer is computed or written, the connection is read on. So a client that leaves, or
//   that shuts down only its sending side, is seen within 100 ms.
// - A connection takes at most 64 KiB of memory, and far less while it is idle. Heads
//   and bodies of requests, and answers that are not streamed, come on top.
class HttpServer {
 public:
  struct Options {
    std::string listen;  // HOST:PORT; port 0 means any free port
    // Decides which connections are taken. Outlives the server.
    ConnectionCounts* counts = nullptr;
    size_t max_head_bytes = 64 << 10;
    size_t max_body_bytes = 64 << 20;
    // Max bytes of the bodies that are coming on all connections together. Above it, the request
    // that has the most of them gets 503.
    size_t max_coming_bytes = size_t{1} << 30;
    // Time in which a request must come once its first byte has come. A later one gets 408.
    absl::Duration request_time = absl::Seconds(60);
    // Time after which a connection without a request is closed.
    absl::Duration idle_time = absl::Seconds(75);
    // Time in which a client must take some bytes of an answer that is not streamed. A client that
    // takes none is cut.
    absl::Duration take_time = absl::Seconds(30);
    // Time and bytes for which a connection is still read after its last answer, so that the client
    // gets the answer although it still sends.
    absl::Duration linger_time = absl::Seconds(5);
    size_t linger_bytes = 16 << 20;
    // Age after which the answers on a connection say that it ends.
    absl::Duration max_age = absl::InfiniteDuration();

    // The I/O thread calls these functions, which must not block.
    //
    // Called with the head of a request before its body is read, and before the client is told to
    // send it (100-continue). Returns the answer if the body does not matter, and nullopt
    // otherwise.
    std::function<std::optional<HttpResponse>(const HttpHead& head)> check;
    // Called with a request that has come as a whole.
    std::function<void(std::shared_ptr<HttpExchange> exchange)> handle;
    // Makes the answer to a request that the server itself refuses.
    std::function<HttpResponse(int status, absl::string_view message)> error;
  };

  // Binds the address. Clients that connect wait until Serve(). Returns InvalidArgument if `listen`
  // is not HOST:PORT, and Unavailable if it can't be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(Options options);
  // Cuts all connections and joins the thread. The functions of the options are not called
  // afterwards. An HttpExchange may live on; its functions then do nothing.
  ~HttpServer();

  // Starts the thread. Call it once.
  void Serve();
  // Stops listening, closes idle connections, and waits until the requests that have begun to come
  // are answered, but at most for `grace`. Then cuts what is left. Answers say that the connection
  // ends. Blocks; not on the I/O thread. A second call does nothing.
  void Shutdown(absl::Duration grace);

  // Returns the HOST:PORT on which this server listens, with the actual port.
  const std::string& address() const { return address_; }
  // Numbers of open connections, and of exchanges that are not complete. Any thread.
  int64_t connections() const;
  int64_t exchanges() const;

 private:
  struct Parts;
  explicit HttpServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace baton
