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

// What one client asked and what it has seen.
struct SimClient {
  CheckedRequest request;
  absl::Time cancel_at = absl::InfiniteFuture();

  std::vector<TokenId> tokens;  // in order; a position out of order is a test failure
  std::map<uint32_t, std::vector<TokenId>> others;  // of answers 1 and on
  std::vector<v1::Token> scores;                    // of the prompt
  std::vector<absl::Time> times;
  std::optional<v1::Finished> finished;
  std::optional<v1::Summary> summary;
  std::optional<absl::Status> status;
  bool cancelled = false;
  bool owes = false;
  absl::Duration takes;  // how long it takes over each message, beside the wire's delay
};

// A router and its workers in one thread, one virtual clock and one seed: the real RouterCore,
// worker cores, pools, ledgers and KV planes over faulty in-process transports, on the fake
// backend. What gRPC does is a queue of deliveries, each a little late at random, in order per RPC.
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
    absl::Duration wire_delay = absl::Milliseconds(1);  // longest, of a message between two parties
    int long_rope_from = 0;  // tokens; longer sequences have another rotary table. 0: all have one
    v1::ServingMode mode = v1::SERVING_MODE_DISAGGREGATED;  // the router's
    // Changes the options with which the router is made; may be empty.
    std::function<void(RouterCoreOptions*)> adjust_router;
    EventLog* log = nullptr;  // of the router; outlives the cluster; null: none is kept
  };
  explicit SimCluster(Options options);
  ~SimCluster();

  // The answer that this request must get from workers of `model`.
  std::vector<TokenId> Expected(const CheckedRequest& request, int model = 0) const;
  // The logprobs of its prompt, from the second token on.
  std::vector<float> ExpectedScores(const CheckedRequest& request) const;

  absl::Time now() const { return now_; }
  // Hands a request in at its `arrival`, which has not passed. Valid as long as the cluster.
  SimClient* Add(CheckedRequest request);
  // Runs until `time`, or until all requests are over and everything rests.
  void RunUntil(absl::Time time);
  void RunUntilIdle(absl::Duration limit);

  // Starts one more worker, of model 0, which those of the constructor have, or 1, which has the
  // same KV layout and gives other tokens. Returns its number.
  int AddWorker(v1::WorkerRole role, int model);
  // The model of the workers that this request was given to, the same for all of them.
  int ModelOf(const CheckedRequest& request) const { return model_of_.at(request.request_id); }
  // The worker takes nothing new, and detaches when it has finished what it has.
  void Drain(int worker);

  // Of every decode worker's transport, from now on.
  void SetFaults(const FaultyTransport::Faults& faults);
  // Fails the test where a block, lease, pull, job, leg or request is left.
  void ExpectAllBack();

  const LoggedCore& router() const { return *router_; }
  uint64_t steps() const;

 private:
  struct Worker;
  struct Leg;

  static ModelConfig ConfigOf(const Options& options, int model);
  // Fails the test where legs of one request go to workers of different models.
  void NoteModel(const std::string& request_id, const Worker& worker);
  void Later(absl::Time* last, std::function<void()> deliver);
  void Carry(CoreAction action);
  void Start(StartPrefill action);
  void Start(StartDecode action);
  void Said(LegKey leg, CoreEvent event);
  void Deliver(Leg* leg, CoreEvent event);
  void Unpause(Leg* leg);
  void SendToClientNow(SendToClient action);
  Worker* Find(const WorkerName& name);
  void Report(Worker* worker);
  bool Turn();
  bool Idle() const;
  absl::Time NextEvent() const;

  const Options options_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<const Model>> models_;
  std::map<std::string, int> model_of_;  // by request id
  KvLayout layout_;
  InProcessFabric fabric_;
  std::unique_ptr<LoggedCore> router_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<LegKey, std::unique_ptr<Leg>> legs_;
  std::vector<std::unique_ptr<SimClient>> clients_;  // request key - 1
  std::multimap<absl::Time, std::function<void()>> deliveries_;
  size_t running_ = 0;  // clients without a status
};

}  // namespace baton
