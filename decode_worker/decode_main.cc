#include "decode_worker/decode_main.h"

#include <limits>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/program.h"
#include "common/worker/worker_host.h"
#include "common/worker/worker_program.h"
#include "decode_worker/decode_service.h"

ABSL_FLAG(int32_t, max_batch, 64, "max sequences per step, 1 to 16384");
ABSL_FLAG(int32_t, max_sequences, 128,
          "max sequences that have KV blocks or have reserved them, and max prompts in the queue; "
          "more are refused");
ABSL_FLAG(int32_t, chunk_tokens, 256,
          "max tokens per step while prompts are computed here, tokens of running sequences "
          "included, 1 to 1048576");
ABSL_FLAG(
    absl::Duration, pause_limit, absl::Seconds(30),
    "max time that a sequence pauses for a client that reads too slowly; then the sequence ends");
ABSL_FLAG(absl::Duration, stall, absl::Seconds(4),
          "max time without a byte of KV from a prefill worker during a pull, 100ms or more; after "
          "it that worker counts as dead");

namespace baton {
namespace {

constexpr char kUsage[] =
    "baton-decode: generates tokens for the routers that it attaches to; pulls the KV of prompts\n"
    "from prefill workers, or computes it.\n\n"
    "  baton-decode --model DIR --routers HOST:PORT[,HOST:PORT...]";

}  // namespace

int DecodeMain(int argc, char** argv, const WorkerEquipment& equipment) {
  StartWorkerProgram(
      argc, argv, kUsage,
      {"Sequences and steps", "max-batch max-sequences chunk-tokens pause-limit stall"}, equipment);
  if (const absl::Duration stall = absl::GetFlag(FLAGS_stall); stall < absl::Milliseconds(100)) {
    RefuseToStart(
        absl::StrCat("--stall is ", absl::FormatDuration(stall), "; it takes 100 ms or more"));
  }
  if (const absl::Duration limit = absl::GetFlag(FLAGS_pause_limit); limit < absl::ZeroDuration()) {
    RefuseToStart(
        absl::StrCat("--pause-limit is ", absl::FormatDuration(limit), "; it takes 0 or more"));
  }
  constexpr int kMax = std::numeric_limits<int>::max();
  DecodeWorker::Options options = {
      .max_batch =
          CheckedInt("max-batch", absl::GetFlag(FLAGS_max_batch), 1, DecodeWorker::kMaxBatch),
      .max_sequences = CheckedInt("max-sequences", absl::GetFlag(FLAGS_max_sequences), 1, kMax),
      .chunk_tokens =
          CheckedInt("chunk-tokens", absl::GetFlag(FLAGS_chunk_tokens), 1, DecodeWorker::kMaxChunk),
      .pause_limit = absl::GetFlag(FLAGS_pause_limit)};
  const std::unique_ptr<WorkerHost> host =
      WorkerHost::Open(v1::WORKER_ROLE_DECODE, equipment.backends, DecodeWorker::MaxStep(options),
                       options.max_sequences);
  DecodeService service(host->attach_token(), host->epoch());
  host->Listen(&service, v1::DecodeWorker::service_full_name());
  const auto puller = KvPuller::Create(host->plane(), {.stall = absl::GetFlag(FLAGS_stall)});

  DecodeMetrics metrics;
  metrics.AddTo(host->metrics());
  options.context = host->model().context;
  options.wake = host->core_wake();
  options.pulse = host->core_pulse();
  options.cache = host->prefix_cache();
  options.cache.check_content = equipment.check_cached_kv;
  options.metrics = &metrics;
  absl::StatusOr<std::unique_ptr<DecodeWorker>> worker = DecodeWorker::Create(
      options, host->model().model.get(), host->model().backend.get(), host->plane(), puller.get(),
      [&host](std::function<void()> work) { host->OnKvThread(std::move(work)); });
  if (!worker.ok()) RefuseToStart(worker.status().message());
  host->Run(worker->get(), "decode", options.max_batch,
            [&service, &worker] { service.SetWorker(worker->get()); });
  return 0;
}

}  // namespace baton
