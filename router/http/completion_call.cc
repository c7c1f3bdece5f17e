#include "router/http/completion_call.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/retry_after.h"
#include "router/http/openai_error.h"

namespace baton {

// The way from the core's loop to one prompt.
class CompletionCall::PromptCall final : public ClientCall {
 public:
  PromptCall(std::shared_ptr<CompletionCall> call, size_t prompt)
      : call_(std::move(call)), prompt_(prompt) {}
  void NotePrompt(const std::vector<TokenId>& ids) override { call_->NotePrompt(prompt_, ids); }
  void Send(ClientEvent event) override { call_->Send(prompt_, std::move(event)); }
  void End(const absl::Status& status) override { call_->End(prompt_, status); }
  void Abort() override { call_->exchange_->Cut(); }
  bool cancelled() override { return call_->cancelled(); }

 private:
  const std::shared_ptr<CompletionCall> call_;
  const size_t prompt_;
};

void CompletionCall::Start(Door* door, SharedBudget* whole_answers,
                           std::shared_ptr<HttpExchange> exchange, Options options) {
  std::vector<ClientRequest> prompts = std::move(options.request.prompts);
  const absl::Time deadline = options.deadline;
  options.request.prompts.resize(prompts.size());
  const auto call = std::shared_ptr<CompletionCall>(
      new CompletionCall(door, whole_answers, std::move(exchange), std::move(options)));
  call->Ask(std::move(prompts), deadline);
}

CompletionCall::CompletionCall(Door* door, SharedBudget* whole_answers,
                               std::shared_ptr<HttpExchange> exchange, Options options)
    : door_(door),
      whole_answers_(whole_answers),
      exchange_(std::move(exchange)),
      caller_(std::move(options.caller)),
      fields_(std::move(options.fields)),
      stream_(options.request.shape.stream),
      answer_(options.request.shape, std::move(options.head), door->model().tokenizer,
              options.request.prompts.size()),
      prompts_(options.request.prompts.size()),
      running_(prompts_.size()) {}

void CompletionCall::Ask(std::vector<ClientRequest> prompts, absl::Time deadline) {
  // All calls are open before the first one can fail.
  std::vector<Door::Call> calls;
  for (size_t i = 0; i < prompts.size(); ++i) {
    calls.push_back(
        {door_->NewKey(), caller_, std::make_shared<PromptCall>(shared_from_this(), i)});
  }
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < calls.size(); ++i) {
      prompts_[i].key = calls[i].key;
      const auto* text = std::get_if<std::string>(&prompts[i].prompt);
      if (answer_.needs_prompts() && text != nullptr) prompts_[i].text = *text;
    }
  }
  for (const Door::Call& call : calls) door_->Open(call);
  exchange_->WhenGone([self = shared_from_this()] { self->Gone(); });
  for (size_t i = 0; i < calls.size(); ++i) door_->Ask(calls[i], std::move(prompts[i]), deadline);
}

void CompletionCall::NotePrompt(size_t prompt, const std::vector<TokenId>& ids) {
  MutexLock lock(&mutex_);
  if (answer_.needs_prompts()) answer_.SetPrompt(prompt, std::move(prompts_[prompt].text), ids);
}

void CompletionCall::Send(size_t prompt, ClientEvent event) {
  Work work;
  {
    MutexLock lock(&mutex_);
    if (gone_ || failed_) return;
    answer_.Add(prompt, std::move(event));
    prompts_[prompt].owes = true;
    if (const absl::Status memory = stream_ ? absl::OkStatus() : TakeMemory(); !memory.ok()) {
      Fail(memory, &work);
    } else if (stream_ && answer_.ready()) {
      work.begin = !std::exchange(begun_, true);
      work.wake = true;
    } else {
      NoteRead(&work);
    }
  }
  Do(std::move(work));
}

void CompletionCall::End(size_t prompt, const absl::Status& status) {
  Work work;
  {
    MutexLock lock(&mutex_);
    if (std::exchange(prompts_[prompt].ended, true)) return;
    --running_;
    if (gone_ || failed_) {
      // The reason why the first call failed, or the client, has ended the others.
    } else if (!status.ok()) {
      Fail(status, &work);
    } else if (running_ == 0 && !stream_) {
      work.respond = true;
    } else if (stream_ && answer_.ready()) {
      work.begin = !std::exchange(begun_, true);
      work.wake = true;
    }
    NoteRead(&work);
  }
  Do(std::move(work));
}

