#include "decode_worker/decode_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/engine/handover_note.h"
#include "decode_worker/decode_core.h"

namespace baton {
namespace {

// Time for which free blocks are kept for a refused ticket. Routers retry a refused ticket within
// 320 ms.
constexpr absl::Duration kOwed = absl::Milliseconds(500);

}  // namespace

absl::Status DecodeCore::Check(const DecodeJob& job) const {
  const size_t tokens = job.tokens.size();
  if (tokens == 0 || tokens >= static_cast<size_t>(context_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the sequence has ", tokens, " tokens; this worker takes 1 to ", context_ - 1));
  }
  RETURN_IF_ERROR(CheckTokens(job.tokens, job.original_prompt_tokens));
  const int generated = static_cast<int>(tokens) - job.original_prompt_tokens;
  if (!job.ticket && job.sampling.max_tokens <= generated) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens is ", job.sampling.max_tokens,
                                                   " and ", generated,
                                                   " tokens have been generated already"));
  }
  const size_t blocks = layout_.BlocksFor(static_cast<int>(tokens));
  if (job.ticket &&
      (job.ticket->tokens != static_cast<int>(tokens) || job.ticket->blocks.size() != blocks ||
       job.ticket->generations.size() != blocks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ticket of ", job.ticket->tokens, " tokens, ", job.ticket->blocks.size(),
                     " blocks and ", job.ticket->generations.size(),
                     " generations; the sequence has ", tokens, " tokens in ", blocks, " blocks"));
  }
  return absl::OkStatus();
}

absl::StatusOr<DecodeWorker::JobId> DecodeCore::Submit(DecodeJob job, Update update) {
  RETURN_IF_ERROR(Check(job));
  if (!job.ticket && job.sampling.prompt_logprobs && job.cache == CacheUse::kOn) {
    job.cache = CacheUse::kNoHits;
  }
  ASSIGN_OR_RETURN(
      const JobId id,
      TakePlace(options_.max_inbox, job.ticket ? 0 : job.tokens.size(), "decode worker", [this] {
        return absl::StrCat("decode inbox is full: ", options_.max_inbox, " sequences");
      }));
  Arrived arrived{id, std::move(job), std::move(update), std::nullopt, {}};
  // Counts the tokens that penalties depend on, and names the blocks. This runs on the caller's
  // thread, so that a long prompt does not delay the loop.
  arrived.chain = ChainFor(arrived.job.tokens, arrived.job.original_prompt_tokens,
                           arrived.job.cache_salt, arrived.job.cache);
  if (arrived.job.sampling.LooksBack()) {
    arrived.history.emplace(arrived.job.tokens, arrived.job.original_prompt_tokens);
  }
  mailbox_->Send(std::move(arrived));
  return id;
}

void DecodeCore::CountJobs() {
  WorkerLoad load;
  for (const auto& [id, sequence] : sequences_) {
    const bool can_run = (sequence.state == State::kReady || sequence.state == State::kComputing) &&
                         !sequence.paused_since;
    ++(can_run && load.running < options_.max_batch ? load.running : load.waiting);
  }
  metrics_->evicted_blocks.Add(TakeEvictions());
  ReportLoad(load);
}

bool DecodeCore::RunOnce(absl::Time now) {
  BeginTurn(now);
  bool worked = finished_.has_value();
  HandOutResults(now);
  for (Message& message : mailbox_->TakeAll()) {
    worked = true;
    std::visit([this, now](auto& m) { Handle(std::move(m), now); }, message);
  }
  worked |= EndPaused(now);
  worked |= ReserveAwaiting(now);
  worked |= RunStep(now);
  CountJobs();
  return worked;
}

