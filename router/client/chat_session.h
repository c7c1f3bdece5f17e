#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "baton/v1/inference.pb.h"

namespace baton {

// A conversation at a terminal: lines of a person go in, answers come out. Lines that begin with a
// slash are commands. One thread.
class ChatSession {
 public:
  // The functions that a session needs of the program around it.
  struct Outside {
    // Makes a Generate call, and calls `on_event` for each event, as RouterCalls::Generate() does.
    std::function<absl::Status(const v1::GenerateRequest& request,
                               const std::function<absl::Status(const v1::GenerateEvent&)>&)>
        generate;
    std::function<absl::Status(absl::string_view)> print;  // Writes to the standard output.
    std::function<void(absl::string_view)> note;           // Writes to the standard error.
    std::string router;                                    // HOST:PORT, for messages.
  };
  enum class Next {
    kGoOn,
    kEnd,     // The person wants to leave.
    kFailed,  // A turn failed, for a reason that was printed. The person may go on.
  };
  // `base` has all options of the requests, and no prompt.
  ChatSession(v1::GenerateRequest base, bool timing, Outside outside);

  // Takes a line without its end: answers it, or does what it commands. A turn that was cancelled
  // stays in the history with what came of its answer; one that failed, or of whose answer nothing
  // came, does not.
  Next Take(absl::string_view line);
  const v1::Chat& history() const { return chat_; }

 private:
  Next Command(absl::string_view line);
  Next Ask(absl::string_view text);
  void SetSystem(absl::string_view text);

  const v1::GenerateRequest base_;
  bool timing_;
  const Outside outside_;
  v1::Chat chat_;
};

}  // namespace baton
