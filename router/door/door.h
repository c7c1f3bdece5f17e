#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/metrics/counter.h"
#include "common/tokenizer/tokenizer.h"
#include "router/core/core_events.h"
#include "router/door/client_call.h"
#include "router/door/client_request.h"
#include "router/door/encode_pool.h"
#include "router/door/request_check.h"
#include "router/door/shared_budget.h"

namespace baton {

// A request that does not reach the core.
struct Refusal {
  enum class Cause {
    kRequest,    // The request itself, its deadline, or its client.
    kQueue,      // The queue is full, because the workers have too much to do.
    kNoMemory,   // Open requests have too many bytes, or the core's inbox is full.
    kTexts,      // Too many texts wait to be tokenised.
    kNeverCame,  // The call ended before its request came.
  };
  const ClientRequest& request;  // Empty if it never came, or could not be parsed.
  const std::string& caller;
  const absl::Status& status;
  Cause cause;
};

// The way of clients to the core, whatever protocol they speak: the calls that are open, who may
// enter, and what all callers share. Checks and tokenises requests on the caller's thread, those
// with long texts on the threads of an EncodePool, and passes them to the core. The services of
// router/grpc and router/http parse requests and format answers. Any thread may call the functions.
class Door {
 public:
  struct Options {
    ServedModel model;
    RequestLimits limits;
    // The cluster's attach token, with which the blocks of prompts get their names; not set: they
    // get none.
    std::optional<std::string> naming_secret;
    // Max bytes of the requests that the core has.
    size_t max_open_bytes = 256 << 20;
    // Max Tokenize and Detokenize calls at the same time. A call counts until its answer has been
    // sent.
    size_t max_text_calls = 64;
    EncodePool::Options pool;
  };
  // The rest of the router. All functions must be callable on any thread.
  struct Core {
    // Called before a request is looked at, with the number of open calls of its caller and the
    // number of callers with open calls. Returns an error if the queue is full of calls of this
    // caller.
    std::function<absl::Status(size_t calls, size_t callers)> room;
    // Passes a checked request to the core. Returns false if the core's inbox is full.
    std::function<bool(CoreEvent)> submit;
    // Passes all other events to the core.
    std::function<void(CoreEvent)> tell;
    // Gets each request that does not reach the core, with the reason.
    std::function<void(const Refusal&)> refused;
  };
  // The object must outlive the core and its inbox, and all calls must have ended before it is
  // destroyed.
  Door(Options options, Core core);

  const ServedModel& model() const { return options_.model; }
  const RequestLimits& limits() const { return options_.limits; }

  // Returns the name of the caller at `address`, which is what gRPC writes without the port, or
  // `tenant` if the client names one and is trusted. Returns InvalidArgument if that name is too
  // long.
  absl::StatusOr<std::string> CallerName(absl::string_view tenant, absl::string_view address) const;

  // --- Calls ---
  // One prompt of a client. A call is open from Open() to Close().
  struct Call {
    RequestKey key = 0;
    std::string caller;
    std::shared_ptr<ClientCall> client;
  };
  RequestKey NewKey() { return next_key_++; }
  void Open(const Call& call);
  // Checks the request and passes it to the core. If that fails, ends the call with the reason, now
  // or later. A request without a deadline (InfiniteFuture) gets the default one.
  void Ask(const Call& call, ClientRequest request, absl::Time deadline);
  // Ends a call whose request can't be asked.
  void Refuse(const Call& call, const ClientRequest& request, const absl::Status& status,
              Refusal::Cause cause);
  // Counts a request that never came, and ends nothing.
  void NeverCame(const std::string& caller, const absl::Status& status);
  // All events of the call have been written, so the next may be sent.
  void Writable(RequestKey key) { core_.tell(ClientWritable{key}); }
  // The client went away or cancelled.
  void Cancelled(RequestKey key) { core_.tell(ClientCancelled{key}); }
  // The call is over. It gets nothing more.
  void Close(RequestKey key, const std::string& caller);
  // Returns an open call; null if there is none with this key.
  std::shared_ptr<ClientCall> Find(RequestKey key);
  // Number of open calls.
  size_t calls();

