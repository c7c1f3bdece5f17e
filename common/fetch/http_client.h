#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

// The answer to one GET, after all redirects.
struct HttpReply {
  int status = 0;  // 200, 404, ...; 0 if the connection failed
  // Headers by name in lower case. If several answers in a chain of redirects have the same header,
  // the last one counts.
  std::map<std::string, std::string> headers;
  std::string error_body;  // first part of the body, for a status other than 200 and 206
  absl::Duration retry_after;
  // OK if a complete answer arrived, whatever its HTTP status. Unavailable if the connection failed
  // or was cut. If the callback HttpGet::take returned an error, this is that error.
  absl::Status transport;
};

struct HttpGet {
  std::string url;
  std::string
      token;  // bearer token for the host of `url` only; not sent after a redirect to another host
  int64_t from_byte = 0;  // offset of the first byte that is asked for
  // Called with each part of the body of a status 200 or 206, in order. An error ends the transfer.
  std::function<absl::Status(int status, absl::string_view bytes)> take;
};

// Returns `path` as a URL has it: all characters but RFC 3986's unreserved ones and slashes are
// percent-encoded.
std::string UrlPath(const std::string& path);

// Sends the request and blocks until the answer is complete. Fails after a minute without a byte.
// Uses $HTTPS_PROXY, and trusts the certificates of the system or of $SSL_CERT_FILE. Call from one
// thread at a time.
HttpReply Get(const HttpGet& get);

}  // namespace baton