void DecodeCore::HandOutResults(absl::Time now) {
  if (!finished_) return;
  FinishedStep finished = *std::exchange(finished_, std::nullopt);
  const Step& step = finished.step;
  done_ = step.number;
  // A step may be started while the previous step runs. It then begins when the previous step ends.
  const absl::Time began = std::max(step.started, done_at_);
  done_at_ = now;
  for (const auto& left : leaving_) cache_.Release(left.mapped().blocks);
  leaving_.clear();
  if (!finished.tokens.ok()) {
    const absl::Status failed = absl::InternalError(absl::StrCat(
        "step of ", step.parts.size(), " sequences: ", finished.tokens.status().message()));
    for (const Part& part : step.parts) {
      if (Sequence* sequence = Find(part.id)) End(sequence, failed);
    }
    return;
  }
  metrics_->step_seconds.Observe(now - began);
  int generating = 0, prompt_tokens = 0;
  auto token = finished.tokens->begin();
  for (const Part& part : step.parts) {
    absl::StatusOr<SampledToken>* const sampled = part.samples ? &*token++ : nullptr;
    prompt_tokens += part.chunk;
    // A sequence that ended while the step was running does not need the results.
    Sequence* const sequence = Find(part.id);
    if (sequence == nullptr) {
      if (part.samples) metrics_->surplus_tokens.Add();
      continue;
    }
    if (part.chunk == 0) {
      ++generating;
      if (!sequence->first_step) sequence->first_step = began;
    } else if (sampled != nullptr) {
      sequence->state = State::kReady;
      sequence->ready = now;
    }
    HandOutPart(sequence, part.chunk, sampled, now);
  }
  if (generating > 0) metrics_->step_sequences.Observe(generating);
  if (prompt_tokens > 0) {
    metrics_->step_prompt_tokens.Observe(prompt_tokens);
    metrics_->prompt_tokens.Add(static_cast<uint64_t>(prompt_tokens));
  }
}

// Hands out what a step computed for one sequence. `chunk` is the number of prompt tokens that the
// step computed, or 0 if the sequence was in the batch. `token` is null for a chunk that is not the
// last of its prompt.
void DecodeCore::HandOutPart(Sequence* sequence, int chunk, absl::StatusOr<SampledToken>* token,
                             absl::Time now) {
  if (sequence->scores) {
    DecodePromptTokens prompt;
    prompt.tokens = std::exchange(sequence->scores->tokens, {});
    if (!prompt.tokens.empty()) sequence->update(std::move(prompt));
    if (!sequence->scores->status.ok()) {
      End(sequence, std::move(sequence->scores->status));
      return;
    }
    if (sequence->computed >= sequence->job.original_prompt_tokens) sequence->scores.reset();
  }
  if (token != nullptr && !token->ok()) {
    End(sequence, token->status());
    return;
  }
  sequence->written += chunk > 0 ? chunk : 1;
  NameBlocks(sequence);
  if (token == nullptr) return;
  metrics_->generated_tokens.Add();
  HandOut(sequence, *std::move(*token), now);
}

// Gives names to the blocks that are full of tokens whose KV is known to be right. The token that
// the next step takes in has no KV yet. A step that still runs writes only behind these blocks.
void DecodeCore::NameBlocks(Sequence* sequence) {
  const int full = sequence->written / layout_.block_tokens;
  if (full == sequence->named) return;
  sequence->named = full;
  cache_.Name(&sequence->chain, sequence->job.tokens, sequence->blocks, full);
}

void DecodeCore::HandOut(Sequence* sequence, SampledToken token, absl::Time now) {
  const TokenId id = token.id;
  const auto finish = FinishAt(id, token.position, sequence->job.original_prompt_tokens,
                               sequence->job.sampling, context_);
  sequence->job.tokens.push_back(id);
  if (sequence->history) sequence->history->Append(id);
  DecodeTokens tokens;
  tokens.tokens.push_back(std::move(token));
  sequence->update(std::move(tokens));
  if (!finish && sequence->tokens() > sequence->rope_reach) {
    sequence->update(DecodeOutgrown{});
    End(sequence, absl::FailedPreconditionError(
                      absl::StrCat(sequence->job.request_id, " has ", sequence->tokens(),
                                   " tokens; its rotary table ends at ", sequence->rope_reach)));
    return;
  }
  if (!finish) return;
  DecodeFinished& summary = sequence->summary;
  summary.reason = *finish;
  if (*finish == FinishReason::kStop) summary.stop_token = id;
  if (sequence->first_step) {
    summary.decode_wait = *sequence->first_step - sequence->ready;
    summary.decode = now - *sequence->first_step;
  }
  sequence->update(std::move(summary));
  End(sequence, absl::OkStatus());
}