void CompletionCall::Fail(const absl::Status& status, Work* work) {
  failed_ = true;
  if (begun_) {
    answer_.Fail(status);
    work->wake = true;
  } else {
    work->error = status;
  }
  for (const Prompt& prompt : prompts_) {
    if (!prompt.ended) work->cancel.push_back(prompt.key);
  }
}

void CompletionCall::NoteRead(Work* work) {
  const bool reads = stream_ && !gone_ && (!failed_ || begun_);
  if (reads && (in_flight_ || answer_.ready())) return;
  for (Prompt& prompt : prompts_) {
    if (prompt.ended && !std::exchange(prompt.closed, true)) {
      work->close.push_back(prompt.key);
    } else if (!prompt.ended && std::exchange(prompt.owes, false)) {
      work->writable.push_back(prompt.key);
    }
  }
}

absl::Status CompletionCall::TakeMemory() {
  constexpr size_t kStep = 64 << 10;
  while (answer_.bytes() > taken_ + kStep) {
    auto share = whole_answers_->Take(caller_, kStep);
    if (!share) {
      return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                "answers that are not streamed have ", whole_answers_->taken(),
                                " bytes, ", whole_answers_->TakenBy(caller_),
                                " of them of this caller; the max is ", whole_answers_->max(),
                                ", of which one caller gets three quarters: ask for a stream")),
                            WithJitter(absl::Seconds(1)));
    }
    shares_.push_back(*std::move(share));
    taken_ += kStep;
  }
  return absl::OkStatus();
}

void CompletionCall::Do(Work work) {
  // Destroying the last call may destroy this object.
  const auto self = shared_from_this();
  for (const RequestKey key : work.cancel) door_->Cancelled(key);
  if (!work.error.ok()) {
    OpenAiError error = ToOpenAiError(work.error);
    error.fields.insert(error.fields.end(), fields_.begin(), fields_.end());
    exchange_->Respond({error.http, std::move(error.fields), std::move(error.body)});
  }
  if (work.begin) {
    HttpResponse head = Head("text/event-stream; charset=utf-8");
    head.fields.emplace_back("Cache-Control", "no-cache");
    head.fields.emplace_back("X-Accel-Buffering", "no");
    exchange_->RespondWith(std::move(head), self);
  }
  if (work.wake) exchange_->Wake();
  if (work.respond) {
    size_t bytes = 0;
    {
      MutexLock lock(&mutex_);
      bytes = answer_.bytes();
    }
    // A long answer takes a while to format, so the core's loop does not do it, unless the pool is
    // full of texts.
    const absl::Status status =
        door_->RunOnText(caller_, bytes, 0, [self](const absl::Status&) { self->RespondWhole(); });
    if (!status.ok()) RespondWhole();
  }
  for (const RequestKey key : work.writable) door_->Writable(key);
  for (const RequestKey key : work.close) door_->Close(key, caller_);
}

HttpResponse CompletionCall::Head(const char* type) const {
  HttpResponse head{.fields = fields_};
  head.fields.emplace_back("Content-Type", type);
  return head;
}

void CompletionCall::RespondWhole() {
  HttpResponse response = Head("application/json");
  {
    MutexLock lock(&mutex_);
    response.body = answer_.Whole();
    response.memory = std::make_shared<std::deque<SharedBudget::Share>>(std::move(shares_));
  }
  exchange_->Respond(std::move(response));
}

bool CompletionCall::Fill(size_t bytes, std::string* out) {
  MutexLock lock(&mutex_);
  const bool more = answer_.Fill(bytes, out);
  in_flight_ = true;
  return more;
}

void CompletionCall::Drained() {
  Work work;
  {
    MutexLock lock(&mutex_);
    in_flight_ = false;
    NoteRead(&work);
  }
  Do(std::move(work));
}

bool CompletionCall::cancelled() {
  MutexLock lock(&mutex_);
  return gone_ || failed_;
}

void CompletionCall::Gone() {
  Work work;
  {
    MutexLock lock(&mutex_);
    if (std::exchange(gone_, true)) return;
    for (const Prompt& prompt : prompts_) {
      if (!prompt.ended) work.cancel.push_back(prompt.key);
    }
    NoteRead(&work);
  }
  Do(std::move(work));
}

}  // namespace baton
