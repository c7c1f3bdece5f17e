#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/worker/prompt_order.h"
#include "decode_worker/decode_core.h"

// Decides what a step contains: the batch, and chunks of the prompts that are computed here.
namespace baton {
namespace {

// Number of prompts that may begin before the oldest one that waits.
constexpr int kMayPass = 1;

}  // namespace

// Returns true if a running step samples the next token of this sequence. While a step is being
// planned, at most one other step is running.
bool DecodeCore::IsSampled(const Sequence& sequence) const {
  return sequence.samples && sequence.last_step > done_;
}

// Returns true if the sequence continues after its next token, unless that token is a stop token.
bool DecodeCore::GoesOn(const Sequence& sequence) const {
  return !IsLastPosition(sequence.tokens(), sequence.job.original_prompt_tokens,
                         sequence.job.sampling, context_) &&
         sequence.tokens() < sequence.rope_reach;
}

bool DecodeCore::SamplesOnDevice(const Sequence& sequence) const {
  return engine_->SamplesOnDevice(sequence.job.sampling, sequence.job.original_prompt_tokens);
}

// Returns the sequences of the next batch, oldest first. If more are ready than fit, chooses those
// whose last step was longest ago.
std::vector<DecodeWorker::JobId> DecodeCore::ChooseBatch() const {
  std::vector<std::pair<uint64_t, JobId>> ready;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.paused_since) continue;
    if (IsSampled(sequence) ? !GoesOn(sequence) : sequence.state != State::kReady) continue;
    // The token of the running step is not known before that step has ended, because the host
    // samples it. So the sequence can't be in the next step.
    if (IsSampled(sequence) && !SamplesOnDevice(sequence)) continue;
    ready.emplace_back(sequence.last_turn, id);
  }
  if (ready.size() > static_cast<size_t>(options_.max_batch)) {
    std::nth_element(ready.begin(), ready.begin() + options_.max_batch, ready.end());
    ready.resize(options_.max_batch);
  }
  std::vector<JobId> batch;
  for (const auto& [last_turn, id] : ready) batch.push_back(id);
  std::sort(batch.begin(), batch.end());
  return batch;
}

// Returns true if a cancelled pull is about to end. Its end frees blocks, so it is not necessary to
// preempt a sequence.
bool DecodeCore::SomePullsEnd() const {
  return std::any_of(sequences_.begin(), sequences_.end(),
                     [](const auto& s) { return s.second.state == State::kEnding; });
}

// Takes the blocks that the sequence needs for its last token. If no block is free, preempts the
// youngest sequence. Returns false if the sequence can't be in this step; it may have been
// preempted itself.
//
// Preempts no sequence while a step is running or a cancelled pull is about to end: the end of the
// step or pull may free blocks.
bool DecodeCore::HasRoomToGrow(Sequence* sequence) {
  const int needed = layout_.BlocksFor(sequence->tokens() + (IsSampled(*sequence) ? 1 : 0));
  while (static_cast<int>(sequence->blocks.size()) < needed) {
    if (auto block = cache_.Take(1); block.ok()) {
      sequence->blocks.push_back(block->front());
      continue;
    }
    if (!started_.empty() || SomePullsEnd()) return false;
    const auto holder = std::find_if(sequences_.rbegin(), sequences_.rend(),
                                     [](const auto& s) { return !s.second.blocks.empty(); });
    Sequence* youngest = &holder->second;
    const bool itself = youngest == sequence;
    metrics_->preemptions.Add();
    BeginEnding(youngest, absl::ResourceExhaustedError(absl::StrCat(
                              "preempted: all ", cache_.total_blocks(), " KV blocks are taken and ",
                              youngest->job.request_id, " is the youngest sequence")));
    if (itself) return false;
  }
  return true;
}

// Returns the number of blocks for the sequence's KV plus one more, so that an admitted sequence
// can generate at least some tokens.
int DecodeCore::FirstBlocks(const Sequence& sequence) const {
  return std::min(layout_.BlocksFor(sequence.tokens()) + 1, layout_.BlocksFor(context_));
}

// Returns the number of free blocks that a new sequence must leave: one per running sequence, so
// that none of them has to be preempted soon after.
int DecodeCore::BlocksToGrow() const {
  return static_cast<int>(
      std::count_if(sequences_.begin(), sequences_.end(), [](const auto& other) {
        return other.second.state == State::kReady || other.second.state == State::kComputing;
      }));
}

