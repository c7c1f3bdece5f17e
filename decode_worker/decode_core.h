#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/worker/caller_turns.h"
#include "common/worker/mailbox.h"
#include "decode_worker/decode_worker.h"

namespace baton {

// The implementation of DecodeWorker. Only the sources of DecodeWorker include this file. All state
// of this class belongs to the loop thread; other threads send messages through mailbox_.
class DecodeCore final : public DecodeWorker {
 public:
  DecodeCore(Options options, Parts parts, KvPuller* puller)
      : DecodeWorker(std::move(parts)),
        options_(std::move(options)),
        puller_(puller),
        mailbox_(std::make_shared<Mailbox<Message>>(options_.wake)),
        metrics_(options_.metrics != nullptr ? options_.metrics : &own_metrics_) {}

  static absl::StatusOr<std::unique_ptr<DecodeWorker>> Create(Options options, const Model* model,
                                                              Backend* backend, KvPlane* plane,
                                                              KvPuller* puller,
                                                              KvThread on_kv_thread);
  absl::StatusOr<JobId> Submit(DecodeJob job, Update update) override;
  void Cancel(JobId id) override { mailbox_->Send(CancelAsked{id}); }
  void SetPaused(JobId id, bool paused) override { mailbox_->Send(PauseAsked{id, paused}); }
  bool RunOnce(absl::Time now) override;

 private:
  enum class State {
    kQueued,     // sequence whose prompt is to be computed here; holds no blocks yet
    kAwaiting,   // sequence with a ticket that has not reserved blocks yet
    kComputing,  // sequence whose prompt is being computed here, chunk by chunk
    kPulling,    // sequence with reserved blocks, to which the puller writes
    kReady,      // sequence with the KV of all its tokens but the last
    kEnding,     // sequence about to end with status `end`; the puller may still use its blocks
  };
  // State of a pull, used only on the KV thread. The closure that starts the pull sets `id`, and
  // the closure that cancels the pull reads it.
  struct Pull {
    uint64_t id = 0;
  };
  struct Sequence {
    JobId id = 0;
    DecodeJob job;  // `tokens` grows with each new token
    // Counts of the tokens so far, updated with each new token. Set if sampling depends on earlier
    // tokens.
    std::optional<TokenHistory> history;
    Update update;
    State state = State::kQueued;
    PrefixChain chain;
    std::vector<BlockId> blocks;
    int cached = 0;   // number of tokens whose KV was found in the cache
    int written = 0;  // number of leading tokens whose KV is known to be right
    int named = 0;    // number of leading blocks that have got their names
    NameWait wait;
    int rope_reach = 0;  // max tokens that the rotary table of the KV covers
    std::shared_ptr<Pull> pull = std::make_shared<Pull>();
    // Number of prompt tokens that are cached or computed here, including those of steps that still
    // run.
    int computed = 0;
    // Set if logprobs of the prompt are wanted, until all of them are computed.
    std::optional<PromptScores> scores;
    absl::Status end;
    DecodeFinished summary;
    absl::Time ready;
    std::optional<absl::Time> first_step;
    uint64_t last_turn = 0;  // number of the last step with this sequence in its batch
    // Number of the last step with this sequence, in the batch or as a chunk.
    uint64_t last_step = 0;
    int item = 0;          // index of this sequence in the parts of step `last_step`
    bool samples = false;  // true if step `last_step` samples this sequence's next token
    std::optional<absl::Time> paused_since;

    int tokens() const { return static_cast<int>(job.tokens.size()); }
  };
  struct Chunk {
    Sequence* sequence;
    int tokens;
  };
  // The work of a step for one sequence. The sequence may end before the step does.
  struct Part {
    JobId id;
    int chunk = 0;  // number of prompt tokens; 0 if the sequence is in the batch
    bool samples = false;
  };
  struct Step {
    uint64_t number = 0;  // counts from 1
    absl::Time started;
    std::vector<Part> parts;  // first the sequences of the batch, then the chunks, as in the plan
  };
  struct FinishedStep {
    Step step;
    absl::StatusOr<Engine::Tokens> tokens;
  };

  struct Arrived {
    JobId id;
    DecodeJob job;
    Update update;
    std::optional<TokenHistory> history;
    PrefixChain chain;
  };
  struct CancelAsked {
    JobId id;
  };
  struct PauseAsked {
    JobId id;
    bool paused;
  };
  struct PullDone {
    JobId id;
    PullResult result;
  };
  using Message = std::variant<Arrived, CancelAsked, ForgetAsked, PauseAsked, PullDone>;

