#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "router/http/http_chunk_reader.h"
#include "router/http/http_exchange.h"
#include "router/http/http_head_check.h"

namespace baton {

// Reads one request from the bytes of a connection. Knows neither sockets nor time.
class HttpRequestReader {
 public:
  struct Limits {
    size_t head_bytes = 0;
    uint64_t body_bytes = 0;
  };
  enum class State {
    kHead,      // The head is not complete.
    kBody,      // The head is complete, the body is not.
    kComplete,  // Nothing belongs to the request any more.
    kRefused,   // See refusal().
  };

  explicit HttpRequestReader(const Limits& limits) : limits_(limits) {}

  // Reads from the front of `in`, which are the bytes that this function has not taken yet. Returns
  // how many it takes. Returns after the head even if `in` has more. Takes nothing if it needs more
  // bytes, or if the request is complete or refused.
  size_t Read(absl::string_view in);

  State state() const { return state_; }
  const HttpRefusal& refusal() const { return refusal_; }

  // Valid once the head is complete. The caller may move the head away.
  HttpHead& head() { return head_; }
  const HttpFraming& framing() const { return framing_; }
  // True if the client wants to keep the connection.
  bool keep_alive() const { return keep_alive_; }
  // Valid once the request is complete. The caller may move it away.
  std::string& body() { return body_; }
  // Returns the number of bytes of the body that have come.
  size_t body_bytes() const { return body_.size(); }

 private:
  size_t ReadHead(absl::string_view in);
  size_t ReadBody(absl::string_view in);
  void ParseHead(absl::string_view head);
  void SetTarget(absl::string_view target);
  void Refuse(int status, std::string message);

  const Limits limits_;
  State state_ = State::kHead;
  HttpRefusal refusal_;
  HttpFraming framing_;
  HttpHead head_;
  bool keep_alive_ = false;
  size_t scanned_ = 0;     // Bytes of the head in which no end was found.
  size_t line_begin_ = 0;  // Begin of the line that `scanned_` is in.
  std::string body_;
  std::optional<HttpChunkReader> chunks_;  // Set if the body is chunked.
};

}  // namespace baton
