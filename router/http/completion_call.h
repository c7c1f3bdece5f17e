#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "router/door/door.h"
#include "router/door/shared_budget.h"
#include "router/http/completion_answer.h"
#include "router/http/completion_request.h"
#include "router/http/http_exchange.h"

namespace baton {

// One request to /v1/completions or /v1/chat/completions, from its parsed body to the end of its
// answer. Each of its prompts is a call of its own at the door. If one fails, the others end too. A
// stream's head goes out with its first event, so an error before that is a status of HTTP, and one
// after it is an event.
//
// Each prompt's call stays open until the client has read all of it, as the core limits how long a
// client may take. The object lives as long as a call of it or its exchange does.
class CompletionCall final : public HttpStream,
                             public std::enable_shared_from_this<CompletionCall> {
 public:
  struct Options {
    CompletionRequest request;
    CompletionHead head;
    std::string caller;
    absl::Time deadline = absl::InfiniteFuture();
    // Fields of the answer's head beside those that tell its type.
    std::vector<std::pair<std::string, std::string>> fields;
  };
  // Asks for the answers. `door` and `whole_answers`, the memory that answers may take that are not
  // streamed, outlive the call. Any thread.
  static void Start(Door* door, SharedBudget* whole_answers, std::shared_ptr<HttpExchange> exchange,
                    Options options);

  bool Fill(size_t bytes, std::string* out) override;
  void Drained() override;

 private:
  class PromptCall;
  // One of the request's prompts.
  struct Prompt {
    RequestKey key = 0;
    std::string text;     // The prompt as text, if the answer needs it.
    bool owes = false;    // Something was sent that the client has not read yet.
    bool ended = false;   // The core has ended the call.
    bool closed = false;  // The door has forgotten the call.
  };
  // Calls that are made once the lock is released, because they may call back.
  struct Work {
    std::vector<RequestKey> writable, cancel, close;
    bool begin = false, wake = false, respond = false;
    absl::Status error;  // The answer, if it is not OK.
  };

  CompletionCall(Door* door, SharedBudget* whole_answers, std::shared_ptr<HttpExchange> exchange,
                 Options options);
  void Ask(std::vector<ClientRequest> prompts, absl::Time deadline);
  void NotePrompt(size_t prompt, const std::vector<TokenId>& ids);
  void Send(size_t prompt, ClientEvent event);
  void End(size_t prompt, const absl::Status& status);
  bool cancelled();
  void Gone();
  // Ends all calls because of `status`.
  void Fail(const absl::Status& status, Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds the calls whose events have all been read.
  void NoteRead(Work* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes memory for an answer that is not streamed. Returns ResourceExhausted if there is none.
  absl::Status TakeMemory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(Work work);
  void RespondWhole();
  HttpResponse Head(const char* type) const;

  Door* const door_;
  SharedBudget* const whole_answers_;
  const std::shared_ptr<HttpExchange> exchange_;
  const std::string caller_;
  const std::vector<std::pair<std::string, std::string>> fields_;
  const bool stream_;
  Mutex mutex_;
  CompletionAnswer answer_ ABSL_GUARDED_BY(mutex_);
  std::vector<Prompt> prompts_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;      // Prompts that have not ended.
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;      // The head of the stream is on its way.
  bool in_flight_ ABSL_GUARDED_BY(mutex_) = false;  // Fill() gave bytes that were not read yet.
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  // Memory of an answer that is not streamed.
  std::deque<SharedBudget::Share> shares_ ABSL_GUARDED_BY(mutex_);
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;  // Sum of `shares_`.
};

}  // namespace baton
