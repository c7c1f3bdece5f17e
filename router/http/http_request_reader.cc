#include "router/http/http_request_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/none.hpp>
#include <boost/system/error_code.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

// First room for a body. When it is full, the room becomes this many times larger. So a client that
// announces a long body and does not send it takes little memory, and little is copied.
constexpr size_t kFirstRoom = 64 << 10;
constexpr size_t kMoreRoom = 16;

}  // namespace

void HttpRequestReader::Refuse(int status, std::string message) {
  state_ = State::kRefused;
  refusal_ = {status, std::move(message)};
}

size_t HttpRequestReader::Read(absl::string_view in) {
  switch (state_) {
    case State::kHead:
      return ReadHead(in);
    case State::kBody:
      return ReadBody(in);
    case State::kComplete:
    case State::kRefused:
      break;
  }
  return 0;
}

size_t HttpRequestReader::ReadHead(absl::string_view in) {
  if (!in.empty() && in[0] == 0x16) {
    Refuse(400,
           "malformed request: it begins with the byte 0x16, as TLS does; use http://, because "
           "this server speaks no TLS");
    return 0;
  }
  // Garbage that has no line end is refused at once, and not when the time is over.
  if (!in.empty() && !absl::ascii_isgraph(static_cast<unsigned char>(in[0]))) {
    Refuse(400, absl::StrCat("malformed request: it begins with ", QuotedForHttp(in.substr(0, 1))));
    return 0;
  }
  for (; scanned_ < in.size(); ++scanned_) {
    const void* const found = std::memchr(in.data() + scanned_, '\n', in.size() - scanned_);
    if (found == nullptr) {
      scanned_ = in.size();
      break;
    }
    scanned_ = static_cast<size_t>(static_cast<const char*>(found) - in.data());
    if (scanned_ == line_begin_ || in[scanned_ - 1] != '\r') {
      Refuse(400, absl::StrCat("malformed request: the line ",
                               QuotedForHttp(in.substr(line_begin_, scanned_ - line_begin_)),
                               " does not end with CR and LF"));
      return 0;
    }
    const size_t end = scanned_ + 1;
    if (end > limits_.head_bytes) break;
    if (end - line_begin_ == 2) {
      ParseHead(in.substr(0, end));
      return end;
    }
    line_begin_ = end;
  }
  if (in.size() > limits_.head_bytes) {
    Refuse(431, absl::StrCat("the head of the request has more than ", limits_.head_bytes,
                             " bytes, which is the limit"));
  }
  return 0;
}

void HttpRequestReader::ParseHead(absl::string_view head) {
  if (std::optional<HttpRefusal> refusal = CheckHttpHead(head, &framing_)) {
    state_ = State::kRefused;
    refusal_ = *std::move(refusal);
    return;
  }
  if (framing_.content_length.value_or(0) > limits_.body_bytes) {
    return Refuse(413, absl::StrCat("the body has ", *framing_.content_length,
                                    " bytes; the limit is ", limits_.body_bytes));
  }
  http::request_parser<http::empty_body> beast;
  beast.header_limit(static_cast<uint32_t>(head.size() + 1));
  beast.body_limit(boost::none);
  error_code error;
  beast.put(boost::asio::buffer(head.data(), head.size()), error);
  if ((error && error != http::error::need_more) || !beast.is_header_done()) {
    return Refuse(400, absl::StrCat("malformed request: ", error.message()));
  }
  const auto& request = beast.get();
  head_.method.assign(request.method_string().data(), request.method_string().size());
  for (const auto& field : request) {
    head_.fields.emplace_back(std::string(field.name_string().data(), field.name_string().size()),
                              std::string(field.value().data(), field.value().size()));
  }
  keep_alive_ = beast.keep_alive();
  if (framing_.chunked) chunks_.emplace(limits_.body_bytes);
  state_ =
      framing_.chunked || framing_.content_length.value_or(0) > 0 ? State::kBody : State::kComplete;
  SetTarget({request.target().data(), request.target().size()});
}

void HttpRequestReader::SetTarget(absl::string_view target) {
  if (const size_t scheme = target.find("://");
      scheme != target.npos && !absl::StartsWith(target, "/")) {
    absl::string_view rest = target.substr(scheme + 3);
    const absl::string_view host = rest.substr(0, rest.find_first_of("/?"));
    // A handler checks Host, and must not be led past that check.
    if (!absl::EqualsIgnoreCase(host, head_.Get("Host")) && head_.Has("Host")) {
      return Refuse(
          400, absl::StrCat("malformed request: the target names the host ", QuotedForHttp(host),
                            ", and the field Host is ", QuotedForHttp(head_.Get("Host"))));
    }
    target = rest.substr(host.size());
  }
  const size_t query = target.find('?');
  head_.path = std::string(target.substr(0, query));
  if (head_.path.empty()) head_.path = "/";
  if (query != target.npos) head_.query = std::string(target.substr(query + 1));
}

size_t HttpRequestReader::ReadBody(absl::string_view in) {
  if (chunks_) {
    const size_t taken = chunks_->Read(in, &body_);
    if (chunks_->refusal()) {
      Refuse(chunks_->refusal()->status, chunks_->refusal()->message);
    } else if (chunks_->done()) {
      state_ = State::kComplete;
    }
    return taken;
  }
  const size_t length = static_cast<size_t>(*framing_.content_length);
  const size_t taken = std::min(in.size(), length - body_.size());
  const size_t size = body_.size() + taken;
  if (size > body_.capacity()) {
    body_.reserve(std::max(size, std::min(length, std::max(kFirstRoom, kMoreRoom * body_.size()))));
  }
  body_.append(in.data(), taken);
  if (size == length) state_ = State::kComplete;
  return taken;
}

}  // namespace baton
