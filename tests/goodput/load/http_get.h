#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

struct HttpUrl {
  std::string host;  // Without the brackets of an IPv6 address.
  std::string port;
  std::string path;  // Begins with a slash.
  std::string Authority() const;
};
// Parses http://HOST[:PORT][/PATH]. InvalidArgument contains the text that was given.
absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view url);

// Sends a GET request on a new connection and returns the body. Returns Unavailable, with the
// reason, if there is no complete answer within `timeout` or if it has more than 16 MiB.
absl::StatusOr<std::string> HttpGet(const HttpUrl& url, absl::Duration timeout);

}  // namespace baton
