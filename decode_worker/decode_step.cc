#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "decode_worker/decode_core.h"

// What a step is made of: the batch, and chunks of the prompts that are computed here.
namespace baton {

// Oldest first; of more than fit, those whose last step is longest ago.
std::vector<DecodeWorker::JobId> DecodeWorker::Core::ChooseBatch() const {
  std::vector<std::pair<uint64_t, JobId>> ready;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.state != State::kReady || sequence.paused_since) continue;
    ready.emplace_back(sequence.last_step, id);
  }
  if (ready.size() > static_cast<size_t>(options_.max_batch)) {
    std::nth_element(ready.begin(), ready.begin() + options_.max_batch, ready.end());
    ready.resize(options_.max_batch);
  }
  std::vector<JobId> batch;
  for (const auto& [last_step, id] : ready) batch.push_back(id);
  std::sort(batch.begin(), batch.end());
  return batch;
}

// Blocks for the sequence's last token, at the cost of the youngest if it must be. False: not in
// this step, and perhaps never, for the youngest may be the sequence itself.
bool DecodeWorker::Core::HasRoomToGrow(Sequence* sequence) {
  const int needed = layout_.BlocksFor(sequence->tokens());
  while (static_cast<int>(sequence->blocks.size()) < needed) {
    if (auto block = pool_.Take(1); block.ok()) {
      sequence->blocks.push_back(block->front());
      continue;
    }
    const bool some_come_back =
        std::any_of(sequences_.begin(), sequences_.end(),
                    [](const auto& s) { return s.second.state == State::kEnding; });
    if (some_come_back) return false;
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
int DecodeWorker::Core::FirstBlocks(const Sequence& sequence) const {
  return std::min(layout_.BlocksFor(sequence.tokens()) + 1, layout_.BlocksFor(options_.context));
}

// That must be free when a prompt begins: its first ones, and one for each sequence that grows, so
// that what begins here is not paid for by preempting it.
int DecodeWorker::Core::BlocksToBegin(const Sequence& sequence) const {
  const auto running = std::count_if(sequences_.begin(), sequences_.end(), [](const auto& other) {
    return other.second.state == State::kReady || other.second.state == State::kComputing;
  });
  return FirstBlocks(sequence) + static_cast<int>(running);
}

// Whether a ticket that takes so many blocks now would take those that a prompt waits for. One that
// was refused for that is next: prompts and tickets take turns.
bool DecodeWorker::Core::PromptWaitsFor(int blocks, absl::Time now) const {
  if (blocks <= OwedBlocks(now)) return false;
  for (const JobId id : prompts_) {
    const Sequence& sequence = sequences_.at(id);
    if (sequence.state != State::kQueued || sequence.paused_since) continue;
    return pool_.free_blocks() < BlocksToBegin(sequence) + blocks;
  }
  return false;
}

// Takes the first blocks of a prompt. False: not now.
bool DecodeWorker::Core::Begin(Sequence* sequence, absl::Time now) {
  int older = 0;  // younger ones, taken over since, take turns with it
  for (const auto& [id, other] : sequences_) {
    if (id >= sequence->id) break;
    older += other.state == State::kReady || other.state == State::kComputing;
  }
  if (older >= options_.max_batch) return false;
  if (pool_.free_blocks() < BlocksToBegin(*sequence) + OwedBlocks(now)) return false;
  auto blocks = pool_.Take(FirstBlocks(*sequence));
  if (!blocks.ok()) return false;
  sequence->blocks = *std::move(blocks);
  sequence->state = State::kComputing;
  sequence->update(DecodePromised{});
  return true;
}

// The oldest prompts first, with what the batch leaves of the step. However large the batch, some
// tokens of a prompt are in every step. While the oldest in the queue can't begin, nobody overtakes
// it.
std::vector<DecodeWorker::Core::Chunk> DecodeWorker::Core::PlanChunks(int batch, absl::Time now) {
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

bool DecodeWorker::Core::Step(absl::Time now) {
  std::vector<JobId> batch;
  for (const JobId id : ChooseBatch()) {
    Sequence* sequence = Find(id);  // an older one may have preempted it
    if (sequence != nullptr && HasRoomToGrow(sequence)) batch.push_back(id);
  }
  const std::vector<Chunk> chunks = PlanChunks(static_cast<int>(batch.size()), now);
  if (batch.empty() && chunks.empty()) return false;
  StepPlan plan;
  for (const JobId id : batch) {
    Sequence* sequence = Find(id);
    if (!sequence->first_step) sequence->first_step = now;
    sequence->last_step = engine_->steps() + 1;
    plan.items.push_back({.tokens = absl::MakeConstSpan(sequence->job.tokens).last(1),
                          .first_position = sequence->tokens() - 1,
                          .blocks = sequence->blocks,
                          .sampling = &sequence->job.sampling,
                          .original_prompt_tokens = sequence->job.original_prompt_tokens,
                          .history = sequence->history ? &*sequence->history : nullptr,
                          .rope_reach = sequence->rope_reach});
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
         .rope_reach = sequence->rope_reach});
  }
  auto sampled =
      engine_->Run(plan, [pulse = options_.pulse](int, const std::shared_ptr<DeviceEvent>&) {
        if (pulse != nullptr) pulse->Beat();
      });
  if (!sampled.ok()) {
    const absl::Status failed =
        absl::InternalError(absl::StrCat("step of ", batch.size(), " sequences and ", chunks.size(),
                                         " prompts: ", sampled.status().message()));
    for (const JobId id : batch) End(Find(id), failed);
    for (const Chunk& chunk : chunks) End(chunk.sequence, failed);
    return true;
  }
  step_began_ = now;
  if (!batch.empty()) metrics_->step_sequences.Observe(static_cast<double>(batch.size()));
  int prompt_tokens = 0;
  for (const Chunk& chunk : chunks) prompt_tokens += chunk.tokens;
  if (prompt_tokens > 0) {
    metrics_->step_prompt_tokens.Observe(prompt_tokens);
    metrics_->prompt_tokens.Add(static_cast<uint64_t>(prompt_tokens));
  }
  auto next = sampled->begin();
  for (const JobId id : batch) results_.push_back({id, {}, *std::move(next++)});
  for (const Chunk& chunk : chunks) {
    const bool last = chunk.sequence->computed + chunk.tokens == chunk.sequence->tokens();
    TakeChunk(chunk, last ? &*next++ : nullptr);
  }
  return true;
}

// `token` was drawn after the prompt's last chunk; null before.
void DecodeWorker::Core::TakeChunk(const Chunk& chunk, absl::StatusOr<SampledToken>* token) {
  Sequence* sequence = chunk.sequence;
  sequence->computed += chunk.tokens;
  waiting_tokens_ -= chunk.tokens;
  if (token != nullptr) {
    prompts_.erase(std::find(prompts_.begin(), prompts_.end(), sequence->id));
  }
  Result result = {.id = sequence->id};
  if (sequence->scores && !sequence->scores->status.ok()) {
    result.token = std::move(sequence->scores->status);
  } else if (token != nullptr) {
    result.token = std::move(*token);
  }
  if (sequence->scores) {
    result.prompt = std::exchange(sequence->scores->tokens, {});
    if (sequence->computed >= sequence->job.original_prompt_tokens) sequence->scores.reset();
  }
  if (result.token || !result.prompt.empty()) results_.push_back(std::move(result));
}

}  // namespace baton
