#include "tests/goodput/http/sse_parser.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

constexpr char kByteOrderMark[] = "\xEF\xBB\xBF";

}  // namespace

absl::Status SseParser::TakeLine(absl::string_view line,
                                 absl::FunctionRef<absl::Status(absl::string_view data)> on_event) {
  if (first_line_) absl::ConsumePrefix(&line, kByteOrderMark);
  first_line_ = false;
  if (line.empty()) {
    if (!has_data_) return absl::OkStatus();
    has_data_ = false;
    const std::string data = std::move(data_);
    data_.clear();
    return on_event(data);
  }
  const size_t colon = std::min(line.find(':'), line.size());
  if (line.substr(0, colon) != "data") return absl::OkStatus();
  line.remove_prefix(std::min(colon + 1, line.size()));
  absl::ConsumePrefix(&line, " ");
  if (has_data_) data_.push_back('\n');
  has_data_ = true;
  data_.append(line.data(), line.size());
  return absl::OkStatus();
}

absl::Status SseParser::Feed(absl::string_view bytes,
                             absl::FunctionRef<absl::Status(absl::string_view data)> on_event) {
  while (!bytes.empty()) {
    if (after_cr_ && bytes[0] == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    const absl::string_view part = bytes.substr(0, end);
    if (line_.size() + data_.size() + part.size() > kMaxEventBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("an event has more than ", kMaxEventBytes, " bytes"));
    }
    if (end == bytes.npos) {
      line_.append(part.data(), part.size());
      return absl::OkStatus();
    }
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    absl::Status status;
    if (line_.empty()) {
      status = TakeLine(part, on_event);
    } else {
      line_.append(part.data(), part.size());
      status = TakeLine(line_, on_event);
      line_.clear();
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace baton
