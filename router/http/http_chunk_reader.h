#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "router/http/http_head_check.h"

namespace baton {

// Reads a chunked body (RFC 9112, section 7.1). Extensions of chunks, and the fields after the last
// chunk, are checked and dropped. Stricter than Beast's parser, as CheckHttpHead is. Besides, that
// of Boost 1.81 aborts the process if the end of a body comes in two parts, "0\r\n" and "\r".
class HttpChunkReader {
 public:
  // Max bytes of the line before a chunk, and of the fields after the last one.
  static constexpr size_t kMaxLineBytes = 4 << 10;

  explicit HttpChunkReader(uint64_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  // Reads from the front of `in`, which are the bytes that this function has not taken yet, and
  // appends to `body`. Returns how many bytes it takes.
  size_t Read(absl::string_view in, std::string* body);
  bool done() const { return state_ == State::kDone; }
  // Set once the body was refused.
  const std::optional<HttpRefusal>& refusal() const { return refusal_; }

 private:
  enum class State { kSize, kData, kDataEnd, kFields, kDone };
  // Reads the line before a chunk, or a field after the last one. `line` has no line end.
  void ReadSize(absl::string_view line, size_t body_bytes);
  void ReadField(absl::string_view line);
  void Refuse(absl::string_view why);

  const uint64_t max_body_bytes_;
  State state_ = State::kSize;
  uint64_t left_ = 0;       // Bytes of the chunk that are still to come.
  size_t field_bytes_ = 0;  // Bytes of all fields after the last chunk.
  std::optional<HttpRefusal> refusal_;
};

}  // namespace baton
