#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/model/model.h"
#include "decode_worker/decode_worker.h"
#include "kernels/backend/backend.h"
#include "kv_transfer/kv_plane.h"
#include "kv_transfer/kv_publisher.h"
#include "kv_transfer/kv_puller.h"
#include "kv_transfer/testing/faulty_transport.h"
#include "kv_transfer/testing/inprocess_transport.h"
#include "prefill_worker/prefill_worker.h"
#include "router/core/router_core.h"
#include "router/testing/event_log.h"

namespace baton {

// A client's request, and everything that the client has received.
struct SimClient {
  CheckedRequest request;
  int router = 0;  // number of the router to which the request goes
  absl::Time cancel_at = absl::InfiniteFuture();

  std::vector<TokenId> tokens;  // in order; a token out of order fails the test
  // Tokens of all answers but answer 0, by the index of the answer.
  std::map<uint32_t, std::vector<TokenId>> others;
  // Logprobs of the tokens of each answer that came with one, by the index of the answer.
  std::map<uint32_t, std::vector<float>> logprobs;
  std::vector<v1::Token> scores;  // tokens of the prompt, with logprobs
  std::vector<absl::Time> times;
  std::optional<AnswerFinished> finished;
  std::optional<AnswerSummary> summary;
  std::optional<absl::Status> status;
  bool cancelled = false;
  bool owes = false;
  absl::Duration takes;  // time that the client takes for each message, besides the wire's delay
};

// Routers and workers in one thread, with one virtual clock and one seed. RouterCore, worker cores,
// pools, ledgers and KV planes are the real ones. They run over faulty in-process transports and on
// the fake backend. A queue of deliveries takes gRPC's place: each delivery comes after a short
// random delay, in order per RPC.
class SimCluster {
 public:
  struct Options {
    uint64_t seed = 1;
    // Number of routers. Each worker attaches to all of them.
    int routers = 1;
    int prefill_workers = 4;
    int decode_workers = 4;
    int context = 512;
    int vocab = 256;
    int block_tokens = 8;
    int prefill_blocks = 256;
    int decode_blocks = 160;
    PrefillWorker::Options prefill;
    DecodeWorker::Options decode;
    // Simulated time that a step takes.
    struct StepTimes {
      absl::Duration per_step = absl::Milliseconds(3);
      absl::Duration per_row = absl::Microseconds(20);  // per token of the step
    };
    StepTimes prefill_times, decode_times;
    // Max delay of a message between two parties.
    absl::Duration wire_delay = absl::Milliseconds(1);
    // Sequences with more tokens than this use another rotary table. 0: all sequences use the same
    // table.
    int long_rope_from = 0;
    bool prefix_cache = true;
    // If true, decode workers start a step before they have the tokens of the one before, as they
    // do with a GPU (LateBackend).
    bool one_step_ahead = false;
    // Max memory of each router's index of KV blocks, in bytes; 0: the routers have none.
    size_t prefix_index_bytes = 1 << 20;
    absl::Duration report_interval = absl::Milliseconds(250);  // between two load reports
    // Time between two messages of a worker on its prefix cache, and max names of one message.
    absl::Duration cache_interval = absl::Milliseconds(10);
    size_t max_cache_changes = 64;
    ServingMode mode = ServingMode::kDisaggregated;  // mode of the routers
    // Changes the options of each router before the router is made. May be empty.
    std::function<void(RouterCoreOptions*)> adjust_router;
    // If true, the clock of every process is up to a day fast or slow, and gains or loses up to 1
    // %.
    bool skewed_clocks = false;
    // Receives the events of router 0. Must outlive the cluster. Null: no log is kept.
    EventLog* log = nullptr;
  };
  // The time at which every simulation begins.
  static absl::Time SimBegin() { return absl::UnixEpoch() + absl::Hours(1); }
  explicit SimCluster(Options options);
  ~SimCluster();

  // Returns the answer that workers of `model` must give to this request. If `logprobs` is not
  // null, sets it to the logprobs of the tokens.
  std::vector<TokenId> Expected(const CheckedRequest& request, int model = 0,
                                std::vector<float>* logprobs = nullptr) const;
  // Returns the logprobs of the request's prompt, from the second token on.
  std::vector<float> ExpectedScores(const CheckedRequest& request) const;

  absl::Time now() const { return now_; }
  // Delivers a request to a router at its `arrival`, which must not have passed. The returned
  // client lives as long as the cluster.
  SimClient* Add(CheckedRequest request, int router = 0);
  // Calls `what` at `time`, which must not have passed. At that time no message is being delivered
  // and no worker runs.
  void At(absl::Time time, std::function<void()> what);
  // RunUntil runs until `time`. RunUntilIdle runs until all requests are over and nothing is left
  // to do, and then for one more second. It fails the test if that takes longer than `limit`.
  void RunUntil(absl::Time time);
  void RunUntilIdle(absl::Duration limit);

