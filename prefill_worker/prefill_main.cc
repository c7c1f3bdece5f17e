#include "prefill_worker/prefill_main.h"

#include <limits>
#include <optional>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/program.h"
#include "common/worker/auto_flag.h"
#include "common/worker/worker_host.h"
#include "common/worker/worker_program.h"
#include "prefill_worker/prefill_service.h"

ABSL_FLAG(int32_t, max_queue, 256, "max prompts that wait to be computed; more are refused");
ABSL_FLAG(baton::OrAuto<int32_t>, chunk_tokens, baton::OrAuto<int32_t>(),
          "max prompt tokens per step, over all prompts, up to 1048576; a multiple of "
          "--block-tokens; auto: 512 on a GPU, otherwise 128, but at least four blocks; with fewer "
          "blocks the oldest prompt gets more than a quarter of each step, and with one block "
          "prompts are computed in the order of arrival");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(45),
          "max time that a prompt's KV is kept without a message from a decode worker, 2s or more; "
          "a decode worker that reads the KV sends one every second");

namespace baton {
namespace {

constexpr char kUsage[] =
    "baton-prefill: computes the KV and the first token of prompts, for the routers that it\n"
    "attaches to.\n\n"
    "  baton-prefill --model DIR --routers HOST:PORT[,HOST:PORT...]";

// A new prompt waits for the step that runs when it comes. On a CPU larger steps are no faster (see
// docs/measurements.md), but a GPU is not busy with fewer tokens.
constexpr int kDeviceChunk = 512, kHostChunk = 128;

int ChunkTokens(const std::vector<BackendFactory>& backends) {
  if (const std::optional<int32_t> chunk = absl::GetFlag(FLAGS_chunk_tokens).value) {
    return CheckedInt("chunk-tokens", *chunk, 1, PrefillWorker::kMaxChunk);
  }
  return WorkerHost::StepTokens(WorkerHost::UsesDevice(backends) ? kDeviceChunk : kHostChunk);
}

}  // namespace

int PrefillMain(int argc, char** argv, const WorkerEquipment& equipment) {
  StartWorkerProgram(argc, argv, kUsage, {"Queue and steps", "max-queue chunk-tokens lease"},
                     equipment);
  if (const absl::Duration lease = absl::GetFlag(FLAGS_lease); lease < absl::Seconds(2)) {
    RefuseToStart(absl::StrCat("--lease is ", absl::FormatDuration(lease),
                               "; it takes two seconds or more: readers renew it every second"));
  }
  constexpr int kMax = std::numeric_limits<int>::max();
  PrefillWorker::Options options = {
      .max_queue = CheckedInt("max-queue", absl::GetFlag(FLAGS_max_queue), 1, kMax),
      .chunk_tokens = ChunkTokens(equipment.backends)};
  const std::unique_ptr<WorkerHost> host =
      WorkerHost::Open(v1::WORKER_ROLE_PREFILL, equipment.backends, PrefillWorker::MaxStep(options),
                       options.max_batch, options.chunk_tokens);
  PrefillService service(host->attach_token(), host->epoch());
  host->Listen(&service, v1::PrefillWorker::service_full_name());
  const auto publisher = KvPublisher::Create(
      host->plane(), {.owner = host->address(), .lease = absl::GetFlag(FLAGS_lease)});

  PrefillMetrics metrics;
  metrics.AddTo(host->metrics());
  options.context = host->model().context;
  options.wake = host->core_wake();
  options.pulse = host->core_pulse();
  options.cache = host->prefix_cache();
  options.cache.check_content = equipment.check_cached_kv;
  options.metrics = &metrics;
  absl::StatusOr<std::unique_ptr<PrefillWorker>> worker = PrefillWorker::Create(
      options, host->model().model.get(), host->model().backend.get(), host->plane(),
      publisher.get(), [&host](std::function<void()> work) { host->OnKvThread(std::move(work)); });
  if (!worker.ok()) RefuseToStart(worker.status().message());
  host->Run(worker->get(), "prefill", options.max_queue,
            [&service, &worker] { service.SetWorker(worker->get()); });
  return 0;
}

}  // namespace baton
