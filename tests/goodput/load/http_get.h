#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

struct HttpUrl {
  std::string host;  // without the brackets of IPv6
  std::string port;
  std::string path;  // from its slash
  std::string Authority() const;
};
// http://HOST[:PORT][/PATH]. InvalidArgument names what was given.
absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view url);

// The body of a GET that ends within `timeout`, at most 16 MiB; a connection of its own.
// Unavailable says why.
absl::StatusOr<std::string> HttpGet(const HttpUrl& url, absl::Duration timeout);

}  // namespace baton
