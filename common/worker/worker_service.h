#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/rpc/dial.h"
#include "common/rpc/stream_writer.h"
#include "common/rpc/worker_identity.h"
#include "common/worker/worker_core.h"

namespace baton {

// Answers the RPCs of a worker's gRPC service. Each RPC brings one job and streams its updates.
// Runs on any of gRPC's threads. A broken or cancelled stream cancels its job.
//   Worker  the core: PrefillWorker or DecodeWorker
//   Job     what the core takes
//   Update  what the core reports
//   Event   the message of the stream
template <typename Worker, typename Job, typename Update, typename Event>
class JobStreams {
 public:
  using Writer = StreamWriter<Event>;

  // `token` is the cluster's shared token, and `epoch` the epoch of this worker: a request that is
  // meant for another epoch is refused. `write` sends one update, or ends the stream.
  JobStreams(std::string token, WorkerEpoch epoch, void (*write)(Writer&, const Update&))
      : token_(std::move(token)), epoch_(epoch), write_(write) {}

  // Sets the worker that answers. Until then RPCs fail with Unavailable. `worker` must outlive the
  // server.
  void SetWorker(Worker* worker) { worker_ = worker; }

  // Answers one RPC. `meant` is the epoch of the worker process that the RPC is meant for.
  // `read_job` makes the job from the request. If the core takes the job, `begun` is called before
  // gRPC gets the stream. If the request only asks to forget cached KV, there is no job, and the
  // stream ends with OK.
  grpc::ServerWriteReactor<Event>* Serve(
      const grpc::CallbackServerContext& context, WorkerEpoch meant,
      absl::FunctionRef<absl::StatusOr<Job>()> read_job,
      absl::FunctionRef<void(Writer&, Worker*, typename Worker::JobId)> begun) {
    const std::shared_ptr<Writer> writer = Writer::Create();
    Worker* const worker = worker_;
    const auto submit = [&]() -> absl::StatusOr<std::optional<typename Worker::JobId>> {
      RETURN_IF_ERROR(CheckToken(context, token_));
      RETURN_IF_ERROR(CheckWorkerEpoch(meant, epoch_));
      if (worker == nullptr) return absl::UnavailableError("the worker is starting");
      ASSIGN_OR_RETURN(Job job, read_job());
      if (job.cache == CacheUse::kForget) {
        RETURN_IF_ERROR(
            worker->Forget(std::move(job.tokens), job.original_prompt_tokens, job.cache_salt));
        return std::nullopt;
      }
      return worker->Submit(std::move(job), [writer, write = write_](const Update& update) {
        write(*writer, update);
      });
    };
    if (const auto id = submit(); id.ok() && *id) {
      writer->SetCancelled([worker, id = **id] { worker->Cancel(id); });
      begun(*writer, worker, **id);
    } else {
      writer->End(id.status());
    }
    return writer.get();
  }

 private:
  const std::string token_;
  const WorkerEpoch epoch_;
  void (*const write_)(Writer&, const Update&);
  std::atomic<Worker*> worker_ = nullptr;
};

}  // namespace baton
