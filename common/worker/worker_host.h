#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "baton/v1/load.pb.h"
#include "baton/v1/membership.pb.h"
#include "common/base/free_memory.h"
#include "common/base/inbox.h"
#include "common/base/loop.h"
#include "common/base/mutex.h"
#include "common/base/pulse.h"
#include "common/base/wakeup.h"
#include "common/metrics/metric_registry.h"
#include "common/metrics/metrics_server.h"
#include "common/rpc/attach_client.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/worker_identity.h"
#include "common/worker/backend_factory.h"
#include "common/worker/model_host.h"
#include "common/worker/worker_core.h"
#include "kv_transfer/kv_plane.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// Exit status of a worker whose device has failed for good. The worker exits immediately: it can't
// finish any request, and only a new process can use a device again.
inline constexpr int kDeviceFailedStatus = 3;

// Everything in a worker process except its core: flags, model, KV plane with its thread, gRPC
// server, attachment to routers, and the way it stops. `main` calls the functions in the order in
// which they are declared.
class WorkerHost {
 public:
  // Reads the flags that both kinds of worker have, and opens model and KV plane. A flag or file
  // that can't be used ends the process with a message (RefuseToStart). When Open returns, the
  // weights have been read once and all memory of the KV pool has been allocated.
  // - backends: what --backend may name, beside the CPU's backend
  // - max: the largest step of the core
  // - max_sequences: max number of sequences that hold KV at the same time
  // - chunk_tokens: must be a multiple of a KV block's tokens
  static std::unique_ptr<WorkerHost> Open(v1::WorkerRole role,
                                          const std::vector<BackendFactory>& backends,
                                          const StepSize& max, int max_sequences,
                                          int chunk_tokens = 0);

  // Returns true if the backend that --backend chooses computes on a device. A backend that does
  // not exist ends the process with a message.
  static bool UsesDevice(const std::vector<BackendFactory>& backends);
  // Returns PromptOrder::StepTokens for blocks of --block-tokens. With --block-tokens=auto,
  // `tokens` must be four blocks or more, and whole ones.
  static int StepTokens(int tokens);

  const ModelHost& model() const { return model_; }
  KvPlane* plane() { return plane_.get(); }

  // Starts listening; `service` answers the RPCs, and a WorkerIdentityService beside it tells
  // routers the epoch. From then on address() is the address that routers are told (--advertise).
  void Listen(grpc::Service* service, absl::string_view service_name);
  const std::string& address() const { return address_; }
  // Returns the random number that names this process.
  WorkerEpoch epoch() const { return epoch_; }
  // Returns the cluster's shared token, or "" if there is none.
  static std::string attach_token();

  // Returns the settings of the core's prefix cache, as the flags give them.
  PrefixCacheSettings prefix_cache() const;

  // Any thread. Runs `work` on the KV thread. That thread starts with Run; work that is given
  // before Run waits until then.
  void OnKvThread(std::function<void()> work);

  // core_pulse() and core_wake() are passed to the core as options. The core's loop calls Beat() of
  // the pulse, which shows that the loop is alive. If the core or the KV thread stays silent for
  // longer than --hang-limit, health is NOT_SERVING and no load reports are sent, so that routers
  // count this worker as dead.
  Pulse* core_pulse() { return &core_pulse_; }
  std::function<void()> core_wake() {
    return [this] { core_wakeup_.Wake(); };
  }

  // Returns the metrics that --metrics-listen shows. Callers add their own metrics before Run().
  // The added objects must outlive Run().
  MetricRegistry* metrics() { return &metrics_; }

  // Runs the core on a thread called `name` until the process is told to stop. Starts the KV thread
  // and the core's loop, calls `started`, attaches to the routers and serves metrics.
  //
  // The health service reports the worker's own service and one named "ready". "ready" is SERVING
  // while a router has accepted this worker. If there are workers of the other role, it must be
  // possible to pair this worker with one of them, and the KV link to one of them must be up. It
  // does not become SERVING while another router refuses this worker.
  //
  // After SIGTERM or SIGINT the core drains and the routers are told. Run waits until no jobs are
  // left, or until --drain-grace has passed; a second signal ends the process. After this wait, Run
  // ends the RPCs. If all jobs were finished in time, their last events are written first. The core
  // drops the remaining jobs, and attachment, KV thread and loop end. Nothing calls into the core
  // once Run has returned.
  void Run(WorkerCore* core, const char* name, int max_batch, const std::function<void()>& started);

 private:
  explicit WorkerHost(v1::WorkerRole role) : role_(role), kv_work_(kKvWork) {}
  static constexpr size_t kKvWork = 1 << 16;
  void StartKvThread();
  void Attach(int max_batch);
  void DrainWhenStopped();
  void Stop();
  std::optional<v1::LoadReport> Report();
  void WatchPulses(absl::Time now);
  void NoteLinks();
  void TellReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const v1::WorkerRole role_;
  WorkerEpoch epoch_ = 0;
  ModelHost model_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<KvPlane> plane_;
  std::unique_ptr<WorkerIdentityService> identity_;
  std::unique_ptr<RpcServer> server_;
  MetricRegistry metrics_;
  std::unique_ptr<MetricsServer> metrics_server_;
  std::string service_name_, listen_address_, address_;
  WorkerCore* core_ = nullptr;
  absl::Duration last_writes_;  // time that Stop() gives streams to write their last events

  Inbox<std::function<void()>> kv_work_;
  Pulse core_pulse_, kv_pulse_;
  Wakeup core_wakeup_;
  std::unique_ptr<Loop> kv_loop_;
  std::unique_ptr<PulseWatch> pulses_;  // used by the watch loop
  FreeMemory free_memory_;              // used by the watch loop
  std::unique_ptr<Loop> watch_loop_;

  Mutex mutex_;
  std::unique_ptr<AttachClient> attach_ ABSL_GUARDED_BY(mutex_);
  std::vector<ProvenLink> links_ ABSL_GUARDED_BY(mutex_);
  uint64_t peers_told_ ABSL_GUARDED_BY(mutex_) = 0;  // number of peer lists that routers have sent
  // Number of peer lists that the KV thread has taken.
  uint64_t peers_set_ ABSL_GUARDED_BY(mutex_) = 0;
  bool linked_ ABSL_GUARDED_BY(mutex_) = false;  // last result of KvPlane::has_link_or_no_peers()
  // True if routers say that this worker can't be paired with any worker of the other role.
  bool none_fits_ ABSL_GUARDED_BY(mutex_) = false;
  AttachClient::Standing standing_ ABSL_GUARDED_BY(mutex_);  // as the attach client told it last
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;  // true if the health service reports "ready"
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;  // true if a thread has been silent for too long
};

}  // namespace baton