void DecodeCore::Handle(Arrived message, absl::Time now) {
  LeavePlace();
  Sequence* sequence = &sequences_[message.id];
  sequence->id = message.id;
  sequence->job = std::move(message.job);
  sequence->update = std::move(message.update);
  sequence->history = std::move(message.history);
  sequence->chain = std::move(message.chain);
  sequence->rope_reach = RopeReach(rope_, sequence->job.original_prompt_tokens, sequence->tokens());
  const bool queued = !sequence->job.ticket;
  sequence->state = queued ? State::kQueued : State::kAwaiting;
  sequence->wait.for_all_blocks = !queued;
  int of_its_kind = 0;
  for (const auto& [id, other] : sequences_) {
    of_its_kind += (other.state == State::kQueued) == queued;
  }
  if (of_its_kind > options_.max_sequences) {
    End(sequence, absl::ResourceExhaustedError(absl::StrCat(
                      "decode worker has ", options_.max_sequences,
                      queued ? " prompts in its queue" : " sequences", ", which is its max")));
    return;
  }
  if (queued) {
    if (const std::optional<int> alternatives = sequence->job.sampling.prompt_logprobs) {
      const auto prompt =
          absl::MakeConstSpan(sequence->job.tokens).first(sequence->job.original_prompt_tokens);
      sequence->scores = PromptScores{.prompt = prompt, .alternatives = *alternatives};
    }
    prompts_.push_back(sequence->id);
    return;
  }
  if (!Reserve(sequence, now)) awaiting_.push_back(sequence->id);
}

// Reserves the blocks of a sequence in kAwaiting and starts its pull. Ends the sequence if too few
// blocks are free, or if a prompt waits for them. Returns false, and reserves none, while another
// sequence is pulling or computing the first block that this sequence does not find in the cache.
bool DecodeCore::Reserve(Sequence* sequence, absl::Time now) {
  std::vector<BlockId> found =
      FindPrefix(sequence->chain, sequence->job.tokens, sequence->job.cache);
  if (sequence->wait.GoesOn(IsComing(*sequence, found.size()), found.size(), now)) {
    cache_.Release(found);
    return false;
  }
  sequence->state = State::kPulling;
  sequence->blocks = std::move(found);
  sequence->named = static_cast<int>(sequence->blocks.size());
  sequence->cached = sequence->named * layout_.block_tokens;
  const int wanted = FirstBlocks(*sequence) - sequence->named, needed = wanted + BlocksToGrow();
  const bool overtakes = PromptWaitsFor(wanted);
  const auto take = [&]() -> absl::StatusOr<std::vector<BlockId>> {
    if (overtakes && wanted > OwedBlocks(now)) {
      return absl::ResourceExhaustedError(
          "decode worker is full: other prompts wait for its KV blocks");
    }
    if (cache_.available() < needed) {
      return absl::ResourceExhaustedError(
          absl::StrCat("KV blocks: ", wanted, " wanted and ", needed - wanted,
                       " kept for the sequences that run, ", cache_.available(), " free"));
    }
    return cache_.Take(wanted);
  };
  const auto blocks = take();
  if (!blocks.ok()) {
    if (!prompts_next_) {
      owed_ = std::max(OwedBlocks(now), wanted);
      owed_until_ = now + kOwed;
    }
    End(sequence, blocks.status());
    return true;
  }
  prompts_next_ = prompts_next_ || overtakes;
  if (overtakes || wanted >= owed_) owed_ = 0;
  sequence->blocks.insert(sequence->blocks.end(), blocks->begin(), blocks->end());
  metrics_->cached_tokens.Add(static_cast<uint64_t>(sequence->cached));
  const std::vector<BlockId> into(sequence->blocks.begin(),
                                  sequence->blocks.begin() + layout_.BlocksFor(sequence->tokens()));
  on_kv_thread_([puller = puller_, mailbox = mailbox_, id = sequence->id, pull = sequence->pull,
                 ticket = *sequence->job.ticket, attempt = sequence->job.attempt, into,
                 held = sequence->named] {
    pull->id = puller->Start(
        ticket, attempt, into,
        [mailbox, id](PullResult result) {
          mailbox->Send(PullDone{id, std::move(result)});
        },
        held);
  });
  sequence->update(DecodeReserved{.cached_tokens = sequence->cached});
  return true;
}

