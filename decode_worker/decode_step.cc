#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "decode_worker/decode_core.h"

// What a step is made of: the batch, and chunks of the prompts that are computed here.
namespace baton {

// Whether a step that is running draws its next token. One at most does when a step is planned.
bool DecodeCore::IsDrawn(const Sequence& sequence) const {
  return sequence.draws && sequence.last_step > done_;
}

// Whether a sequence goes on after its next token, whichever that is, unless it is a stop token.
bool DecodeCore::GoesOn(const Sequence& sequence) const {
  return !IsLastPosition(sequence.tokens(), sequence.job.original_prompt_tokens,
                         sequence.job.sampling, context_) &&
         sequence.tokens() < sequence.rope_reach;
}

bool DecodeCore::DrawsOnDevice(const Sequence& sequence) const {
  return engine_->DrawsOnDevice(sequence.job.sampling, sequence.job.original_prompt_tokens);
}

// Oldest first; of more than fit, those whose last step is longest ago.
std::vector<DecodeWorker::JobId> DecodeCore::ChooseBatch() const {
  std::vector<std::pair<uint64_t, JobId>> ready;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.paused_since) continue;
    if (IsDrawn(sequence) ? !GoesOn(sequence) : sequence.state != State::kReady) continue;
    // What the host draws is known when its step is.
    if (IsDrawn(sequence) && !DrawsOnDevice(sequence)) continue;
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

// Whether blocks come back though nobody is preempted.
bool DecodeCore::SomePullsEnd() const {
  return std::any_of(sequences_.begin(), sequences_.end(),
                     [](const auto& s) { return s.second.state == State::kEnding; });
}

// Blocks for the sequence's last token, at the cost of the youngest if it must be. False: not in
// this step, and perhaps never, for the youngest may be the sequence itself. Nobody pays while a
// step is running: what it draws may end a sequence, and blocks that it writes to may come back.
bool DecodeCore::HasRoomToGrow(Sequence* sequence) {
  const int needed = layout_.BlocksFor(sequence->tokens() + (IsDrawn(*sequence) ? 1 : 0));
  while (static_cast<int>(sequence->blocks.size()) < needed) {
    if (auto block = pool_.Take(1); block.ok()) {
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
                              "preempted: all ", pool_.total_blocks(), " KV blocks are taken and ",
                              youngest->job.request_id, " is the youngest sequence")));
    if (itself) return false;
  }
  return true;
}

// Of a sequence's KV, and one more, so that a promise is good for some tokens at least.
int DecodeCore::FirstBlocks(const Sequence& sequence) const {
  return std::min(layout_.BlocksFor(sequence.tokens()) + 1, layout_.BlocksFor(context_));
}

// That must be free when a prompt begins: its first ones, and one for each sequence that grows, so
// that what begins here is not paid for by preempting it.
int DecodeCore::BlocksToBegin(const Sequence& sequence) const {
  const auto running = std::count_if(sequences_.begin(), sequences_.end(), [](const auto& other) {
    return other.second.state == State::kReady || other.second.state == State::kComputing;
  });
  return FirstBlocks(sequence) + static_cast<int>(running);
}

// Whether a ticket that takes so many blocks now would take those that a prompt waits for.
bool DecodeCore::PromptWaitsFor(int blocks) const {
  for (const JobId id : prompts_) {
    const Sequence& sequence = sequences_.at(id);
    if (sequence.state != State::kQueued || sequence.paused_since) continue;
    return pool_.free_blocks() < BlocksToBegin(sequence) + blocks;
  }
  return false;
}

// Takes the first blocks of a prompt. False: not now.
bool DecodeCore::Begin(Sequence* sequence, absl::Time now) {
  int older = 0;  // younger ones, taken over since, take turns with it
  for (const auto& [id, other] : sequences_) {
    if (id >= sequence->id) break;
    older +=
        other.state == State::kComputing || (other.state == State::kReady && !other.paused_since);
  }
  if (older >= options_.max_batch) return false;
  if (pool_.free_blocks() < BlocksToBegin(*sequence) + OwedBlocks(now)) return false;
  auto blocks = pool_.Take(FirstBlocks(*sequence));
  if (!blocks.ok()) return false;
  prompts_next_ = false;
  sequence->blocks = *std::move(blocks);
  sequence->state = State::kComputing;
  sequence->update(DecodePromised{});
  return true;
}

