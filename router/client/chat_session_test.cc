#include "router/client/chat_session.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "router/testing/fake_router.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ChatSessionTest : public testing::Test {
 protected:
  ChatSession::Next Take(absl::string_view line) { return session_.Take(line); }
  // Returns the messages as ROLE:TEXT.
  static std::vector<std::string> Messages(const v1::Chat& chat) {
    std::vector<std::string> messages;
    for (const v1::ChatMessage& message : chat.messages()) {
      messages.push_back(absl::StrCat(message.role(), ":", message.text()));
    }
    return messages;
  }

  std::vector<v1::GenerateRequest> requests_;
  std::string printed_, noted_;
  std::function<absl::Status()> end_ = [] { return absl::OkStatus(); };
  int events_ = 100;  // An answer ends after so many of its events.
  ChatSession session_{[] {
                         v1::GenerateRequest base;
                         base.mutable_sampling()->set_max_tokens(7);
                         return base;
                       }(),
                       /*timing=*/false,
                       {.generate =
                            [this](const v1::GenerateRequest& request, const auto& on_event) {
                              requests_.push_back(request);
                              int left = events_;
                              for (const v1::GenerateEvent& event : FakeRouter::Events(request)) {
                                if (left-- == 0) break;
                                if (const absl::Status taken = on_event(event); !taken.ok())
                                  return taken;
                              }
                              return end_();
                            },
                        .print =
                            [this](absl::string_view text) {
                              absl::StrAppend(&printed_, text);
                              return absl::OkStatus();
                            },
                        .note = [this](absl::string_view text) { absl::StrAppend(&noted_, text); },
                        .router = "127.0.0.1:1"}};
};

TEST_F(ChatSessionTest, EachTurnSendsTheWholeConversation) {
  EXPECT_EQ(Take(""), ChatSession::Next::kGoOn);
  EXPECT_EQ(Take("Hello "), ChatSession::Next::kGoOn);
  EXPECT_EQ(printed_, "one two\n");
  EXPECT_EQ(Take("And?"), ChatSession::Next::kGoOn);
  ASSERT_EQ(requests_.size(), 2u);
  EXPECT_EQ(requests_[0].sampling().max_tokens(), 7u);
  EXPECT_THAT(Messages(requests_[1].chat()),
              ElementsAre("user:Hello ", "assistant:one two", "user:And?"));
  EXPECT_EQ(Take("/bye"), ChatSession::Next::kEnd);
}

TEST_F(ChatSessionTest, TheSystemStaysInFront) {
  Take("a");
  Take("/system Be brief.");
  Take("/system  Be kind. ");
  EXPECT_THAT(Messages(session_.history()),
              ElementsAre("system:Be kind.", "user:a", "assistant:one two"));
  Take("/reset");
  EXPECT_THAT(Messages(session_.history()), ElementsAre("system:Be kind."));
  EXPECT_THAT(noted_, HasSubstr("a new conversation begins"));
  noted_ = "";
  Take("/system");
  EXPECT_THAT(Messages(session_.history()), ElementsAre());
  EXPECT_EQ(noted_, "your system message is taken back; the model's template may have its own\n");
  EXPECT_EQ(requests_.size(), 1u);
}

TEST_F(ChatSessionTest, ACancelledAnswerStaysAndAFailedTurnDoesNot) {
  events_ = 2;
  end_ = [] { return absl::CancelledError("by Ctrl-C"); };
  EXPECT_EQ(Take("a"), ChatSession::Next::kGoOn);
  EXPECT_THAT(Messages(session_.history()), ElementsAre("user:a", "assistant:one"));
  EXPECT_EQ(noted_, "");
  events_ = 1;
  EXPECT_EQ(Take("nothing comes"), ChatSession::Next::kGoOn);
  EXPECT_EQ(session_.history().messages_size(), 2);
  end_ = [] { return absl::InvalidArgumentError("too long"); };
  EXPECT_EQ(Take("b"), ChatSession::Next::kFailed);
  EXPECT_THAT(noted_, testing::AllOf(HasSubstr("too long"), HasSubstr("/reset begins a new one")));
  EXPECT_EQ(session_.history().messages_size(), 2);
  EXPECT_EQ(Take("\xff"), ChatSession::Next::kFailed);
  EXPECT_EQ(Take("an arrow \x1b[D"), ChatSession::Next::kFailed);
  EXPECT_EQ(requests_.size(), 3u);
  noted_ = "";
  events_ = 3;
  end_ = [] { return absl::OkStatus(); };
  EXPECT_EQ(Take("cut"), ChatSession::Next::kFailed);
  EXPECT_THAT(noted_, HasSubstr("before the answer was complete"));
  EXPECT_EQ(session_.history().messages_size(), 2);
}

TEST_F(ChatSessionTest, AnAnswerThatWasCutSaysSo) {
  Take("a");
  EXPECT_EQ(noted_, "the answer ends here because of --max-tokens or the model's context\n");
}

TEST_F(ChatSessionTest, TimingAndUnknownCommands) {
  Take("/timing");
  Take("a");
  EXPECT_THAT(noted_, testing::AllOf(HasSubstr("timing is on"), HasSubstr("TTFT")));
  noted_ = "";
  EXPECT_EQ(Take("/what"), ChatSession::Next::kFailed);
  EXPECT_THAT(noted_, testing::AllOf(HasSubstr("/what"), HasSubstr("/system TEXT")));
}

}  // namespace
}  // namespace baton
