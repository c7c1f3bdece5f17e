#include "router/http/http_answer.h"

#include <algorithm>
#include <utility>

#include <boost/beast/http/status.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// A stream that gives short pieces keeps its memory between them up to this size.
constexpr size_t kKeptBytes = 4 << 10;

// The server sets these fields by itself.
bool IsOwnField(absl::string_view name) {
  for (const char* own : {"Content-Length", "Transfer-Encoding", "Connection", "Date"}) {
    if (absl::EqualsIgnoreCase(name, own)) return true;
  }
  return false;
}

// Appends a field. A line end in a value, which could come from a request, would begin another
// field, so control characters become blanks.
void AppendField(absl::string_view name, absl::string_view value, std::string* head) {
  absl::StrAppend(head, name, ": ");
  const size_t begin = head->size();
  head->append(value.data(), value.size());
  for (size_t i = begin; i < head->size(); ++i) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>((*head)[i]))) (*head)[i] = ' ';
  }
  head->append("\r\n");
}

bool HasNoBody(int status) { return status / 100 == 1 || status == 204 || status == 304; }

}  // namespace

HttpAnswer::HttpAnswer(HttpResponse response, std::shared_ptr<HttpStream> stream,
                       const Terms& terms)
    : response_(std::move(response)), stream_(std::move(stream)), terms_(terms) {}

std::string HttpAnswer::Head(bool ending, absl::Time now) {
  const bool has_body = !HasNoBody(response_.status);
  // The body of a stream for HTTP/1.0 ends with the connection.
  const bool until_end = stream_ != nullptr && terms_.http10 && !terms_.head_only && has_body;
  closes_ = ending || !terms_.keep_alive || until_end;
  const auto reason = boost::beast::http::obsolete_reason(
      static_cast<boost::beast::http::status>(response_.status));
  std::string head = absl::StrCat(
      "HTTP/1.1 ", response_.status, " ", absl::string_view(reason.data(), reason.size()),
      "\r\nDate: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT\r\n", now, absl::UTCTimeZone()));
  for (const auto& [name, value] : response_.fields) {
    if (!IsOwnField(name)) AppendField(name, value, &head);
  }
  if (stream_ == nullptr && has_body) {
    absl::StrAppend(&head, "Content-Length: ", response_.body.size(), "\r\n");
  } else if (stream_ != nullptr && has_body && !terms_.http10) {
    head += "Transfer-Encoding: chunked\r\n";
  }
  if (closes_) {
    head += "Connection: close\r\n";
  } else if (terms_.http10) {
    head += "Connection: keep-alive\r\n";
  }
  head += "\r\n";
  return head;
}

bool HttpAnswer::MakePiece(bool ending, absl::Time now) {
  front_.clear();
  tail_ = "";
  written_ = 0;
  if (body_.capacity() > kKeptBytes) {
    body_ = std::string();
  } else {
    body_.clear();
  }
  const bool has_body = !terms_.head_only && !HasNoBody(response_.status);
  if (complete_) return false;
  if (stream_ == nullptr || !has_body) {
    complete_ = true;
    front_ = Head(ending, now);
    if (has_body) body_ = std::move(response_.body);
    return true;
  }
  complete_ = !stream_->Fill(kPieceBytes, &body_);
  if (body_.empty() && !complete_) return false;
  if (!std::exchange(head_made_, true)) front_ = Head(ending, now);
  if (terms_.http10) return !front_.empty() || !body_.empty();
  if (!body_.empty()) absl::StrAppend(&front_, absl::Hex(body_.size()), "\r\n");
  tail_ = body_.empty() ? "0\r\n\r\n" : complete_ ? "\r\n0\r\n\r\n" : "\r\n";
  return true;
}

std::array<absl::string_view, 3> HttpAnswer::Pending() const {
  std::array<absl::string_view, 3> parts = {front_, body_, tail_};
  size_t skip = written_;
  for (absl::string_view& part : parts) {
    const size_t skipped = std::min(skip, part.size());
    part.remove_prefix(skipped);
    skip -= skipped;
  }
  return parts;
}

size_t HttpAnswer::pending_bytes() const {
  return front_.size() + body_.size() + tail_.size() - written_;
}

void HttpAnswer::Written(size_t bytes) {
  written_ += bytes;
  if (pending_bytes() == 0 && stream_ != nullptr) stream_->Drained();
}

}  // namespace baton
