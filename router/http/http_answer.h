#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "router/http/http_exchange.h"

namespace baton {

// An answer while it is written. Created when the answer begins, destroyed when it is complete or
// its client has left. I/O thread only.
class HttpAnswer {
 public:
  // The properties of a request that its answer depends on.
  struct Terms {
    bool http10 = false;
    bool head_only = false;   // HEAD
    bool keep_alive = false;  // The connection may go on after the answer.
  };
  // Max bytes that a stream is asked for at a time.
  static constexpr size_t kPieceBytes = 16 << 10;

  // `stream` is null if `response` is the whole answer.
  HttpAnswer(HttpResponse response, std::shared_ptr<HttpStream> stream, const Terms& terms);

  // Makes the next bytes that are to be written, after all earlier ones were written. Ends the
  // connection after the answer if `ending`. Returns false if there is nothing now.
  bool MakePiece(bool ending, absl::Time now);
  // The bytes that are to be written next, in order. All are empty if there are none.
  std::array<absl::string_view, 3> Pending() const;
  size_t pending_bytes() const;
  // Tells that this many of them were written. Calls HttpStream::Drained() after the last one.
  void Written(size_t bytes);

  // True if all bytes of the answer have been made.
  bool complete() const { return complete_; }
  bool streamed() const { return stream_ != nullptr; }
  // Valid after the first piece was made.
  bool closes() const { return closes_; }

 private:
  std::string Head(bool ending, absl::Time now);

  HttpResponse response_;
  std::shared_ptr<HttpStream> stream_;
  const Terms terms_;
  bool head_made_ = false, complete_ = false, closes_ = false;
  // The bytes that are written: the head and the length of a chunk, the body, what ends a chunk.
  std::string front_, body_;
  absl::string_view tail_;
  size_t written_ = 0;  // Bytes of these three.
};

}  // namespace baton
