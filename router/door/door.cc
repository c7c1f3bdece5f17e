#include "router/door/door.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/retry_after.h"
#include "router/door/block_naming.h"

namespace baton {
namespace {

constexpr size_t kMaxTenantBytes = 128;
// Texts of more bytes are tokenised on the pool's threads.
constexpr size_t kLongText = 16 << 10;
// Tokenize takes texts with more tokens than the model's context. Only a normaliser can make more
// tokens of a text than it has bytes. Tokenize takes twice as many, and this number for the tokens
// that the tokeniser puts around the text.
constexpr size_t kTokensBeside = 1000;
// Limits the memory for answers to Tokenize and Detokenize calls that clients have not read yet.
// All together may take the bytes of kTextsInAnswers texts of the max size, and kBytesBeside. If
// there is no other, an answer may be larger. One caller gets three quarters, which is six texts:
// the answer to one text may have six times its bytes, since it has the id, the bytes and the
// number of bytes of each token.
constexpr size_t kTextsInAnswers = 8;
constexpr size_t kBytesBeside = 1 << 20;

absl::Status TryAgain(absl::string_view why) {
  return WithRetryAfter(absl::ResourceExhaustedError(why), WithJitter(absl::Seconds(1)));
}

// Returns about how much memory a request takes as long as it is open, without its answer.
size_t BytesOf(const CheckedRequest& request) {
  constexpr size_t kBytesPerAnswer = 4096;  // Memory of the core beside the values below.
  const SamplingOptions& sampling = request.sampling;
  size_t bytes = kBytesPerAnswer * static_cast<size_t>(request.answers) +
                 request.prompt.capacity() * sizeof(TokenId) +
                 sampling.stop_tokens.size() * sizeof(TokenId) +
                 sampling.logit_bias.size() * sizeof(sampling.logit_bias[0]);
  for (const std::string& text : request.stop) bytes += sizeof(text) + text.size();
  for (const std::vector<TokenId>& word : sampling.bad_words) {
    bytes += sizeof(word) + word.size() * sizeof(TokenId);
  }
  if (request.block_names != nullptr) bytes += request.block_names->size() * sizeof(BlockName);
  return bytes;
}

// Returns the bytes of the texts that have to be tokenised.
size_t TextBytesOf(const ClientRequest& request) {
  const auto* text = std::get_if<std::string>(&request.prompt);
  size_t bytes = text == nullptr ? 0 : text->size();
  // A chat template may take long, whatever the length of the texts is.
  if (std::holds_alternative<Chat>(request.prompt)) return Door::kAnyLength;
  for (const std::string& word : request.sampling.bad_words()) bytes += word.size();
  return bytes;
}

// Returns about how much memory a request takes while it waits for its turn.
size_t MemoryOf(const ClientRequest& request) {
  // A message takes up to eight times its bytes on the wire, when these are many small fields.
  constexpr size_t kMemoryPerByte = 8;
  size_t bytes = sizeof(request) + kMemoryPerByte * request.sampling.ByteSizeLong();
  if (const auto* text = std::get_if<std::string>(&request.prompt)) bytes += text->size();
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt)) {
    bytes += ids->size() * sizeof(TokenId);
  }
  if (const auto* chat = std::get_if<Chat>(&request.prompt)) bytes += MemoryOf(*chat);
  return bytes;
}

}  // namespace

Door::Door(Options options, Core core)
    : options_(std::move(options)),
      core_(std::move(core)),
      prompts_(options_.max_open_bytes),
      text_calls_(options_.max_text_calls),
      text_answers_(kTextsInAnswers * options_.limits.text_bytes + kBytesBeside),
      pool_(options_.pool) {}

absl::StatusOr<std::string> Door::CallerName(absl::string_view tenant,
                                             absl::string_view address) const {
  if (!options_.limits.trust_tenant_metadata || tenant.empty()) return std::string(address);
  if (tenant.size() <= kMaxTenantBytes) return std::string(tenant);
  return BadParameter(kTenantHeader,
                      absl::StrCat("the metadata ", kTenantHeader, " has ", tenant.size(),
                                   " bytes; it takes up to ", kMaxTenantBytes));
}

void Door::Open(const Call& call) {
  MutexLock lock(&mutex_);
  calls_[call.key] = call.client;
  ++calls_of_[call.caller];
}

void Door::Close(RequestKey key, const std::string& caller) {
  {
    MutexLock lock(&mutex_);
    calls_.erase(key);
    const auto of = calls_of_.find(caller);
    if (--of->second == 0) calls_of_.erase(of);
  }
  core_.tell(ClientGone{key});
}

