#pragma once

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace baton {

// Splits a stream of server-sent events (text/event-stream) into the data of its events. The bytes
// may come in any parts. Lines end with LF, CRLF or CR. Comments, and fields other than `data`, are
// skipped; the data lines of one event are joined by LF. An event without a data line is none, and
// one that is not ended by an empty line is not complete, so it is never given.
class SseParser {
 public:
  static constexpr size_t kMaxEventBytes = 16 << 20;

  // Takes the next bytes, and calls `on_event` for each event that they complete. Stops at the
  // first error of `on_event` and returns it. Returns ResourceExhausted if an event is too long. Do
  // not call it again after an error.
  absl::Status Feed(absl::string_view bytes,
                    absl::FunctionRef<absl::Status(absl::string_view data)> on_event);

  // Returns true if the last bytes were part of an event that is not complete.
  bool in_event() const { return has_data_ || !line_.empty(); }

 private:
  absl::Status TakeLine(absl::string_view line,
                        absl::FunctionRef<absl::Status(absl::string_view data)> on_event);

  std::string line_;  // The line so far, if its end has not come.
  std::string data_;  // The data lines of the event so far.
  bool has_data_ = false;
  bool first_line_ = true;
  bool after_cr_ = false;  // True if the last byte was CR: an LF that follows belongs to it.
};

}  // namespace baton
