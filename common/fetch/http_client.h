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
  int status = 0;  // 200, 404, ...; 0 where the connection failed
  // Names in lower case. What several answers of a chain of redirects have, is the last one's.
  std::map<std::string, std::string> headers;
  std::string error_body;  // of a status other than 200 and 206, its beginning
  absl::Duration retry_after;
  // OK where an answer arrived completely, whatever its status. Unavailable: the connection failed
  // or was cut. Otherwise what `take` returned.
  absl::Status transport;
};

struct HttpGet {
  std::string url;
  std::string
      token;  // sent as a bearer token to the host of `url` alone, never to where it redirects
  int64_t from_byte = 0;  // asks for the bytes from there on
  // Called with the status before the first byte, then with the bytes, of a status 200 or 206. An
  // error ends the transfer.
  std::function<absl::Status(int status, absl::string_view bytes)> take;
};

// Blocks until the answer is there. Fails after a minute without a byte. Goes through
// $HTTPS_PROXY, and trusts the system's certificates, or those of $SSL_CERT_FILE. One thread at a
// time.
HttpReply Get(const HttpGet& get);

}  // namespace baton