  // --- Texts ---
  // Runs `work` on a text of `text_bytes` bytes, now or on a thread of the pool. `bytes` is the
  // memory that it takes until it runs. Returns ResourceExhausted, and drops the work, if too many
  // texts wait.
  absl::Status RunOnText(const std::string& caller, size_t text_bytes, size_t bytes,
                         EncodePool::Work work);
  // A length of a text for which RunOnText() always takes a thread of the pool.
  static constexpr size_t kAnyLength = std::numeric_limits<size_t>::max();
  // Take a place among the calls that only tokenise or detokenise, and memory for the answer of
  // one. Both are given back when the share is destroyed. Return ResourceExhausted, with a time to
  // come again, if the caller gets none.
  absl::StatusOr<SharedBudget::Share> TakeTextCall(const std::string& caller);
  absl::StatusOr<SharedBudget::Share> TakeAnswerBytes(const std::string& caller, size_t bytes);
  // Counts such a call that ends with `status`, if that is ResourceExhausted.
  void NoteTextCallEnd(const absl::Status& status);
  struct EncodedText {
    std::vector<TokenId> ids;
    size_t dropped_bytes = 0;  // Bytes of the text that have no token.
  };
  // Turns a text into tokens. It may have more than the model's context. Returns NotFound,
  // InvalidArgument, or the status that ended the work.
  absl::StatusOr<EncodedText> Tokenize(absl::string_view model, absl::string_view text,
                                       bool parse_special, bool add_special,
                                       std::function<absl::Status()> interrupted) const;
  // Turns a conversation into the tokens that it has as the prompt of a request. Otherwise as
  // Tokenize().
  absl::StatusOr<EncodedText> TokenizeChat(absl::string_view model, const Chat& chat,
                                           std::function<absl::Status()> interrupted) const;
  // Turns tokens into text. Returns NotFound or InvalidArgument.
  absl::StatusOr<std::string> Detokenize(absl::string_view model, absl::Span<const TokenId> ids,
                                         bool skip_special) const;

  // --- The served model ---
  // Sets what clients are told, and the layout for which blocks get their names.
  void SetServing(ServingChanged serving);
  std::shared_ptr<const ServingChanged> serving();  // Never null.
  // The max tokens of a prompt and its answer.
  int context_tokens();

  SharedBudget& text_calls() { return text_calls_; }
  // Calls that were refused because of a limit that Tokenize and Detokenize calls share.
  const Counter& text_calls_refused() const { return text_calls_refused_; }
  size_t open_bytes() const { return prompts_.taken(); }
  EncodePool& pool() { return pool_; }

 private:
  // Turns a text, whose name for people is `name`, into tokens.
  absl::StatusOr<EncodedText> Encode(absl::string_view text, absl::string_view name,
                                     EncodeOptions options) const;
  // Checks a request and passes it to the core.
  void Admit(const Call& call, const ClientRequest& request, absl::Time arrival,
             absl::Time deadline);
  // Names the blocks of the request's prompt, unless the request uses no cached KV.
  void NameBlocks(CheckedRequest* checked);

  const Options options_;
  const Core core_;
  std::atomic<RequestKey> next_key_ = 1;
  SharedBudget prompts_;  // Bytes of the requests in the core and in its inbox.
  SharedBudget text_calls_;
  SharedBudget text_answers_;  // Bytes of the answers to Tokenize and Detokenize calls.
  Counter text_calls_refused_;
  EncodePool pool_;
  Mutex mutex_;
  std::map<RequestKey, std::shared_ptr<ClientCall>> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> calls_of_ ABSL_GUARDED_BY(mutex_);  // Open calls of each caller.
  // Never null. Shared, so that naming the blocks of a prompt needs neither a copy nor the lock.
  std::shared_ptr<const ServingChanged> serving_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const ServingChanged>();
};

}  // namespace baton