std::shared_ptr<ClientCall> Door::Find(RequestKey key) {
  MutexLock lock(&mutex_);
  const auto found = calls_.find(key);
  return found == calls_.end() ? nullptr : found->second;
}

size_t Door::calls() {
  MutexLock lock(&mutex_);
  return calls_.size();
}

void Door::Refuse(const Call& call, const ClientRequest& request, const absl::Status& status,
                  Refusal::Cause cause) {
  core_.refused({request, call.caller, status, cause});
  call.client->End(status);
}

void Door::NeverCame(const std::string& caller, const absl::Status& status) {
  core_.refused({{}, caller, status, Refusal::Cause::kNeverCame});
}

void Door::Ask(const Call& call, ClientRequest request, absl::Time deadline) {
  const absl::Time arrival = SteadyNow();
  size_t calls = 0, callers = 0;
  {
    MutexLock lock(&mutex_);
    calls = calls_of_[call.caller];
    callers = calls_of_.size();
  }
  if (request.request_id.empty()) request.request_id = NewRequestId();
  absl::Status status = core_.room(calls, callers);
  if (!status.ok()) return Refuse(call, request, status, Refusal::Cause::kQueue);
  if (deadline == absl::InfiniteFuture()) deadline = arrival + options_.limits.default_deadline;
  const auto shared = std::make_shared<const ClientRequest>(std::move(request));
  status = RunOnText(call.caller, TextBytesOf(*shared), MemoryOf(*shared),
                     [this, call, shared, arrival, deadline](const absl::Status& turn) {
                       if (turn.ok()) return Admit(call, *shared, arrival, deadline);
                       Refuse(call, *shared, turn, Refusal::Cause::kTexts);
                     });
  if (!status.ok()) Refuse(call, *shared, status, Refusal::Cause::kTexts);
}

absl::Status Door::RunOnText(const std::string& caller, size_t text_bytes, size_t bytes,
                             EncodePool::Work work) {
  if (text_bytes > kLongText) return pool_.Submit(caller, bytes, std::move(work));
  work(absl::OkStatus());
  return absl::OkStatus();
}

void Door::Admit(const Call& call, const ClientRequest& request, absl::Time arrival,
                 absl::Time deadline) {
  const auto interrupted = [&call, arrival, deadline] {
    if (call.client->cancelled()) return absl::CancelledError("the client cancelled");
    if (SteadyNow() < deadline) return absl::OkStatus();
    return absl::DeadlineExceededError(
        absl::StrCat("the deadline passed ", absl::FormatDuration(deadline - arrival),
                     " after arrival, before the text was tokenised"));
  };
  const auto check = [&]() -> absl::StatusOr<CheckedRequest> {
    RETURN_IF_ERROR(interrupted());  // the text may have waited for its turn
    return CheckRequest(request, options_.model, options_.limits, arrival, deadline, interrupted);
  };
  absl::StatusOr<CheckedRequest> checked = check();
  if (!checked.ok()) return Refuse(call, request, checked.status(), Refusal::Cause::kRequest);
  checked->caller = call.caller;
  NameBlocks(&*checked);
  const size_t bytes = BytesOf(*checked);
  call.client->NotePrompt(checked->prompt);
  absl::Status status;
  if (auto share = prompts_.Take(call.caller, bytes)) {
    checked->memory = std::make_shared<SharedBudget::Share>(*std::move(share));
    if (!core_.submit(ClientArrived{call.key, *std::move(checked)})) {
      status = TryAgain("the router is overloaded: its inbox is full");
    }
  } else {
    status = TryAgain(absl::StrCat(
        "the router is overloaded: open requests have ", prompts_.taken(), " bytes, ",
        prompts_.TakenBy(call.caller), " of them of this caller, and this one has ", bytes,
        "; the max is ", prompts_.max(), ", of which one caller gets three quarters"));
  }
  if (!status.ok()) return Refuse(call, request, status, Refusal::Cause::kNoMemory);
  // If the client had cancelled before the core got the request, the core is told now.
  if (call.client->cancelled()) Cancelled(call.key);
}

void Door::NameBlocks(CheckedRequest* checked) {
  if (!options_.naming_secret || !checked->prefix_cache) return;
  checked->block_names =
      NamePromptBlocks(*serving(), *options_.naming_secret, options_.model.config.rope,
                       checked->cache_salt, checked->prompt);
}