  // Starts one more worker and returns its number. `model` is 0 or 1. The constructor's workers
  // have model 0. Model 1 has the same KV layout and gives other tokens.
  int AddWorker(v1::WorkerRole role, int model);
  // Returns the model of the workers to which this request was given. They all have the same model.
  int ModelOf(const CheckedRequest& request) const { return model_of_.at(request.request_id); }
  // Drains a worker: it accepts no new work, and detaches when it has finished its jobs.
  void Drain(int worker);
  // Ends a worker's process now, without a farewell. Its memory is gone, so that its peers' reads
  // and notes fail. Each of its RPCs and Attach streams breaks at a random time within `notice`.
  // All messages of a stream that are still on their way then arrive before its end, or none.
  // Returns the number of RPCs that break.
  int Kill(int worker, absl::Duration notice);
  // Starts a process with another epoch in place of a killed worker, and returns its number. It has
  // the address of the killed worker, or a new one.
  int Restart(int killed, bool same_address);

  // Treatment of requests by a worker, which in any case goes on reporting its load.
  enum class Health {
    kWell,
    kFails,   // fails each request with Internal
    kSilent,  // takes each request, and never sends anything
    kLies,    // sends answers in which positions or token ids can't be right
  };
  // Sets how a worker treats new requests, from now on.
  void SetHealth(int worker, Health health);

  // Sets the faults of every decode worker's transport, from now on. Restarted workers keep them.
  // Number of steps that decode workers, dead ones included, have started before they had the
  // tokens of the step before.
  uint64_t steps_ahead() const { return decode_metrics_.steps_ahead.value(); }
  void SetFaults(const FaultyTransport::Faults& faults);
  // Fails the test if a block, lease, pull, job, leg or request is left, at a router or at a worker
  // that was not killed.
  void ExpectAllBack();
  // Fails the test unless each router knows exactly which blocks of this prompt each worker keeps.
  // Nothing may have been routed for the option routed_for, 100 ms, and every killed worker must
  // have been forgotten.
  void ExpectRoutersKnow(const CheckedRequest& request);

  int routers() const { return static_cast<int>(routers_.size()); }
  // Returns the number of workers so far. Killed workers count.
  int workers() const { return static_cast<int>(workers_.size()); }
  const LoggedCore& router(int number = 0) const;
  // Returns the number of steps of the workers that were not killed, added up.
  uint64_t steps() const;
  // Returns the time that workers of this role have spent in steps, added up.
  absl::Duration busy(v1::WorkerRole role) const;
  // Returns the number of tokens of prompts that prefill workers have found in their caches.
  uint64_t prefill_cached_tokens() const;

 private:
  class Clock;
  struct Worker;
  struct Leg;
  struct Router;

  static ModelConfig ConfigOf(const Options& options, int model);
  // Creates a worker that no router knows yet.
  Worker* CreateWorker(v1::WorkerRole role, int model, const std::string& address);
  // Fails the test if legs of one request go to workers of different models.
  void NoteModel(const std::string& request_id, const Worker& worker);
  void Later(absl::Time* last, std::function<void()> deliver);
  // Carries out the actions that the router asks for. Returns true if there are any.
  bool CarryOut(Router* router);
  void Carry(Router* router, CoreAction action);
  // Makes the leg, and delivers the RPC to the worker. `submit` is called when it arrives, unless
  // the worker's process has ended.
  void StartLeg(Router* router, LegKey key, const WorkerName& worker, const std::string& request_id,
                absl::Time deadline, std::function<void(Leg*)> submit);
  void Start(Router* router, StartPrefill action);
  void Start(Router* router, StartDecode action);
  // Tells the leg's worker to remove the job's KV from its prefix cache.
  template <class Job>
  void Forget(Router* router, LegKey leg, Job job);
  void Said(Router* router, LegKey leg, CoreEvent event);
  // Changes what a lying worker says, so that it can't be right.
  void Falsify(CoreEvent* event);
  void Deliver(Router* router, Leg* leg, CoreEvent event);
  void Unpause(Router* router, Leg* leg);
  void SendToClientNow(Router* router, SendToClient action);
  Worker* Find(const WorkerName& name);
  void Report(Worker* worker);
  void TellCacheChanges(Worker* worker);
  bool Turn();
  void CancelDueClients();
  bool Idle() const;
  absl::Time NextEvent() const;

  const Options options_;
  absl::Time now_ = SimBegin();
  std::mt19937_64 random_, clock_random_;
  std::vector<std::unique_ptr<const Model>> models_;
  std::map<std::string, int> model_of_;  // model of each request, by request id
  KvLayout layout_;
  InProcessFabric fabric_;
  DecodeMetrics decode_metrics_;  // All decode workers together.
  std::vector<std::unique_ptr<Router>> routers_;
  std::vector<std::unique_ptr<Worker>> workers_;
  FaultyTransport::Faults faults_;
  std::vector<std::unique_ptr<SimClient>> clients_;  // index: request key - 1
  std::vector<RequestKey> running_clients_;  // clients without a status, and some that have one
  std::multimap<absl::Time, std::function<void()>> deliveries_;
  size_t running_ = 0;  // number of clients without a status
};

}  // namespace baton