// Returns the number of free blocks needed to admit a prompt.
int DecodeCore::BlocksToBegin(const Sequence& sequence) const {
  return FirstBlocks(sequence) + BlocksToGrow();
}

// Returns the number of free blocks that a prompt leaves for a refused ticket: the blocks of the
// ticket, and two for each running sequence. Each sequence may take one of its two blocks before
// the ticket comes again. The other one must then still be free, because a ticket is taken only if
// one free block is left for each running sequence.
int DecodeCore::KeptForTicket(absl::Time now) const {
  const int owed = OwedBlocks(now);
  return owed > 0 ? owed + 2 * BlocksToGrow() : 0;
}

// Returns true if a ticket that takes `blocks` blocks now would leave too few for the queued prompt
// that begins next.
bool DecodeCore::PromptWaitsFor(int blocks) {
  for (const JobId id : PromptsInTurn()) {
    const Sequence& sequence = sequences_.at(id);
    if (sequence.state != State::kQueued || OlderFillBatch(sequence)) continue;
    return cache_.available() < BlocksToBegin(sequence) + blocks;
  }
  return false;
}

// Returns true if sequences that are older than this queued one fill the batch. Younger ones take
// turns with it.
bool DecodeCore::OlderFillBatch(const Sequence& sequence) const {
  int older = 0;
  for (const auto& [id, other] : sequences_) {
    if (id >= sequence.id) break;
    older +=
        other.state == State::kComputing || (other.state == State::kReady && !other.paused_since);
  }
  return older >= options_.max_batch;
}

// Takes the first blocks of a prompt. Returns false, and takes none, if the prompt can't begin now.
// `wait.since` is then set if the prompt waits for a block that another sequence is pulling or
// computing.
bool DecodeCore::Begin(Sequence* sequence, absl::Time now) {
  std::vector<BlockId> found =
      FindPrefix(sequence->chain, sequence->job.tokens, sequence->job.cache);
  const int hits = static_cast<int>(found.size());
  if (sequence->wait.GoesOn(IsComing(*sequence, found.size()), found.size(), now) ||
      cache_.available() < BlocksToBegin(*sequence) - hits + KeptForTicket(now)) {
    cache_.Release(found);
    return false;
  }
  const auto own = cache_.Take(FirstBlocks(*sequence) - hits);
  if (!own.ok()) {
    cache_.Release(found);
    return false;
  }
  prompts_next_ = false;
  passed_ = sequence->id == OldestQueued() ? 0 : passed_ + 1;
  found.insert(found.end(), own->begin(), own->end());
  sequence->blocks = std::move(found);
  sequence->named = hits;
  sequence->cached = sequence->computed = sequence->written = hits * layout_.block_tokens;
  Computed(sequence->cached);
  metrics_->cached_tokens.Add(static_cast<uint64_t>(sequence->cached));
  sequence->state = State::kComputing;
  sequence->update(DecodeReserved{.cached_tokens = sequence->cached});
  return true;
}

// Returns true if this sequence may find its block number `block` in the cache once another
// sequence, which is pulling or computing that block, has given it its name.
bool DecodeCore::IsComing(const Sequence& sequence, size_t block) const {
  if (sequence.job.cache != CacheUse::kOn || sequence.chain.empty() ||
      static_cast<int>(block) >= MaxHit(sequence.tokens())) {
    return false;
  }
  const BlockName& name = sequence.chain.names()[block];
  return std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& entry) {
    const Sequence& other = entry.second;
    return (other.state == State::kPulling || other.state == State::kComputing) &&
           static_cast<size_t>(other.named) <= block && block < other.chain.names().size() &&
           other.chain.names()[block] == name;
  });
}

// Returns the oldest prompt that waits to begin and is not paused, or 0.
DecodeWorker::JobId DecodeCore::OldestQueued() {
  const auto oldest = std::find_if(prompts_.begin(), prompts_.end(), [this](JobId id) {
    const Sequence* sequence = Find(id);
    return sequence->state == State::kQueued && !sequence->paused_since;
  });
  return oldest == prompts_.end() ? 0 : *oldest;
}

