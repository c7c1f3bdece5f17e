#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/worker/mailbox.h"
#include "decode_worker/decode_worker.h"

namespace baton {

// The implementation of DecodeWorker; included by its sources alone.
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
    kQueued,     // to be computed here; nothing has been taken
    kComputing,  // chunk by chunk
    kPulling,    // promised; the puller writes to its blocks
    kReady,      // KV of all tokens but the last is there
    kEnding,     // `end` says how; the puller may still write to its blocks
  };
  // The KV thread's side of a pull, written there by the first closure of its job.
  struct Pull {
    uint64_t id = 0;
  };
  struct Sequence {
    JobId id = 0;
    DecodeJob job;                        // `tokens` grows
    std::optional<TokenHistory> history;  // where sampling looks back; grows too
    Update update;
    State state = State::kPulling;
    std::vector<BlockId> blocks;
    int rope_reach = 0;  // of the rotary table that its KV is computed with
    std::shared_ptr<Pull> pull = std::make_shared<Pull>();
    int computed = 0;  // tokens, of a prompt that is computed here; those of started steps too
    std::optional<PromptScores> scores;  // until the prompt is scored, where that is wanted
    absl::Status end;
    DecodeFinished summary;
    absl::Time ready;
    std::optional<absl::Time> first_step;
    uint64_t last_turn = 0;  // the last step that it was in the batch of
    uint64_t last_step = 0;  // the last that it was in at all,
    int item = 0;            // its place there,
    bool draws = false;      // and whether its next token is drawn there
    std::optional<absl::Time> paused_since;

    int tokens() const { return static_cast<int>(job.tokens.size()); }
  };
  struct Chunk {
    Sequence* sequence;
    int tokens;
  };
  // What a step does for one sequence. That may have ended before the step has.
  struct Part {
    JobId id;
    int chunk = 0;  // tokens of a prompt; 0: the sequence is of the batch
    bool draws = false;
  };
  struct Step {
    uint64_t number = 0;  // from 1
    absl::Time started;
    std::vector<Part> parts;  // as the plan's items: the batch, then chunks
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
  using Message = std::variant<Arrived, CancelAsked, PauseAsked, PullDone>;

  // Jobs and messages: decode_worker.cc
  absl::Status Check(const DecodeJob& job) const;
  void HandOutResults(absl::Time now);
  void HandOutPart(Sequence* sequence, absl::StatusOr<SampledToken>* token, absl::Time now);
  void Handle(Arrived message, absl::Time now);
  void Handle(CancelAsked message, absl::Time now);
  void Handle(PauseAsked message, absl::Time now);
  void Handle(PullDone message, absl::Time now);
  void HandOut(Sequence* sequence, SampledToken token, absl::Time now);
  bool EndPaused(absl::Time now);
  void BeginEnding(Sequence* sequence, absl::Status status);
  void End(Sequence* sequence, absl::Status status);
  Sequence* Find(JobId id);
  void CountJobs();

  // What a step is made of: decode_step.cc
  bool IsDrawn(const Sequence& sequence) const;
  bool DrawsOnDevice(const Sequence& sequence) const;
  bool GoesOn(const Sequence& sequence) const;
  std::vector<JobId> ChooseBatch() const;
  bool SomePullsEnd() const;
  bool HasRoomToGrow(Sequence* sequence);
  int FirstBlocks(const Sequence& sequence) const;
  int BlocksToBegin(const Sequence& sequence) const;
  int OwedBlocks(absl::Time now) const { return now < owed_until_ ? owed_ : 0; }
  bool PromptWaitsFor(int blocks) const;
  bool Begin(Sequence* sequence, absl::Time now);
  std::vector<Chunk> PlanChunks(int batch, absl::Time now);
  bool RunsAtOnce(const std::vector<Chunk>& chunks) const;
  bool RunStep(absl::Time now);
  bool StartStep(absl::Time now);
  StepPlan PlanOf(const std::vector<JobId>& batch, const std::vector<Chunk>& chunks);
  void Fail(const std::vector<JobId>& batch, const std::vector<Chunk>& chunks,
            const absl::Status& status);
  Step Started(const std::vector<JobId>& batch, const std::vector<Chunk>& chunks, absl::Time now);

  const Options options_;
  KvPuller* const puller_;  // KV thread
  const std::shared_ptr<Mailbox<Message>> mailbox_;
  std::map<JobId, Sequence> sequences_;  // oldest first
  std::deque<JobId> prompts_;            // kQueued and kComputing, oldest first
  // Blocks that are kept for a ticket which was refused because too few were free: for a while,
  // prompts do not take them. After a ticket has overtaken a prompt in this way, no blocks are kept
  // until a prompt has begun.
  int owed_ = 0;
  absl::Time owed_until_ = absl::InfinitePast();
  bool prompts_next_ = false;
  std::deque<Step> started_;              // that are running, oldest first: two at most
  std::optional<FinishedStep> finished_;  // whose results the next RunOnce hands out
  uint64_t steps_ = 0;                    // started
  uint64_t done_ = 0;                     // the last whose results have been handed out
  absl::Time done_at_ = absl::InfinitePast();
  // That ended while a step with them was running, of which there is one at most when something
  // ends: it writes to their blocks, and may still be drawn from as they say.
  std::vector<std::map<JobId, Sequence>::node_type> leaving_;
  DecodeMetrics own_metrics_;  // for when nobody looks
  DecodeMetrics* const metrics_;
};

}  // namespace baton
