#include "common/fetch/http_client.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include <curl/curl.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/check.h"

namespace baton {
namespace {

constexpr size_t kLongestErrorBody = 4096;

struct Transfer {
  const HttpGet* get;
  CURL* curl;
  HttpReply reply;
  absl::Status refused;  // error that `take` returned
};

long StatusOf(CURL* curl) {
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  return status;
}

size_t TakeBytes(char* bytes, size_t, size_t size, void* opaque) {
  auto* transfer = static_cast<Transfer*>(opaque);
  const long status = StatusOf(transfer->curl);
  if (status == 200 || status == 206) {
    transfer->refused =
        transfer->get->take(static_cast<int>(status), absl::string_view(bytes, size));
    return transfer->refused.ok() ? size : CURL_WRITEFUNC_ERROR;
  }
  std::string* body = &transfer->reply.error_body;
  body->append(bytes,
               std::min(size, kLongestErrorBody - std::min(kLongestErrorBody, body->size())));
  return size;
}

size_t TakeHeader(char* bytes, size_t, size_t size, void* opaque) {
  const absl::string_view line(bytes, size);
  const size_t colon = line.find(':');
  if (colon != line.npos) {
    static_cast<Transfer*>(opaque)->reply.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return size;
}

}  // namespace

std::string UrlPath(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> escaped(
      curl_easy_escape(nullptr, path.data(), static_cast<int>(path.size())), curl_free);
  BATON_CHECK(escaped != nullptr) << path.size();
  return absl::StrReplaceAll(escaped.get(), {{"%2F", "/"}});
}

HttpReply Get(const HttpGet& get) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  Transfer transfer{.get = &get};
  const std::unique_ptr<CURL, void (*)(CURL*)> owned(curl_easy_init(), curl_easy_cleanup);
  CURL* const curl = transfer.curl = owned.get();
  if (ready != CURLE_OK || curl == nullptr) {
    transfer.reply.transport =
        absl::InternalError("libcurl could not be started; install it again");
    return transfer.reply;
  }
  curl_slist* headers = nullptr;
  // After a redirect to another host, port or scheme, curl does not send the authorization header.
  if (!get.token.empty())
    headers = curl_slist_append(nullptr, absl::StrCat("Authorization: Bearer ", get.token).c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> owned_headers(headers,
                                                                         curl_slist_free_all);
  char words[CURL_ERROR_SIZE] = "";
  const bool secure = absl::StartsWithIgnoreCase(get.url, "https:");
  curl_easy_setopt(curl, CURLOPT_URL, get.url.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "baton-fetch");
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 30L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 60L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  // curl reads HTTPS_PROXY and similar variables itself, but knows only the system's certificates.
  if (const char* certificates = std::getenv("SSL_CERT_FILE"); certificates != nullptr)
    curl_easy_setopt(curl, CURLOPT_CAINFO, certificates);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, words);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, TakeBytes);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, TakeHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  const std::string range = absl::StrCat(get.from_byte, "-");
  if (get.from_byte > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  const CURLcode ended = curl_easy_perform(curl);
  transfer.reply.status = static_cast<int>(StatusOf(curl));
  curl_off_t seconds = 0;
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &seconds);
  transfer.reply.retry_after = absl::Seconds(seconds);
  if (!transfer.refused.ok()) {
    transfer.reply.transport = transfer.refused;
  } else if (ended != CURLE_OK) {
    transfer.reply.transport =
        absl::UnavailableError(words[0] != '\0' ? words : curl_easy_strerror(ended));
  }
  return transfer.reply;
}

}  // namespace baton
