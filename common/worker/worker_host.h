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
#include "common/base/inbox.h"
#include "common/base/loop.h"
#include "common/base/mutex.h"
#include "common/base/pulse.h"
#include "common/base/wakeup.h"
#include "common/metrics/metric_registry.h"
#include "common/metrics/metrics_server.h"
#include "common/rpc/attach_client.h"
#include "common/rpc/rpc_server.h"
#include "common/worker/backend_factory.h"
#include "common/worker/model_host.h"
#include "common/worker/worker_core.h"
#include "kv_transfer/kv_plane.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// With what a worker's process ends, at once, when its device has failed for good: nothing that it
// still holds can be answered, and only another process can use a device again.
inline constexpr int kDeviceFailedStatus = 3;

// What a worker process is made of beside its core: flags, model, KV plane with its thread, gRPC
// server, attachment to routers, and the way it stops. `main` calls the functions in the order they
// stand here.
class WorkerHost {
 public:
  // Reads the flags that both kinds of worker have; opens model and KV plane. A flag or file that
  // can't be used ends the process with a message (RefuseToStart). --backend names the CPU's
  // backend or one of `backends`. `most`: of a step of its core. `max_sequences`: that may hold KV
  // at one time. `chunk_tokens`: whole KV blocks, if that is not 0. When it returns, weights have
  // been read once and all memory of the KV pool has been taken.
  static std::unique_ptr<WorkerHost> Open(v1::WorkerRole role,
                                          const std::vector<BackendFactory>& backends,
                                          const StepSize& most, int max_sequences,
                                          int chunk_tokens = 0);

  const ModelHost& model() const { return model_; }
  KvPlane* plane() { return plane_.get(); }

  // Listens, with `service` answering. address() is the one that routers are told (--advertise).
  void Listen(grpc::Service* service, absl::string_view service_name);
  const std::string& address() const { return address_; }
  // The cluster's shared token, or nothing.
  static std::string attach_token();

  // Any thread: runs `work` on the KV thread, which starts with Run (work given before waits).
  void OnKvThread(std::function<void()> work);

  // For the core's options. The core's loop beats the pulse. While the core, or the KV thread,
  // stays silent for longer than --hang-limit, no load report is sent, so that routers count this
  // worker as dead, and health is NOT_SERVING.
  Pulse* core_pulse() { return &core_pulse_; }
  std::function<void()> core_wake() {
    return [this] { core_wakeup_.Wake(); };
  }

  // The metrics that --metrics-listen shows. Callers add theirs before Run(); what they add
  // outlives Run().
  MetricRegistry* metrics() { return &metrics_; }

  // Runs the core on a thread of that name, from now until the process is told to stop: starts the
  // KV thread and the core's loop, calls `started`, attaches to the routers and serves metrics.
  // Health knows a service "ready" beside the worker's own: SERVING while a router has taken this
  // worker and, where there are workers of the other role, one of them fits and a link with one is
  // up.
  //
  // After SIGTERM or SIGINT the core drains, the routers are told, and Run waits until no jobs are
  // left, or until --drain-grace has passed; a second signal ends the process. Then RPCs end (those
  // of jobs that were finished in time once what they said is written), the core lets go of their
  // jobs, and attachment, KV thread and loop end. Nothing calls into the core once Run has
  // returned.
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
  std::unique_ptr<RpcServer> server_;
  MetricRegistry metrics_;
  std::unique_ptr<MetricsServer> metrics_server_;
  std::string service_name_, listen_address_, address_;
  WorkerCore* core_ = nullptr;
  absl::Duration last_writes_;  // how long Stop() lets streams write what has been said

  Inbox<std::function<void()>> kv_work_;
  Pulse core_pulse_, kv_pulse_;
  Wakeup core_wakeup_;
  std::unique_ptr<Loop> kv_loop_;
  std::unique_ptr<PulseWatch> pulses_;  // watch loop
  std::unique_ptr<Loop> watch_loop_;

  Mutex mutex_;
  std::unique_ptr<AttachClient> attach_ ABSL_GUARDED_BY(mutex_);
  std::vector<ProvenLink> links_ ABSL_GUARDED_BY(mutex_);
  uint64_t peers_told_ ABSL_GUARDED_BY(mutex_) = 0;  // lists of peers that routers made
  uint64_t peers_set_ ABSL_GUARDED_BY(mutex_) = 0;   // and that the KV thread has taken
  bool linked_ ABSL_GUARDED_BY(mutex_) = false;      // KvPlane::has_link_or_no_peers()
  bool none_fits_ ABSL_GUARDED_BY(mutex_) = false;   // of the other role's workers, as routers say
  int attached_ ABSL_GUARDED_BY(mutex_) = 0;         // routers that have taken this worker
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;       // as health says
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;  // a loop of ours is silent
};

}  // namespace baton
