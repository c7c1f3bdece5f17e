#include "router/client/chat_session.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "router/client/generate_request.h"
#include "router/client/printing.h"
#include "router/client/received_answer.h"

namespace baton {
namespace {

constexpr char kHelp[] =
    "/system TEXT   what the model should know or do; without TEXT: takes it back\n"
    "/reset         begins a new conversation, with the same /system\n"
    "/timing        prints how much time each phase of an answer took, or stops that\n"
    "/exit          ends, as Ctrl-D does\n"
    "Ctrl-C ends the answer that is coming and keeps what came of it; if none is coming, it ends\n"
    "the program. Each line is a message\n";

v1::ChatMessage Message(absl::string_view role, absl::string_view text) {
  v1::ChatMessage message;
  message.set_role(std::string(role));
  message.set_text(std::string(text));
  return message;
}

bool HasSystem(const v1::Chat& chat) {
  return chat.messages_size() > 0 && chat.messages(0).role() == "system";
}

}  // namespace

ChatSession::ChatSession(v1::GenerateRequest base, bool timing, Outside outside)
    : base_(std::move(base)), timing_(timing), outside_(std::move(outside)) {}

ChatSession::Next ChatSession::Take(absl::string_view line) {
  const absl::string_view text = absl::StripAsciiWhitespace(line);
  if (text.empty()) return Next::kGoOn;
  return absl::StartsWith(text, "/") ? Command(text) : Ask(line);
}

ChatSession::Next ChatSession::Command(absl::string_view line) {
  const size_t blank = line.find(' ');
  const absl::string_view name = line.substr(0, blank);
  const absl::string_view rest =
      blank == line.npos ? "" : absl::StripAsciiWhitespace(line.substr(blank));
  if (name == "/exit" || name == "/quit" || name == "/bye") return Next::kEnd;
  if (name == "/system") {
    SetSystem(rest);
    outside_.note(rest.empty()
                      ? "your system message is taken back; the model's template may have its own\n"
                      : "the model gets this as the system message from now on\n");
  } else if (name == "/reset") {
    const bool keep = HasSystem(chat_);
    chat_.mutable_messages()->DeleteSubrange(keep ? 1 : 0, chat_.messages_size() - (keep ? 1 : 0));
    outside_.note("a new conversation begins\n");
  } else if (name == "/timing") {
    timing_ = !timing_;
    outside_.note(timing_ ? "timing is on\n" : "timing is off\n");
  } else if (name == "/help" || name == "/?") {
    outside_.note(kHelp);
  } else {
    outside_.note(absl::StrCat("there is no command ", name, "; the commands are\n", kHelp));
    return Next::kFailed;
  }
  return Next::kGoOn;
}

void ChatSession::SetSystem(absl::string_view text) {
  v1::Chat chat;
  if (!text.empty()) *chat.add_messages() = Message("system", text);
  for (int i = HasSystem(chat_) ? 1 : 0; i < chat_.messages_size(); ++i) {
    *chat.add_messages() = chat_.messages(i);
  }
  chat_ = std::move(chat);
}

ChatSession::Next ChatSession::Ask(absl::string_view text) {
  if (const absl::Status utf8 = CheckUtf8("the line", text); !utf8.ok()) {
    outside_.note(absl::StrCat(utf8.message(), "\n"));
    return Next::kFailed;
  }
  // A terminal sends these for keys such as the arrows, and does not show them.
  if (absl::StrContains(text, "\x1b")) {
    outside_.note(
        "the line was not sent: it has a key in it, such as an arrow, that can't be used here "
        "(rlwrap adds such keys to a program)\n");
    return Next::kFailed;
  }
  *chat_.add_messages() = Message("user", text);
  v1::GenerateRequest request = base_;
  *request.mutable_chat() = chat_;
  ReceivedAnswer answer(SteadyNow());
  std::string said;
  absl::Status printed;
  absl::Status status = outside_.generate(request, [&](const v1::GenerateEvent& event) {
    RETURN_IF_ERROR(answer.Add(event, SteadyNow()));
    const std::string part = answer.TakePrintable();
    said += part;
    printed = outside_.print(part);
    return printed;
  });
  if (!printed.ok()) return Next::kEnd;  // Nobody reads the answers any more.
  if (!said.empty()) outside_.print("\n").IgnoreError();
  if (status.ok() && !answer.complete()) {
    status = absl::DataLossError("the stream ended before the answer was complete");
  }
  if (!status.ok() && (said.empty() || !absl::IsCancelled(status))) {
    chat_.mutable_messages()->RemoveLast();
    if (absl::IsCancelled(status)) return Next::kGoOn;
    outside_.note(FailureLine(status, outside_.router));
    if (absl::IsInvalidArgument(status) && chat_.messages_size() > (HasSystem(chat_) ? 1 : 0)) {
      outside_.note("your line is not in the conversation; /reset begins a new one\n");
    }
    return Next::kFailed;
  }
  *chat_.add_messages() = Message("assistant", said);
  if (status.ok()) {
    outside_.note(answer.NoteLines(""));
    if (answer.cut_short()) {
      outside_.note("the answer ends here because of --max-tokens or the model's context\n");
    }
    if (timing_) outside_.note(answer.TimingTable());
  }
  return Next::kGoOn;
}

}  // namespace baton
