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
  absl::Time cancel_at = absl::InfiniteFuture();

  std::vector<TokenId> tokens;  // in order; a token out of order fails the test
  // Tokens of all answers but answer 0, by the index of the answer.
  std::map<uint32_t, std::vector<TokenId>> others;
  std::vector<v1::Token> scores;  // tokens of the prompt, with logprobs
  std::vector<absl::Time> times;
  std::optional<v1::Finished> finished;
  std::optional<v1::Summary> summary;
  std::optional<absl::Status> status;
  bool cancelled = false;
  bool owes = false;
  absl::Duration takes;  // time that the client takes for each message, besides the wire's delay
};

// A router and its workers in one thread, with one virtual clock and one seed. RouterCore, worker
// cores, pools, ledgers and KV planes are the real ones. They run over faulty in-process transports
// and on the fake backend. A queue of deliveries takes gRPC's place: each delivery comes after a
// short random delay, in order per RPC.
class SimCluster {
 public:
  struct Options {
    uint64_t seed = 1;
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
    // Max memory of the router's index of KV blocks, in bytes; 0: the router has none.
    size_t prefix_index_bytes = 1 << 20;
    // Time between two messages of a worker on its prefix cache, and max names of one message.
    absl::Duration cache_interval = absl::Milliseconds(10);
    size_t max_cache_changes = 64;
    v1::ServingMode mode = v1::SERVING_MODE_DISAGGREGATED;  // mode of the router
    // Changes the router's options before the router is made. May be empty.
    std::function<void(RouterCoreOptions*)> adjust_router;
    // Receives the router's events. Must outlive the cluster. Null: no log is kept.
    EventLog* log = nullptr;
  };
  explicit SimCluster(Options options);
  ~SimCluster();

  // Returns the answer that workers of `model` must give to this request.
  std::vector<TokenId> Expected(const CheckedRequest& request, int model = 0) const;
  // Returns the logprobs of the request's prompt, from the second token on.
  std::vector<float> ExpectedScores(const CheckedRequest& request) const;

  absl::Time now() const { return now_; }
  // Delivers a request to the router at its `arrival`, which must not have passed. The returned
  // client lives as long as the cluster.
  SimClient* Add(CheckedRequest request);
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

  // Sets the faults of every decode worker's transport, from now on.
  void SetFaults(const FaultyTransport::Faults& faults);
  // Fails the test if a block, lease, pull, job, leg or request is left.
  void ExpectAllBack();
  // Fails the test unless the router knows exactly which blocks of this prompt each worker keeps.
  // Nothing may have been routed for the option routed_for, 100 ms.
  void ExpectRouterKnows(const CheckedRequest& request);

  const LoggedCore& router() const { return *router_; }
  uint64_t steps() const;
  // Returns the time that workers of this role have spent in steps, added up.
  absl::Duration busy(v1::WorkerRole role) const;

 private:
  struct Worker;
  struct Leg;

  static ModelConfig ConfigOf(const Options& options, int model);
  // Fails the test if legs of one request go to workers of different models.
  void NoteModel(const std::string& request_id, const Worker& worker);
  void Later(absl::Time* last, std::function<void()> deliver);
  void Carry(CoreAction action);
  void Start(StartPrefill action);
  void Start(StartDecode action);
  // Tells the leg's worker to remove the job's KV from its prefix cache.
  template <class Job>
  void Forget(LegKey leg, Job job);
  void Said(LegKey leg, CoreEvent event);
  void Deliver(Leg* leg, CoreEvent event);
  void Unpause(Leg* leg);
  void SendToClientNow(SendToClient action);
  Worker* Find(const WorkerName& name);
  void Report(Worker* worker);
  void TellCacheChanges(Worker* worker);
  bool Turn();
  void CancelDueClients();
  bool Idle() const;
  absl::Time NextEvent() const;

  const Options options_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<const Model>> models_;
  std::map<std::string, int> model_of_;  // model of each request, by request id
  KvLayout layout_;
  InProcessFabric fabric_;
  std::unique_ptr<LoggedCore> router_;
  ServingChanged serving_;  // as the router told it last
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<LegKey, std::unique_ptr<Leg>> legs_;
  std::vector<std::unique_ptr<SimClient>> clients_;  // index: request key - 1
  std::vector<RequestKey> running_clients_;  // clients without a status, and some that have one
  std::multimap<absl::Time, std::function<void()>> deliveries_;
  size_t running_ = 0;  // number of clients without a status
};

}  // namespace baton