// Plans which tokens of prompts the next step computes, the oldest prompt first. They get what the
// `batch` sequences that decode leave of chunk_tokens. If that is less than a block, they get a
// block (at most chunk_tokens), so that prompts go on however large the batch is. While the oldest
// queued prompt can't begin, no younger queued one begins.
std::vector<DecodeCore::Chunk> DecodeCore::PlanChunks(int batch, absl::Time now) {
  std::vector<Chunk> chunks;
  int room = std::max(options_.chunk_tokens - batch,
                      std::min(options_.chunk_tokens, layout_.block_tokens));
  bool waits = false;
  for (const JobId id : prompts_) {
    if (room == 0) break;
    Sequence* sequence = Find(id);
    if (sequence->paused_since) continue;
    if (sequence->state == State::kQueued) {
      waits = waits || !Begin(sequence, now);
      if (waits) continue;
    }
    const int tokens = std::min(sequence->tokens() - sequence->computed, room);
    chunks.push_back({sequence, tokens});
    room -= tokens;
  }
  return chunks;
}

// Whether a step is to be run before the next is planned: with a backend that does not draw, or for
// the logprobs of a prompt.
bool DecodeCore::RunsAtOnce(const std::vector<Chunk>& chunks) const {
  return !engine_->draws() || std::any_of(chunks.begin(), chunks.end(), [](const Chunk& chunk) {
    return chunk.sequence->scores.has_value();
  });
}

// Starts a step, and waits for the one before it: the device always has one to go on with. A step
// that is started while none is running is not waited for. False: there was nothing to do.
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

// While a step is running: one that can be planned without knowing what that draws, or none.
bool DecodeCore::StartStep(absl::Time now) {
  const bool behind = !started_.empty();
  std::vector<JobId> batch;
  for (const JobId id : ChooseBatch()) {
    Sequence* sequence = Find(id);  // an older one may have preempted it
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
    const bool drawn = IsDrawn(*sequence);
    plan.items.push_back({.tokens = absl::MakeConstSpan(sequence->job.tokens).last(drawn ? 0 : 1),
                          .first_position = sequence->tokens() - (drawn ? 0 : 1),
                          .blocks = sequence->blocks,
                          .sampling = &sequence->job.sampling,
                          .original_prompt_tokens = sequence->job.original_prompt_tokens,
                          .history = sequence->history ? &*sequence->history : nullptr,
                          .rope_reach = sequence->rope_reach,
                          .sequence = sequence->id,
                          .follows = drawn ? std::make_optional(sequence->item) : std::nullopt});
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

// What sequences and prompts are once the step has begun.
DecodeCore::Step DecodeCore::Started(const std::vector<JobId>& batch,
                                     const std::vector<Chunk>& chunks, absl::Time now) {
  Step step = {.number = ++steps_, .started = now};
  const auto add = [&step](Sequence* sequence, int chunk, bool draws) {
    sequence->last_step = step.number;
    sequence->item = static_cast<int>(step.parts.size());
    sequence->draws = draws;
    step.parts.push_back({sequence->id, chunk, draws});
  };
  for (const JobId id : batch) {
    Sequence* sequence = Find(id);
    sequence->last_turn = step.number;
    add(sequence, 0, true);
  }
  for (const auto& [sequence, tokens] : chunks) {
    sequence->computed += tokens;
    Computed(tokens);
    const bool last = sequence->computed == sequence->tokens();
    if (last) prompts_.erase(std::find(prompts_.begin(), prompts_.end(), sequence->id));
    add(sequence, tokens, last);
  }
  return step;
}

}  // namespace baton