// Returns the sequences whose prompts are computed here and that are not paused, in the order in
// which they are computed: callers take turns, and of one caller the oldest goes first. Once
// kMayPass prompts have begun before the oldest one that waits, it is the next that begins.
// (Without that, a caller whose answers fill the batch could wait as long as another one sends
// prompts.)
std::vector<DecodeWorker::JobId> DecodeCore::PromptsInTurn() {
  std::vector<JobId> waiting;
  std::vector<CallerTurns::Prompt> prompts;
  for (const JobId id : prompts_) {
    const Sequence* sequence = Find(id);
    if (sequence->paused_since) continue;
    waiting.push_back(id);
    prompts.push_back({sequence->job.caller, sequence->tokens() - sequence->computed});
  }
  std::vector<JobId> ordered;
  for (const size_t i : turns_.Order(prompts)) ordered.push_back(waiting[i]);
  LetOldestBegin(&ordered, 0);
  return ordered;
}

// Puts the oldest prompt that waits in front of the other ones that wait at the places from `from`
// on, if it is the next that begins.
void DecodeCore::LetOldestBegin(std::vector<JobId>* order, size_t from) {
  if (passed_ < kMayPass) return;
  const auto next = std::find_if(order->begin() + static_cast<ptrdiff_t>(from), order->end(),
                                 [this](JobId id) { return Find(id)->state == State::kQueued; });
  const auto oldest = std::find(next, order->end(), OldestQueued());
  if (oldest != order->end()) std::rotate(next, oldest, oldest + 1);
}

// Plans which tokens of prompts the next step computes (PromptsInTurn). A step has chunk_tokens
// tokens: one for each of the `batch` sequences, and the rest for prompts. The prompts get at least
// one block of tokens (at most chunk_tokens), so that they go on however large the batch is. The
// oldest prompt that has begun gets its part wherever it stands in the order. While a queued prompt
// finds too few free blocks, no queued prompt behind it begins.
std::vector<DecodeCore::Chunk> DecodeCore::PlanChunks(int batch, absl::Time now) {
  std::vector<Chunk> chunks;
  int room = std::max(options_.chunk_tokens - batch,
                      std::min(options_.chunk_tokens, layout_.block_tokens));
  const auto oldest = std::find_if(prompts_.begin(), prompts_.end(), [this](JobId id) {
    const Sequence* sequence = Find(id);
    return sequence->state == State::kComputing && !sequence->paused_since;
  });
  int kept = 0;
  if (oldest != prompts_.end()) {
    const Sequence* sequence = Find(*oldest);
    kept = std::min(sequence->tokens() - sequence->computed,
                    PromptOrder::OldestShare(room, /*block_tokens=*/1));
    room -= kept;
  }
  bool waits = false;
  std::vector<JobId> order = PromptsInTurn();
  for (size_t place = 0; place < order.size(); ++place) {
    const JobId id = order[place];
    Sequence* sequence = Find(id);
    if (kept > 0 && id == *oldest) room += std::exchange(kept, 0);
    const size_t max_chunks = static_cast<size_t>(options_.max_batch) - (kept > 0 ? 1 : 0);
    if (room == 0 || chunks.size() >= max_chunks) continue;
    if (sequence->state == State::kQueued) {
      if (waits || OlderFillBatch(*sequence)) continue;
      if (!Begin(sequence, now)) {
        waits = !sequence->wait.since;
        continue;
      }
      LetOldestBegin(&order, place + 1);
    }
    const int tokens = std::min(sequence->tokens() - sequence->computed, room);
    chunks.push_back({sequence, tokens});
    room -= tokens;
  }
  return chunks;
}

// Returns true if the step must end before the next one is planned. This is so if the backend does
// not sample on the device, or if the step computes logprobs of a prompt.
bool DecodeCore::RunsAtOnce(const std::vector<Chunk>& chunks) const {
  return !engine_->samples() || std::any_of(chunks.begin(), chunks.end(), [](const Chunk& chunk) {
    return chunk.sequence->scores.has_value();
  });
}

// Starts a step, and then waits for the step before it, so that the device always has a step to
// run. Does not wait if no step was running before. Returns false if there was nothing to do.
bool DecodeCore::RunStep(absl::Time now) {
  const bool idle = started_.empty();
  const bool worked = StartStep(now);
  if (started_.empty()) return worked;
  if (idle) return true;
  finished_ = FinishedStep{std::move(started_.front()), engine_->Finish()};
  started_.pop_front();
  if (options_.pulse != nullptr) options_.pulse->Beat();
  return true;
}