// Tries again to reserve blocks for the sequences that wait, oldest first. Returns true if any of
// them no longer waits.
bool DecodeCore::ReserveAwaiting(absl::Time now) {
  bool worked = false;
  for (auto it = awaiting_.begin(); it != awaiting_.end();) {
    Sequence* sequence = Find(*it);
    // Removes the sequence from awaiting_ before Reserve, because a sequence that ends in Reserve
    // also removes itself.
    const JobId id = sequence->id;
    it = awaiting_.erase(it);
    if (Reserve(sequence, now)) {
      worked = true;
    } else {
      it = std::next(awaiting_.insert(it, id));
    }
  }
  return worked;
}

void DecodeCore::Handle(CancelAsked message, absl::Time) {
  if (Sequence* sequence = Find(message.id)) {
    BeginEnding(sequence, absl::CancelledError("decode cancelled"));
  }
}

void DecodeCore::Handle(PauseAsked message, absl::Time now) {
  Sequence* sequence = Find(message.id);
  if (sequence == nullptr || sequence->paused_since.has_value() == message.paused) return;
  sequence->paused_since = message.paused ? std::make_optional(now) : std::nullopt;
}

void DecodeCore::Handle(PullDone message, absl::Time now) {
  metrics_->Pulled(message.result);
  Sequence* sequence = Find(message.id);
  PullResult& pulled = message.result;
  if (sequence->state == State::kEnding) {
    End(sequence, std::move(MakesKvSuspect(pulled.status) ? pulled.status : sequence->end));
    return;
  }
  if (!pulled.status.ok()) {
    End(sequence, std::move(pulled.status));
    return;
  }
  auto note = HandoverNote::Decode(pulled.payload);
  if (!note.ok() || note->first_token.position != sequence->tokens() ||
      note->first_token.id >= vocab_) {
    End(sequence,
        absl::DataLossError(absl::StrCat(
            "pull of ", sequence->job.request_id, " from ", sequence->job.ticket->owner, ": ",
            note.ok()
                ? absl::StrCat("first token ", note->first_token.id, " of position ",
                               note->first_token.position, " after ", sequence->tokens(), " tokens")
                : note.status().message())));
    return;
  }
  sequence->state = State::kReady;
  sequence->ready = now;
  sequence->written = sequence->tokens();
  NameBlocks(sequence);
  sequence->summary.handover_hidden = pulled.hidden;
  sequence->summary.handover_exposed = pulled.exposed;
  sequence->summary.link = std::move(pulled.link);
  HandOut(sequence, std::move(note->first_token), now);
}

bool DecodeCore::EndPaused(absl::Time now) {
  bool worked = false;
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    Sequence* sequence = &(it++)->second;
    if (!sequence->paused_since || sequence->state == State::kEnding) continue;
    if (now - *sequence->paused_since <= options_.pause_limit) continue;
    BeginEnding(sequence, absl::ResourceExhaustedError(
                              absl::StrCat("the sequence was paused for more than ",
                                           absl::FormatDuration(options_.pause_limit),
                                           ": its tokens are read too slowly")));
    worked = true;
  }
  return worked;
}

