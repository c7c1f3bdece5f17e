#include "router/http/http_head_check.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

bool IsTokenChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::StrContains("!#$%&'*+-.^_`|~", absl::string_view(&c, 1));
}

bool IsToken(absl::string_view text) {
  for (const char c : text) {
    if (!IsTokenChar(c)) return false;
  }
  return !text.empty();
}

HttpRefusal Malformed(absl::string_view why) {
  return {400, absl::StrCat("malformed request: ", why)};
}

absl::string_view WithoutBlanks(absl::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<HttpRefusal> CheckRequestLine(absl::string_view line, HttpFraming* framing) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last) {
    return Malformed(
        absl::StrCat("the first line is ", QuotedForHttp(line), ", not METHOD TARGET HTTP/1.1"));
  }
  const absl::string_view method = line.substr(0, first), version = line.substr(last + 1);
  const absl::string_view target = line.substr(first + 1, last - first - 1);
  if (!IsToken(method)) {
    return Malformed(absl::StrCat("the method is ", QuotedForHttp(method)));
  }
  const bool is_version = version.size() == 8 && absl::StartsWith(version, "HTTP/") &&
                          absl::ascii_isdigit(version[5]) && version[6] == '.' &&
                          absl::ascii_isdigit(version[7]);
  if (!is_version) {
    return Malformed(absl::StrCat("the version is ", QuotedForHttp(version), ", not HTTP/1.1"));
  }
  if (version[5] != '1') {
    return HttpRefusal{505, absl::StrCat("the version of HTTP is ", version.substr(5),
                                         "; this server speaks 1.1 and 1.0")};
  }
  framing->http10 = version[7] == '0';
  for (const char c : target) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return Malformed(absl::StrCat("the target ", QuotedForHttp(target),
                                    " has a character that must be percent-encoded"));
    }
  }
  const bool is_target = absl::StartsWith(target, "/") || target == "*" ||
                         absl::StartsWithIgnoreCase(target, "http://") ||
                         absl::StartsWithIgnoreCase(target, "https://");
  if (!is_target) {
    return Malformed(
        absl::StrCat("the target is ", QuotedForHttp(target), ", which does not begin with /"));
  }
  return std::nullopt;
}

// Fields that decide where the request ends.
struct Seen {
  std::optional<absl::string_view> host, content_length, transfer_encoding, expect;
};

std::optional<HttpRefusal> CheckSeen(absl::string_view line, Seen* seen) {
  if (std::optional<HttpRefusal> refusal = CheckHttpField(line)) return refusal;
  const size_t colon = line.find(':');
  const absl::string_view name = line.substr(0, colon);
  const absl::string_view value = WithoutBlanks(line.substr(colon + 1));
  const std::pair<const char*, std::optional<absl::string_view>*> watched[] = {
      {"Host", &seen->host},
      {"Content-Length", &seen->content_length},
      {"Transfer-Encoding", &seen->transfer_encoding},
      {"Expect", &seen->expect}};
  for (const auto& [watched_name, place] : watched) {
    if (!absl::EqualsIgnoreCase(name, watched_name)) continue;
    if (place->has_value()) {
      return Malformed(absl::StrCat("it has two fields ", watched_name, ": ",
                                    QuotedForHttp(**place), " and ", QuotedForHttp(value)));
    }
    *place = value;
  }
  return std::nullopt;
}

std::optional<HttpRefusal> CheckFraming(const Seen& seen, HttpFraming* framing) {
  if (!framing->http10 && !seen.host) return Malformed("it has no field Host");
  if (seen.transfer_encoding) {
    if (framing->http10) return Malformed("HTTP/1.0 has no Transfer-Encoding");
    if (seen.content_length) {
      return Malformed("it has both Content-Length and Transfer-Encoding");
    }
    if (!absl::EqualsIgnoreCase(*seen.transfer_encoding, "chunked")) {
      return HttpRefusal{
          501, absl::StrCat("Transfer-Encoding is ", QuotedForHttp(*seen.transfer_encoding),
                            "; this server knows chunked alone")};
    }
    framing->chunked = true;
  }
  if (seen.content_length) {
    for (const char c : *seen.content_length) {
      if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) {
        return Malformed(absl::StrCat("Content-Length is ", QuotedForHttp(*seen.content_length)));
      }
    }
    if (seen.content_length->empty()) return Malformed("Content-Length is empty");
    uint64_t length = 0;
    if (!absl::SimpleAtoi(*seen.content_length, &length) || length > INT64_MAX) {
      return HttpRefusal{413, absl::StrCat("the body has ", QuotedForHttp(*seen.content_length),
                                           " bytes, which is too much")};
    }
    framing->content_length = length;
  }
  if (seen.expect && !framing->http10) {
    if (!absl::EqualsIgnoreCase(*seen.expect, "100-continue")) {
      return HttpRefusal{417, absl::StrCat("Expect is ", QuotedForHttp(*seen.expect),
                                           "; this server knows 100-continue alone")};
    }
    framing->expects_continue = true;
  }
  return std::nullopt;
}

}  // namespace

std::string QuotedForHttp(absl::string_view text) {
  constexpr size_t kShown = 64;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kShown)),
                      text.size() > kShown ? "..." : "", "'");
}

std::optional<HttpRefusal> CheckHttpField(absl::string_view line) {
  if (line.empty() || line.front() == ' ' || line.front() == '\t') {
    return Malformed(absl::StrCat("the line ", QuotedForHttp(line),
                                  " begins with a blank, as if it went on with the field before"));
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) {
    return Malformed(absl::StrCat("the line ", QuotedForHttp(line), " has no colon"));
  }
  const absl::string_view name = line.substr(0, colon);
  if (!IsToken(name)) {
    return Malformed(absl::StrCat("the name of a field is ", QuotedForHttp(name)));
  }
  const absl::string_view value = WithoutBlanks(line.substr(colon + 1));
  for (const char c : value) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t') {
      return Malformed(absl::StrCat("the field ", QuotedForHttp(name),
                                    " has a control character: ", QuotedForHttp(value)));
    }
  }
  return std::nullopt;
}

std::optional<HttpRefusal> CheckHttpHead(absl::string_view head, HttpFraming* framing) {
  Seen seen;
  HttpFraming found;
  size_t lines = 0;
  while (!head.empty()) {
    const size_t end = head.find('\n');
    if (end == head.npos || end == 0 || head[end - 1] != '\r') {
      return Malformed("a line does not end with CR and LF");
    }
    const absl::string_view line = head.substr(0, end - 1);
    head.remove_prefix(end + 1);
    if (absl::StrContains(line, '\r')) {
      return Malformed(absl::StrCat("the line ", QuotedForHttp(line), " has a CR in it"));
    }
    if (line.empty() && lines > 0) break;
    std::optional<HttpRefusal> refusal =
        lines == 0 ? CheckRequestLine(line, &found) : CheckSeen(line, &seen);
    if (refusal) return refusal;
    if (++lines > kMaxHttpFields + 1) {
      return HttpRefusal{431,
                         absl::StrCat("the request has more than ", kMaxHttpFields, " fields")};
    }
  }
  if (std::optional<HttpRefusal> refusal = CheckFraming(seen, &found)) return refusal;
  *framing = found;
  return std::nullopt;
}

}  // namespace baton
