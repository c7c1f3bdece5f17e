#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

struct HttpUrl {
  std::string host;  // Host name or address; an IPv6 address is without its brackets.
  std::string port;
  std::string path;  // Path of the URL; begins with a slash.
  std::string Authority() const;
};
// Parses http://HOST[:PORT][/PATH]. The message of an InvalidArgument contains the URL.
absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view url);

// Sends a GET request on a new connection and returns the body. Returns Unavailable, with the
// reason, if there is no complete answer within `timeout` or if it has more than 16 MiB.
absl::StatusOr<std::string> HttpGet(const HttpUrl& url, absl::Duration timeout);

}  // namespace baton
