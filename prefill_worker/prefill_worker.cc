#include "prefill_worker/prefill_worker.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/engine/handover_note.h"
#include "common/worker/mailbox.h"
#include "common/worker/prompt_order.h"

namespace baton {
namespace {

class PrefillCore final : public PrefillWorker {
 public:
  PrefillCore(Options options, Parts parts, KvPublisher* publisher)
      : PrefillWorker(std::move(parts)),
        options_(std::move(options)),
        publisher_(publisher),
        mailbox_(std::make_shared<Mailbox<Message>>(options_.wake)),
        metrics_(options_.metrics != nullptr ? options_.metrics : &own_metrics_) {}

  static absl::StatusOr<std::unique_ptr<PrefillWorker>> Create(Options options, const Model* model,
                                                               Backend* backend, KvPlane* plane,
                                                               KvPublisher* publisher,
                                                               KvThread on_kv_thread);
  absl::StatusOr<JobId> Submit(PrefillJob job, Update update) override;
  void Cancel(JobId id) override { mailbox_->Send(CancelAsked{id}); }
  bool RunOnce(absl::Time now) override;

 private:
  enum class State {
    kQueued,     // waits in the queue; holds no blocks yet
    kOpening,    // holds blocks; the KV thread is opening the hand-over
    kComputing,  // the ticket has been reported; chunks run
    kLeased,     // all KV is computed; its blocks are kept for the reader
    kEnding,     // about to end with the status `end`, once the KV thread has dropped the hand-over
  };
  // State of a hand-over that only the KV thread uses. The KV thread sets `id` when it opens the
  // hand-over.
  struct Handover {
    uint64_t id = 0;
  };
  struct Job {
    JobId id = 0;
    PrefillJob job;
    Update update;
    State state = State::kQueued;
    PrefixChain chain;
    std::vector<BlockId> blocks;
    int cached = 0;    // number of tokens whose KV was found in the cache
    int computed = 0;  // number of tokens with KV: cached, or their chunks have run
    // While the job is queued: number of tokens that the cache had of it at the last look.
    int likely_cached = 0;
    int named = 0;  // number of leading blocks that have got their names
    NameWait wait;
    JobId waits_for = 0;  // the job that computes the block for which this one waits
    std::shared_ptr<Handover> handover = std::make_shared<Handover>();
    std::optional<absl::Time> begun;  // when the first chunk began
    // Counts of the job's tokens. Set before the last chunk runs, if sampling depends on earlier
    // tokens.
    std::optional<TokenHistory> history;
    // Set while logprobs of the prompt are wanted and not all of them have been computed.
    std::optional<PromptScores> scores;
    absl::Status end;

    int tokens() const { return static_cast<int>(job.tokens.size()); }
    int left() const { return tokens() - (state == State::kQueued ? likely_cached : computed); }
  };
  struct Result {
    JobId id;
    int computed;                      // number of the job's tokens that have KV since the step
    std::vector<SampledToken> prompt;  // prompt tokens whose logprobs the step computed
    // First token of the answer; set if the step ran the prompt's last chunk.
    std::optional<SampledToken> token;
  };
  struct Chunk {
    Job* job;
    int tokens;
    int slice_layers;  // number of layers that are published together
  };

  struct Arrived {
    JobId id;
    PrefillJob job;
    Update update;
    PrefixChain chain;
  };
  struct CancelAsked {
    JobId id;
  };
  struct Opened {
    JobId id;
    KvTicket ticket;
  };
  struct HandoverEnded {  // sent by the publisher, or because this worker has called Abort
    JobId id;
    absl::Status status;
  };
  using Message = std::variant<Arrived, CancelAsked, ForgetAsked, Opened, HandoverEnded>;

  void SendForget(ForgetAsked message) override { mailbox_->Send(std::move(message)); }
  absl::Status Check(const PrefillJob& job) const;
  void HandOutResults(absl::Time now);
  void Handle(Arrived message);
  void Handle(CancelAsked message);
  void Handle(ForgetAsked message) { HandleForget(message); }
  void Handle(Opened message);
  void Handle(HandoverEnded message);
  std::vector<JobId> Order(absl::Time now);
  bool Admit(std::vector<JobId>* order, absl::Time now);
  bool AdmitJob(Job* job, absl::Time now);
  JobId ComingFrom(const Job& job, size_t block) const;
  bool Step(const std::vector<JobId>& order, absl::Time now);
  std::vector<Chunk> PlanChunks(const std::vector<JobId>& order);
  void Publish(const std::vector<Chunk>& chunks, int layer, std::shared_ptr<DeviceEvent> written);
  void BeginEnding(Job* job, absl::Status status);
  void End(Job* job, absl::Status status);
  Job* Find(JobId id);
  void CountJobs();

