#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// The server's own answer to a request that it does not take.
struct HttpRefusal {
  int status = 0;
  std::string message;  // A sentence for people, with the value that is at fault.
};

// Max fields of a head. Each one takes more memory than its bytes.
inline constexpr size_t kMaxHttpFields = 256;

// The fields of a head that say how the request goes on.
struct HttpFraming {
  bool http10 = false;
  bool chunked = false;
  bool expects_continue = false;
  std::optional<uint64_t> content_length;
};

// Checks the head of a request, which ends with an empty line. Returns the refusal, or nullopt
// after it has set `framing`. Stricter than Beast's parser: whatever two parsers could read in
// different ways is refused. These are line ends without CR, lines that go on (obs-fold), blanks
// before a colon, and more than one Host, Content-Length or Transfer-Encoding, or the last two
// together (RFC 9112, sections 2.2, 3.2, 5 and 6).
std::optional<HttpRefusal> CheckHttpHead(absl::string_view head, HttpFraming* framing);

// Checks one field, without its line end, in the same way. Returns nullopt if it is fine.
std::optional<HttpRefusal> CheckHttpField(absl::string_view line);

// Returns `text` for use in a message: in quotes, escaped, and cut at 64 bytes.
std::string QuotedForHttp(absl::string_view text);

}  // namespace baton