  // The functions of this group handle jobs and messages. They are in decode_worker.cc.
  void SendForget(ForgetAsked message) override { mailbox_->Send(std::move(message)); }
  absl::Status Check(const DecodeJob& job) const;
  void HandOutResults(absl::Time now);
  void HandOutPart(Sequence* sequence, int chunk, absl::StatusOr<SampledToken>* token,
                   absl::Time now);
  void NameBlocks(Sequence* sequence);
  void Handle(Arrived message, absl::Time now);
  void Handle(CancelAsked message, absl::Time now);
  void Handle(ForgetAsked message, absl::Time) { HandleForget(message); }
  void Handle(PauseAsked message, absl::Time now);
  void Handle(PullDone message, absl::Time now);
  void HandOut(Sequence* sequence, SampledToken token, absl::Time now);
  bool Reserve(Sequence* sequence, absl::Time now);
  bool ReserveAwaiting(absl::Time now);
  bool EndPaused(absl::Time now);
  void BeginEnding(Sequence* sequence, absl::Status status);
  void End(Sequence* sequence, absl::Status status);
  Sequence* Find(JobId id);
  void CountJobs();

  // The functions of this group decide what a step contains. They are in decode_step.cc.
  bool IsSampled(const Sequence& sequence) const;
  bool SamplesOnDevice(const Sequence& sequence) const;
  bool GoesOn(const Sequence& sequence) const;
  std::vector<JobId> ChooseBatch() const;
  bool SomePullsEnd() const;
  bool HasRoomToGrow(Sequence* sequence);
  int FirstBlocks(const Sequence& sequence) const;
  int BlocksToGrow() const;
  int BlocksToBegin(const Sequence& sequence) const;
  int OwedBlocks(absl::Time now) const { return now < owed_until_ ? owed_ : 0; }
  int KeptForTicket(absl::Time now) const;
  bool PromptWaitsFor(int blocks);
  bool OlderFillBatch(const Sequence& sequence) const;
  bool Begin(Sequence* sequence, absl::Time now);
  bool IsComing(const Sequence& sequence, size_t block) const;
  JobId OldestQueued();
  std::vector<JobId> PromptsInTurn();
  void LetOldestBegin(std::vector<JobId>* order, size_t from);
  std::vector<Chunk> PlanChunks(int batch, absl::Time now);
  bool RunsAtOnce(const std::vector<Chunk>& chunks) const;
  bool RunStep(absl::Time now);
  bool StartStep(absl::Time now);
  StepPlan PlanOf(const std::vector<JobId>& batch, const std::vector<Chunk>& chunks);
  void Fail(const std::vector<JobId>& batch, const std::vector<Chunk>& chunks,
            const absl::Status& status);
  Step Started(const std::vector<JobId>& batch, const std::vector<Chunk>& chunks, absl::Time now);

  const Options options_;
  KvPuller* const puller_;  // used on the KV thread only
  const std::shared_ptr<Mailbox<Message>> mailbox_;
  std::map<JobId, Sequence> sequences_;  // oldest first
  std::deque<JobId> prompts_;            // sequences in kQueued or kComputing, oldest first
  CallerTurns turns_;                    // decides the order of the sequences in prompts_
  int passed_ = 0;                       // prompts that have begun since the oldest one last did
  std::deque<JobId> awaiting_;           // sequences in kAwaiting, oldest first
  // Number of free blocks that are kept for a refused ticket: prompts may not take them before the
  // time owed_until_. If a ticket has overtaken a waiting prompt, prompts_next_ is true, and no
  // blocks are kept for tickets until a prompt has begun.
  int owed_ = 0;
  absl::Time owed_until_ = absl::InfinitePast();
  bool prompts_next_ = false;
  std::deque<Step> started_;              // running steps, oldest first; at most two
  std::optional<FinishedStep> finished_;  // the step whose results the next RunOnce hands out
  uint64_t steps_ = 0;                    // number of steps started
  uint64_t done_ = 0;  // number of the last step whose results have been handed out
  absl::Time done_at_ = absl::InfinitePast();
  // Sequences that ended while a step with them was running. They are kept until that step is done,
  // because the step writes to their blocks and may still sample with their options. At most one
  // step is running when a sequence ends.
  std::vector<std::map<JobId, Sequence>::node_type> leaving_;
  DecodeMetrics own_metrics_;  // used if options_.metrics is null
  DecodeMetrics* const metrics_;
};

}  // namespace baton