  const Options options_;
  KvPublisher* const publisher_;  // used on the KV thread only
  const std::shared_ptr<Mailbox<Message>> mailbox_;
  std::map<JobId, Job> jobs_;
  std::deque<JobId> queue_;    // jobs in kQueued, oldest first
  std::vector<JobId> active_;  // jobs in kOpening or kComputing, in any order
  PromptOrder order_;
  std::vector<Result> results_;           // results of the last step
  std::optional<absl::Time> step_began_;  // when the last step began; not set once its end is known
  int step_tokens_ = 0;                   // tokens of the last step
  PrefillMetrics own_metrics_;            // used if options_.metrics is null
  PrefillMetrics* const metrics_;
};

absl::Status PrefillCore::Check(const PrefillJob& job) const {
  if (job.tokens.empty()) return absl::InvalidArgumentError("the prompt has 0 tokens");
  if (job.tokens.size() >= static_cast<size_t>(context_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", job.tokens.size(),
                     " tokens; prompt and answer together may have at most ", context_));
  }
  RETURN_IF_ERROR(CheckTokens(job.tokens, job.original_prompt_tokens));
  const int generated = static_cast<int>(job.tokens.size()) - job.original_prompt_tokens;
  if (job.sampling.max_tokens <= generated) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens is ", job.sampling.max_tokens,
                                                   " and ", generated,
                                                   " tokens have been generated already"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PrefillWorker::JobId> PrefillCore::Submit(PrefillJob job, Update update) {
  RETURN_IF_ERROR(Check(job));
  if (job.sampling.prompt_logprobs && job.cache == CacheUse::kOn) job.cache = CacheUse::kNoHits;
  // The names are computed on the caller's thread, so that a long prompt does not delay the loop.
  PrefixChain chain = ChainFor(job.tokens, job.original_prompt_tokens, job.cache_salt, job.cache);
  ASSIGN_OR_RETURN(
      const JobId id, TakePlace(options_.max_queue, job.tokens.size(), "prefill worker", [this] {
        return absl::StrCat("prefill queue is full: ", options_.max_queue, " prompts wait");
      }));
  mailbox_->Send(Arrived{id, std::move(job), std::move(update), std::move(chain)});
  return id;
}

void PrefillCore::CountJobs() {
  WorkerLoad load;
  load.running = static_cast<int>(active_.size());
  int ending = 0;
  for (const auto& [id, job] : jobs_) {
    load.leases += job.state == State::kLeased;
    ending += job.state == State::kEnding;
  }
  metrics_->computing.Set(static_cast<int64_t>(active_.size()));
  metrics_->held.Set(load.leases);
  metrics_->ending.Set(ending);
  metrics_->evicted_blocks.Add(TakeEvictions());
  ReportLoad(load);
}

bool PrefillCore::RunOnce(absl::Time now) {
  BeginTurn(now);
  bool worked = !results_.empty();
  HandOutResults(now);
  for (Message& message : mailbox_->TakeAll()) {
    worked = true;
    std::visit([this](auto& m) { Handle(std::move(m)); }, message);
  }
  std::vector<JobId> order = Order(now);
  worked |= Admit(&order, now);
  worked |= Step(order, now);
  CountJobs();
  return worked;
}

void PrefillCore::HandOutResults(absl::Time now) {
  if (step_began_) {
    metrics_->step_seconds.Observe(now - *step_began_);
    order_.NoteStep(step_tokens_, options_.chunk_tokens, now - *step_began_);
  }
  step_began_.reset();
  for (Result& result : results_) {
    Job* job = Find(result.id);
    job->named = result.computed / layout_.block_tokens;
    cache_.Name(&job->chain, job->job.tokens, job->blocks, job->named);
    if (!result.prompt.empty()) job->update(PrefillPromptTokens{std::move(result.prompt)});
    if (!result.token) continue;
    // Completes the hand-over even if this token ends the answer. A decode worker that reads the KV
    // then finds the token in the note and knows that the answer has ended. If the hand-over were
    // aborted, the decode worker might report the abort before the router has this token. The
    // router would then believe that the KV is lost.
    on_kv_thread_([publisher = publisher_, handover = job->handover,
                   payload = HandoverNote{*result.token}.Encode()]() mutable {
      publisher->Complete(handover->id, std::move(payload));
    });
    metrics_->queue_seconds.Observe(*job->begun - job->job.arrival);
    metrics_->prefill_seconds.Observe(now - *job->begun);
    const auto finish = FinishAt(result.token->id, result.token->position,
                                 job->job.original_prompt_tokens, job->job.sampling, context_);
    job->update(PrefillFirstToken{.token = *std::move(result.token),
                                  .finish = finish,
                                  .queue = *job->begun - job->job.arrival,
                                  .prefill = now - *job->begun});
  }
  results_.clear();
}

void PrefillCore::Handle(Arrived message) {
  Job& job = jobs_[message.id];
  job.id = message.id;
  job.job = std::move(message.job);
  job.update = std::move(message.update);
  job.chain = std::move(message.chain);
  if (const std::optional<int> alternatives = job.job.sampling.prompt_logprobs) {
    const auto prompt = absl::MakeConstSpan(job.job.tokens).first(job.job.original_prompt_tokens);
    job.scores = PromptScores{.prompt = prompt, .alternatives = *alternatives};
  }
  job.likely_cached = CachedTokens(job.chain, job.tokens(), job.job.cache);
  queue_.push_back(job.id);
}

void PrefillCore::Handle(CancelAsked message) {
  if (Job* job = Find(message.id)) BeginEnding(job, absl::CancelledError("prefill cancelled"));
}

void PrefillCore::Handle(Opened message) {
  Job* job = Find(message.id);
  if (job == nullptr || job->state != State::kOpening) return;
  job->state = State::kComputing;
  job->update(PrefillBegun{std::move(message.ticket), job->cached});
}

void PrefillCore::Handle(HandoverEnded message) {
  // The end of a hand-over may be reported twice: when the reader releases it, and when this worker
  // calls Abort. The second report finds no job.
  Job* job = Find(message.id);
  if (job == nullptr) return;
  if (job->state == State::kEnding && !MakesKvSuspect(message.status)) message.status = job->end;
  End(job, std::move(message.status));
}

// Returns the jobs that have something left to compute, in the order in which they are computed.
std::vector<PrefillWorker::JobId> PrefillCore::Order(absl::Time now) {
  std::vector<PromptOrder::Prompt> prompts;
  const auto add = [&](JobId id) {
    const Job& job = jobs_.at(id);
    prompts.push_back({.id = id, .left = job.left(), .due = job.job.due, .caller = job.job.caller});
  };
  std::for_each(active_.begin(), active_.end(), add);
  std::for_each(queue_.begin(), queue_.end(), add);
  order_.Sort(&prompts, now);
  std::vector<JobId> order;
  for (const PromptOrder::Prompt& prompt : prompts) order.push_back(prompt.id);
  return order;
}

// Admits the oldest prompt, and those whose first chunk could be in the step after the next one.
// While the next step runs, the decode worker gets the prompt's ticket and reserves blocks. An
// earlier ticket would make the decode worker hold these blocks for longer. Returns true if any
// prompt was admitted.
//
// A prompt that waits for a block that is being computed is passed over. The prompt that computes
// the block takes its place in `order`. If a prompt needs more blocks than are free, no prompt
// behind it is admitted, and none at all if it is the oldest one. So the oldest one gets its blocks
// when enough prompts have been read.
bool PrefillCore::Admit(std::vector<JobId>* order, absl::Time now) {
  if (order->empty()) return false;
  const int64_t limit = 2 * int64_t{options_.chunk_tokens};
  const JobId oldest = *std::min_element(order->begin(), order->end());
  bool worked = false;
  // Admits the prompt at this place of `order`, if it is queued and may begin. Returns false if no
  // other prompt may be admitted in this turn.
  const auto admit = [&](size_t place) {
    Job* job = Find((*order)[place]);
    if (job->state != State::kQueued) return true;
    if (AdmitJob(job, now)) {
      queue_.erase(std::find(queue_.begin(), queue_.end(), job->id));
      worked = true;
      return true;
    }
    if (!job->wait.since) return false;
    const auto from = std::find(order->begin(), order->end(), job->waits_for);
    const auto to = order->begin() + static_cast<ptrdiff_t>(place);
    if (from > to && from != order->end()) std::rotate(to, from, from + 1);
    return true;
  };
  if (!admit(std::find(order->begin(), order->end(), oldest) - order->begin())) return worked;
  int64_t pending = 0;
  for (size_t place = 0; place < order->size() && pending < limit; ++place) {
    const JobId id = (*order)[place];
    if (id != oldest && !admit(place)) break;
    // After the call, another prompt may be at this place, which has been admitted before.
    const Job* job = Find((*order)[place]);
    if (job->state != State::kQueued) pending += job->left();
  }
  return worked;
}

// Takes the blocks of a queued prompt and opens its hand-over. Returns false if the prompt can't
// begin now: it waits for a block that is being computed (`wait.since` is then set), or there are
// too few free blocks.
bool PrefillCore::AdmitJob(Job* job, absl::Time now) {
  std::vector<BlockId> blocks = FindPrefix(job->chain, job->job.tokens, job->job.cache);
  const size_t found = blocks.size();
  job->likely_cached = static_cast<int>(found) * layout_.block_tokens;
  job->waits_for = ComingFrom(*job, found);
  if (job->wait.GoesOn(job->waits_for != 0, found, now)) {
    cache_.Release(blocks);
    return false;
  }
  auto own = cache_.Take(layout_.BlocksFor(job->tokens()) - static_cast<int>(found));
  if (!own.ok()) {
    cache_.Release(blocks);
    return false;
  }
  blocks.insert(blocks.end(), own->begin(), own->end());
  job->blocks = std::move(blocks);
  job->named = static_cast<int>(found);
  job->cached = job->computed = job->named * layout_.block_tokens;
  Computed(job->cached);
  metrics_->cached_tokens.Add(static_cast<uint64_t>(job->cached));
  job->state = State::kOpening;
  active_.push_back(job->id);
  LeavePlace();
  on_kv_thread_([publisher = publisher_, mailbox = mailbox_, id = job->id, blocks = job->blocks,
                 tokens = job->tokens(), ready = job->named, handover = job->handover] {
    KvTicket ticket = publisher->Open(
        blocks, tokens,
        [mailbox, id](absl::Status status) {
          mailbox->Send(HandoverEnded{id, std::move(status)});
        },
        ready);
    handover->id = ticket.handover_id;
    mailbox->Send(Opened{id, std::move(ticket)});
  });
  return true;
}

// Returns the job that is going to compute block number `block` of this job and to give it its
// name, so that this job may find it in the cache then. Returns 0 if there is none.
PrefillWorker::JobId PrefillCore::ComingFrom(const Job& job, size_t block) const {
  if (job.job.cache != CacheUse::kOn || job.chain.empty() ||
      static_cast<int>(block) >= MaxHit(job.tokens())) {
    return 0;
  }
  const BlockName& name = job.chain.names()[block];
  const auto found = std::find_if(active_.begin(), active_.end(), [&](JobId id) {
    const Job& other = jobs_.at(id);
    return static_cast<size_t>(other.named) <= block && block < other.chain.names().size() &&
           other.chain.names()[block] == name;
  });
  return found == active_.end() ? 0 : *found;
}

// Plans which tokens the next step computes. The oldest prompt gets its share wherever it stands in
// `order`.
std::vector<PrefillCore::Chunk> PrefillCore::PlanChunks(const std::vector<JobId>& order) {
  std::vector<Job*> jobs;
  for (const JobId id : order) {
    Job* job = Find(id);
    if (job->state == State::kComputing) jobs.push_back(job);
  }
  if (jobs.empty()) return {};
  const Job* oldest = *std::min_element(jobs.begin(), jobs.end(),
                                        [](const Job* a, const Job* b) { return a->id < b->id; });
  int kept = std::min(oldest->left(),
                      PromptOrder::OldestShare(options_.chunk_tokens, layout_.block_tokens));
  std::vector<Chunk> chunks;
  int room = options_.chunk_tokens - kept;
  for (Job* job : jobs) {
    if (job == oldest) room += std::exchange(kept, 0);
    const size_t places = static_cast<size_t>(options_.max_batch) - (kept > 0 ? 1 : 0);
    if (chunks.size() >= places) continue;
    const int left = job->left();
    // Chunks are whole blocks, except for the end of a prompt: only whole blocks can be published.
    const int tokens = left <= room ? left : room - room % layout_.block_tokens;
    if (tokens == 0) continue;
    const size_t slice_bytes = layout_.BlocksFor(tokens) * layout_.LayerBytes();
    const size_t layers = (options_.slice_bytes + slice_bytes - 1) / slice_bytes;
    chunks.push_back(
        {job, tokens, static_cast<int>(std::clamp<size_t>(layers, 1, layout_.layers))});
    room -= tokens;
  }
  return chunks;
}

// Publishes KV on the KV thread. The layers of a chunk are published in slices of several layers:
// if a slice of the chunk ends with `layer`, this call publishes all layers of the chunk up to
// `layer`. `written` is the event that follows the writing of this KV. The call does not wait for
// the event: the computation of checksums on the device does, while the step goes on.
void PrefillCore::Publish(const std::vector<Chunk>& chunks, int layer,
                          std::shared_ptr<DeviceEvent> written) {
  struct Slice {
    std::shared_ptr<Handover> handover;
    int tokens;
  };
  std::vector<Slice> slices;
  const int layers = layer + 1;
  for (const Chunk& chunk : chunks) {
    if (layers % chunk.slice_layers != 0 && layers != layout_.layers) continue;
    slices.push_back({chunk.job->handover, chunk.job->computed + chunk.tokens});
  }
  if (slices.empty()) return;
  on_kv_thread_(
      [publisher = publisher_, slices = std::move(slices), layers, written = std::move(written)] {
        for (const Slice& slice : slices) {
          publisher->Publish(slice.handover->id, slice.tokens, layers, written);
        }
      });
}

bool PrefillCore::Step(const std::vector<JobId>& order, absl::Time now) {
  const std::vector<Chunk> chunks = PlanChunks(order);
  if (chunks.empty()) return false;
  StepPlan plan;
  for (const Chunk& chunk : chunks) {
    Job& job = *chunk.job;
    if (!job.begun) job.begun = now;
    const bool last = job.computed + chunk.tokens == job.tokens();
    if (last && job.job.sampling.LooksBack()) {
      job.history.emplace(job.job.tokens, job.job.original_prompt_tokens);
    }
    plan.items.push_back(
        {.tokens = absl::MakeConstSpan(job.job.tokens).subspan(job.computed, chunk.tokens),
         .first_position = job.computed,
         .blocks = job.blocks,
         .sampling = last ? &job.job.sampling : nullptr,
         .original_prompt_tokens = job.job.original_prompt_tokens,
         .history = job.history ? &*job.history : nullptr,
         .scores = job.scores ? &*job.scores : nullptr,
         .rope_reach = RopeReach(rope_, job.job.original_prompt_tokens, job.tokens())});
  }
  auto sampled = engine_->Run(plan, [&](int layer, std::shared_ptr<DeviceEvent> written) {
    Publish(chunks, layer, std::move(written));
  });
  if (!sampled.ok()) {
    for (const Chunk& chunk : chunks) {
      BeginEnding(chunk.job,
                  absl::InternalError(absl::StrCat("prefill step of ", chunks.size(),
                                                   " prompts: ", sampled.status().message())));
    }
    return true;
  }
  step_began_ = now;
  metrics_->step_prompts.Observe(static_cast<double>(chunks.size()));
  int tokens = 0;
  for (const Chunk& chunk : chunks) tokens += chunk.tokens;
  step_tokens_ = tokens;
  metrics_->step_tokens.Observe(tokens);
  metrics_->prompt_tokens.Add(static_cast<uint64_t>(tokens));
  auto next = sampled->begin();
  for (const Chunk& chunk : chunks) {
    Job* job = chunk.job;
    job->computed += chunk.tokens;
    Computed(chunk.tokens);
    order_.Charge(job->job.caller, chunk.tokens);
    const bool last = job->computed == job->tokens();
    absl::StatusOr<SampledToken>* const token = last ? &*next++ : nullptr;
    absl::Status status = job->scores ? job->scores->status : absl::OkStatus();
    if (last) status.Update(token->status());
    if (!status.ok()) {
      BeginEnding(job, std::move(status));
      continue;
    }
    Result result = {.id = job->id, .computed = job->computed};
    if (job->scores) {
      result.prompt = std::exchange(job->scores->tokens, {});
      if (job->computed >= job->job.original_prompt_tokens) job->scores.reset();
    }
    if (last) {
      job->state = State::kLeased;
      job->history.reset();
      active_.erase(std::find(active_.begin(), active_.end(), job->id));
      result.token = **std::move(token);
    }
    results_.push_back(std::move(result));
  }
  return true;
}

void PrefillCore::BeginEnding(Job* job, absl::Status status) {
  if (job->state == State::kEnding) return;
  if (job->state == State::kQueued) {
    queue_.erase(std::find(queue_.begin(), queue_.end(), job->id));
    LeavePlace();
    End(job, std::move(status));
    return;
  }
  const auto active = std::find(active_.begin(), active_.end(), job->id);
  if (active != active_.end()) active_.erase(active);
  job->state = State::kEnding;
  // No other prompt may find these blocks until the job has ended.
  if (MakesKvSuspect(status)) cache_.Forget(job->blocks);
  job->end = std::move(status);
  on_kv_thread_(
      [publisher = publisher_, mailbox = mailbox_, id = job->id, handover = job->handover] {
        mailbox->Send(HandoverEnded{id, publisher->Abort(handover->id)});
      });
}

void PrefillCore::End(Job* job, absl::Status status) {
  const auto active = std::find(active_.begin(), active_.end(), job->id);
  if (active != active_.end()) active_.erase(active);
  Computed(job->tokens() - job->computed);
  ReleaseBlocks(job->blocks, status);
  metrics_->Ended(status);
  if (LogEnabled(Severity::kDebug)) {
    Log(Severity::kDebug, "prompt_ended",
        {{kRequestId, job->job.request_id},
         {"tokens", job->tokens()},
         {"computed", job->computed},
         {"status", status.ToString()}});
  }
  const Update update = std::move(job->update);
  jobs_.erase(job->id);
  update(PrefillEnded{std::move(status)});
  Ended();
}

PrefillCore::Job* PrefillCore::Find(JobId id) {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

absl::StatusOr<std::unique_ptr<PrefillWorker>> PrefillCore::Create(Options options,
                                                                   const Model* model,
                                                                   Backend* backend, KvPlane* plane,
                                                                   KvPublisher* publisher,
                                                                   KvThread on_kv_thread) {
  const int block_tokens = plane->options().layout.block_tokens;
  if (options.chunk_tokens < 1 || options.chunk_tokens > kMaxChunk ||
      options.chunk_tokens % block_tokens != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_tokens is ", options.chunk_tokens, "; it takes a multiple of ",
                     block_tokens, ", the tokens of a KV block, up to ", kMaxChunk));
  }
  if (options.max_queue < 1 || options.max_batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat("max_queue is ", options.max_queue,
                                                   " and max_batch ", options.max_batch,
                                                   "; both take at least 1"));
  }
  ASSIGN_OR_RETURN(Parts parts, MakeParts(options.context, options.reuse_last_freed, options.cache,
                                          options.pulse, model, backend, plane,
                                          std::move(on_kv_thread), [&options](int context) {
                                            options.context = context;
                                            return MaxStep(options);
                                          }));
  return std::make_unique<PrefillCore>(std::move(options), std::move(parts), publisher);
}

}  // namespace

StepSize PrefillWorker::MaxStep(const Options& options) {
  return {std::clamp(options.chunk_tokens, 1, kMaxChunk), std::max(options.max_batch, 1),
          options.context};
}

absl::StatusOr<std::unique_ptr<PrefillWorker>> PrefillWorker::Create(
    Options options, const Model* model, Backend* backend, KvPlane* plane, KvPublisher* publisher,
    KvThread on_kv_thread) {
  return PrefillCore::Create(std::move(options), model, backend, plane, publisher,
                             std::move(on_kv_thread));
}

}  // namespace baton
