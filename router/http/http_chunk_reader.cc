#include "router/http/http_chunk_reader.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {

void HttpChunkReader::Refuse(absl::string_view why) {
  refusal_ = HttpRefusal{400, absl::StrCat("malformed request: in the chunked body, ", why)};
}

size_t HttpChunkReader::Read(absl::string_view in, std::string* body) {
  size_t taken = 0;
  while (!done() && !refusal_ && taken < in.size()) {
    const absl::string_view rest = in.substr(taken);
    if (state_ == State::kData) {
      const size_t size = static_cast<size_t>(std::min<uint64_t>(left_, rest.size()));
      body->append(rest.data(), size);
      taken += size;
      left_ -= size;
      if (left_ == 0) state_ = State::kDataEnd;
      continue;
    }
    const size_t end = rest.find('\n');
    if (state_ == State::kDataEnd && (rest[0] != '\r' || (rest.size() > 1 && end != 1))) {
      Refuse(absl::StrCat("CR and LF must follow a chunk, and not ",
                          QuotedForHttp(rest.substr(0, 2))));
    } else if (std::min(end, rest.size()) > kMaxLineBytes) {
      Refuse(absl::StrCat("a line has more than ", kMaxLineBytes, " bytes"));
    } else if (end == rest.npos) {
      break;
    } else if (end == 0 || rest[end - 1] != '\r') {
      Refuse(absl::StrCat("the line ", QuotedForHttp(rest.substr(0, end)),
                          " does not end with CR and LF"));
    } else {
      const absl::string_view line = rest.substr(0, end - 1);
      taken += end + 1;
      if (state_ == State::kDataEnd) {
        state_ = State::kSize;
      } else if (state_ == State::kSize) {
        ReadSize(line, body->size());
      } else {
        ReadField(line);
      }
    }
  }
  return taken;
}

void HttpChunkReader::ReadSize(absl::string_view line, size_t body_bytes) {
  for (const char c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t') {
      return Refuse(absl::StrCat("the line ", QuotedForHttp(line), " has a control character"));
    }
  }
  const absl::string_view digits = line.substr(0, line.find(';'));
  constexpr size_t kMaxDigits = 15;
  uint64_t size = 0;
  // SimpleHexAtoi takes blanks and a prefix too.
  const bool is_hex = !digits.empty() && digits.size() <= kMaxDigits &&
                      std::all_of(digits.begin(), digits.end(), [](char c) {
                        return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                      });
  if (!is_hex || !absl::SimpleHexAtoi(digits, &size)) {
    return Refuse(absl::StrCat("the size of a chunk is ", QuotedForHttp(digits),
                               ", which is no hexadecimal number of up to ", kMaxDigits,
                               " digits"));
  }
  if (size > max_body_bytes_ - std::min<uint64_t>(body_bytes, max_body_bytes_)) {
    refusal_ = HttpRefusal{413, absl::StrCat("the body has at least ", body_bytes + size,
                                             " bytes; the limit is ", max_body_bytes_)};
    return;
  }
  left_ = size;
  state_ = size == 0 ? State::kFields : State::kData;
}

void HttpChunkReader::ReadField(absl::string_view line) {
  if (line.empty()) {
    state_ = State::kDone;
    return;
  }
  field_bytes_ += line.size();
  if (field_bytes_ > kMaxLineBytes) {
    return Refuse(
        absl::StrCat("the fields after the last chunk have more than ", kMaxLineBytes, " bytes"));
  }
  if (const std::optional<HttpRefusal> refusal = CheckHttpField(line)) refusal_ = refusal;
}

}  // namespace baton