// Starts a step, or runs it to its end (RunsAtOnce). While a step is running, starts another one
// only if it can be planned without the tokens of the running step. If the start fails, ends all
// sequences of the step. Returns false if there was nothing to start.
bool DecodeCore::StartStep(absl::Time now) {
  const bool behind = !started_.empty();
  std::vector<JobId> batch;
  for (const JobId id : ChooseBatch()) {
    Sequence* sequence = Find(id);  // null if an older sequence has preempted it
    if (sequence == nullptr) continue;
    if (HasRoomToGrow(sequence)) {
      batch.push_back(id);
    } else if (behind && !SomePullsEnd()) {
      return false;
    }
  }
  const std::vector<Chunk> chunks = PlanChunks(static_cast<int>(batch.size()), now);
  if (batch.empty() && chunks.empty()) return false;
  const bool at_once = RunsAtOnce(chunks);
  if (at_once && behind) return false;
  const StepPlan plan = PlanOf(batch, chunks);
  absl::StatusOr<Engine::Tokens> tokens;
  absl::Status status;
  if (at_once) {
    tokens = engine_->Run(plan);
    status = tokens.status();
  } else {
    status = engine_->Start(plan);
  }
  if (!status.ok()) {
    Fail(batch, chunks, status);
    return true;
  }
  Step step = Started(batch, chunks, now);
  if (at_once) {
    finished_ = FinishedStep{std::move(step), std::move(tokens)};
  } else {
    if (behind) metrics_->steps_ahead.Add();
    started_.push_back(std::move(step));
  }
  return true;
}

StepPlan DecodeCore::PlanOf(const std::vector<JobId>& batch, const std::vector<Chunk>& chunks) {
  StepPlan plan;
  plan.items.reserve(batch.size() + chunks.size());
  for (const JobId id : batch) {
    const Sequence* sequence = Find(id);
    const bool sampled = IsSampled(*sequence);
    plan.items.push_back({.tokens = absl::MakeConstSpan(sequence->job.tokens).last(sampled ? 0 : 1),
                          .first_position = sequence->tokens() - (sampled ? 0 : 1),
                          .blocks = sequence->blocks,
                          .sampling = &sequence->job.sampling,
                          .original_prompt_tokens = sequence->job.original_prompt_tokens,
                          .history = sequence->history ? &*sequence->history : nullptr,
                          .rope_reach = sequence->rope_reach,
                          .sequence = sequence->id,
                          .follows = sampled ? std::make_optional(sequence->item) : std::nullopt});
  }
  for (const auto& [sequence, tokens] : chunks) {
    const DecodeJob& job = sequence->job;
    const bool last = sequence->computed + tokens == sequence->tokens();
    plan.items.push_back(
        {.tokens = absl::MakeConstSpan(job.tokens).subspan(sequence->computed, tokens),
         .first_position = sequence->computed,
         .blocks = sequence->blocks,
         .sampling = last ? &job.sampling : nullptr,
         .original_prompt_tokens = job.original_prompt_tokens,
         .history = last && sequence->history ? &*sequence->history : nullptr,
         .scores = sequence->scores ? &*sequence->scores : nullptr,
         .rope_reach = sequence->rope_reach,
         .sequence = sequence->id});
  }
  return plan;
}

void DecodeCore::Fail(const std::vector<JobId>& batch, const std::vector<Chunk>& chunks,
                      const absl::Status& status) {
  const absl::Status failed = absl::InternalError(absl::StrCat(
      "step of ", batch.size(), " sequences and ", chunks.size(), " prompts: ", status.message()));
  for (const JobId id : batch) End(Find(id), failed);
  for (const Chunk& chunk : chunks) End(chunk.sequence, failed);
}

// Updates the sequences of a step that has been started, and returns the step.
DecodeCore::Step DecodeCore::Started(const std::vector<JobId>& batch,
                                     const std::vector<Chunk>& chunks, absl::Time now) {
  Step step = {.number = ++steps_, .started = now};
  const auto add = [&step](Sequence* sequence, int chunk, bool samples) {
    sequence->last_step = step.number;
    sequence->item = static_cast<int>(step.parts.size());
    sequence->samples = samples;
    step.parts.push_back({sequence->id, chunk, samples});
  };
  for (const JobId id : batch) {
    Sequence* sequence = Find(id);
    sequence->last_turn = step.number;
    add(sequence, 0, true);
    if (!prompts_.empty()) turns_.Charge(sequence->job.caller, 1);
  }
  for (const auto& [sequence, tokens] : chunks) {
    sequence->computed += tokens;
    Computed(tokens);
    turns_.Charge(sequence->job.caller, tokens);
    const bool last = sequence->computed == sequence->tokens();
    if (last) prompts_.erase(std::find(prompts_.begin(), prompts_.end(), sequence->id));
    add(sequence, tokens, last);
  }
  return step;
}

}  // namespace baton