void DecodeCore::BeginEnding(Sequence* sequence, absl::Status status) {
  if (sequence->state == State::kEnding) return;
  if (sequence->state != State::kPulling) {
    End(sequence, std::move(status));
    return;
  }
  sequence->state = State::kEnding;
  sequence->end = std::move(status);
  on_kv_thread_([puller = puller_, pull = sequence->pull] { puller->Cancel(pull->id); });
}

void DecodeCore::End(Sequence* sequence, absl::Status status) {
  if (sequence->state == State::kAwaiting) {
    const auto waiting = std::find(awaiting_.begin(), awaiting_.end(), sequence->id);
    if (waiting != awaiting_.end()) awaiting_.erase(waiting);
  }
  if (sequence->state == State::kQueued || sequence->state == State::kComputing) {
    const auto prompt = std::find(prompts_.begin(), prompts_.end(), sequence->id);
    if (prompt != prompts_.end()) prompts_.erase(prompt);
    Computed(sequence->tokens() - sequence->computed);
  }
  if (LogEnabled(Severity::kDebug)) {
    Log(Severity::kDebug, "sequence_ended",
        {{kRequestId, sequence->job.request_id},
         {"tokens", sequence->tokens()},
         {"status", status.ToString()}});
  }
  const Update update = std::move(sequence->update);
  auto left = sequences_.extract(sequence->id);
  const std::vector<BlockId>& blocks = left.mapped().blocks;
  if (sequence->last_step > done_) {
    // The running step still writes behind the blocks with names. Its blocks are released when it
    // has ended.
    if (MakesKvSuspect(status)) cache_.Forget(blocks);
    leaving_.push_back(std::move(left));
  } else {
    ReleaseBlocks(blocks, status);
  }
  update(DecodeEnded{std::move(status)});
  Ended();
}

DecodeCore::Sequence* DecodeCore::Find(JobId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

// In one step there are at most max_batch generating sequences, and chunks of at most max_batch
// prompts.
StepSize DecodeWorker::MaxStep(const Options& options) {
  const int batch = std::clamp(options.max_batch, 1, kMaxBatch);
  const int chunk = std::clamp(options.chunk_tokens, 1, kMaxChunk);
  return {batch + chunk, batch + std::min(batch, chunk), options.context};
}

absl::StatusOr<std::unique_ptr<DecodeWorker>> DecodeCore::Create(Options options,
                                                                 const Model* model,
                                                                 Backend* backend, KvPlane* plane,
                                                                 KvPuller* puller,
                                                                 KvThread on_kv_thread) {
  if (options.chunk_tokens < 1 || options.chunk_tokens > kMaxChunk) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_tokens is ", options.chunk_tokens, "; it takes 1 to ", kMaxChunk));
  }
  if (options.max_batch > kMaxBatch) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_batch is ", options.max_batch, "; it takes 1 to ", kMaxBatch));
  }
  if (options.max_batch < 1 || options.max_sequences < 1 || options.max_inbox < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_batch is ", options.max_batch, ", max_sequences ", options.max_sequences,
                     " and max_inbox ", options.max_inbox, "; all take at least 1"));
  }
  ASSIGN_OR_RETURN(Parts parts, MakeParts(options.context, options.reuse_last_freed, options.cache,
                                          options.pulse, model, backend, plane,
                                          std::move(on_kv_thread), [&options](int context) {
                                            options.context = context;
                                            return MaxStep(options);
                                          }));
  return std::make_unique<DecodeCore>(std::move(options), std::move(parts), puller);
}

absl::StatusOr<std::unique_ptr<DecodeWorker>> DecodeWorker::Create(Options options,
                                                                   const Model* model,
                                                                   Backend* backend, KvPlane* plane,
                                                                   KvPuller* puller,
                                                                   KvThread on_kv_thread) {
  return DecodeCore::Create(std::move(options), model, backend, plane, puller,
                            std::move(on_kv_thread));
}

}  // namespace baton
