#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

// Requests and answers of HttpServer (http_server.h), which know nothing of models.
namespace baton {

// The head of a request.
struct HttpHead {
  std::string method;                                       // "GET"
  std::string path;                                         // "/v1/models"; without the query
  std::string query;                                        // "a=1", without "?"
  std::vector<std::pair<std::string, std::string>> fields;  // In the order in which they came.
  std::string peer;  // IP address of the client, as gRPC writes it: "ipv4:127.0.0.1".
  int peer_port = 0;

  // Returns the value of the first field with this name, in any case of letters; "" if there is
  // none.
  absl::string_view Get(absl::string_view name) const;
  bool Has(absl::string_view name) const;
};

// An answer, or the head of one. The server adds Content-Length or Transfer-Encoding, Connection
// and Date.
struct HttpResponse {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> fields;
  std::string body;
  // Kept until the answer has been written or its client has left, for example a share of a budget.
  std::shared_ptr<const void> memory;
};

// The body of an answer that comes in parts. The I/O thread calls the functions.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // Appends to `out` about as many bytes as fit into `bytes`, or nothing if there is nothing yet.
  // Returns false once the body is complete.
  virtual bool Fill(size_t bytes, std::string* out) = 0;
  // Everything that Fill() has given has left the process.
  virtual void Drained() = 0;
};

// One request that has come as a whole, and its answer. Any thread may call the functions. The
// connection lives as long as the answer is not complete, whoever holds a pointer.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  const HttpHead& head() const { return head_; }
  // The body. The caller may move it away.
  std::string& body() { return body_; }

  // Gives the whole answer. The first answer counts; further calls of both functions do nothing.
  virtual void Respond(HttpResponse response) = 0;
  // Begins an answer whose body comes from `stream`; `head.body` is empty.
  virtual void RespondWith(HttpResponse head, std::shared_ptr<HttpStream> stream) = 0;
  // Says that `stream` has more. Calls Fill() soon, on the I/O thread.
  virtual void Wake() = 0;
  // `gone` is called once, on the I/O thread, if the client leaves before it has the whole answer;
  // at once if it has left already. It is dropped, with all that it holds, when the answer is
  // complete. It is also called if the server ends the connection: by Cut(), because the client
  // does not take its answer, or at the end of the server. A second call replaces the first `gone`.
  virtual void WhenGone(std::function<void()> gone) = 0;
  // Ends the connection at once.
  virtual void Cut() = 0;

 protected:
  HttpHead head_;
  std::string body_;
};

}  // namespace baton