absl::StatusOr<SharedBudget::Share> Door::TakeTextCall(const std::string& caller) {
  if (auto place = text_calls_.Take(caller, 1)) return *std::move(place);
  return TryAgain(absl::StrCat(text_calls_.taken(),
                               " calls of Tokenize and Detokenize are running, ",
                               text_calls_.TakenBy(caller), " of them of this caller; the max is ",
                               text_calls_.max(), ", of which one caller gets three quarters"));
}

absl::StatusOr<SharedBudget::Share> Door::TakeAnswerBytes(const std::string& caller, size_t bytes) {
  if (auto share = text_answers_.Take(caller, bytes)) return *std::move(share);
  return TryAgain(absl::StrCat(
      "answers of Tokenize and Detokenize that clients have not read, with this one of ", bytes,
      " bytes, would have ", text_answers_.taken() + bytes, " bytes, ",
      text_answers_.TakenBy(caller) + bytes, " of them of this caller; the max is ",
      text_answers_.max(), ", of which one caller gets three quarters"));
}

void Door::NoteTextCallEnd(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) text_calls_refused_.Add();
}

absl::StatusOr<Door::EncodedText> Door::Encode(absl::string_view text, absl::string_view name,
                                               EncodeOptions options) const {
  EncodedText encoded;
  options.max_tokens = 2 * options_.limits.text_bytes + kTokensBeside;
  options.dropped_bytes = &encoded.dropped_bytes;
  absl::StatusOr<std::vector<TokenId>> ids =
      options_.model.tokenizer->Encode(text, std::move(options));
  if (!ids.ok()) {
    const absl::StatusCode code =
        absl::IsOutOfRange(ids.status()) ? absl::StatusCode::kInvalidArgument : ids.status().code();
    return absl::Status(code, absl::StrCat(name, ": ", ids.status().message()));
  }
  encoded.ids = *std::move(ids);
  return encoded;
}

absl::StatusOr<Door::EncodedText> Door::Tokenize(absl::string_view model, absl::string_view text,
                                                 bool parse_special, bool add_special,
                                                 std::function<absl::Status()> interrupted) const {
  RETURN_IF_ERROR(CheckModelName(model, options_.model));
  RETURN_IF_ERROR(CheckTextSize("text", text, options_.limits));
  return Encode(text, "text",
                {.parse_special = parse_special,
                 .add_special = add_special,
                 .interrupted = std::move(interrupted)});
}

absl::StatusOr<Door::EncodedText> Door::TokenizeChat(
    absl::string_view model, const Chat& chat, std::function<absl::Status()> interrupted) const {
  RETURN_IF_ERROR(CheckModelName(model, options_.model));
  ASSIGN_OR_RETURN(const ChatRenderer::Prompt prompt,
                   RenderChat(chat, options_.model, options_.limits));
  return Encode(prompt.text, "messages",
                {.add_special = false,
                 .special_ranges = prompt.from_template,
                 .interrupted = std::move(interrupted)});
}

absl::StatusOr<std::string> Door::Detokenize(absl::string_view model, absl::Span<const TokenId> ids,
                                             bool skip_special) const {
  RETURN_IF_ERROR(CheckModelName(model, options_.model));
  const size_t max_bytes = options_.limits.text_bytes;
  if (ids.size() > max_bytes) {
    return BadParameter("token_ids", absl::StrCat("token_ids has ", ids.size(),
                                                  " ids; this router takes up to ", max_bytes));
  }
  const Tokenizer& tokenizer = *options_.model.tokenizer;
  const int vocab = options_.model.config.vocab;
  size_t bytes = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      return BadParameter("token_ids", absl::StrCat("token_ids[", i, "] is ", ids[i],
                                                    "; the vocabulary has ids 0 to ", vocab - 1));
    }
    bytes += tokenizer.TokenBytes(ids[i]).size();
    if (bytes <= max_bytes) continue;
    return BadParameter(
        "token_ids", absl::StrCat("token_ids stand for more than ", max_bytes, " bytes of text"));
  }
  return tokenizer.Decode(ids, skip_special);
}

void Door::SetServing(ServingChanged serving) {
  auto shared = std::make_shared<const ServingChanged>(std::move(serving));
  MutexLock lock(&mutex_);
  serving_ = std::move(shared);
}

std::shared_ptr<const ServingChanged> Door::serving() {
  MutexLock lock(&mutex_);
  return serving_;
}

int Door::context_tokens() {
  const int served = serving()->context_tokens;
  return served > 0 ? std::min(options_.model.config.context, served)
                    : options_.model.config.context;
}

}  // namespace baton
