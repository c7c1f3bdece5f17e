#include "common/worker/worker_metrics.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "kv_transfer/transport/link_names.h"

namespace baton {

std::string MetricPrefix(v1::WorkerRole role) {
  return role == v1::WORKER_ROLE_PREFILL ? "baton_prefill_" : "baton_decode_";
}

void AddWorkerMetrics(const v1::Registration& registration, const WorkerCore* core,
                      std::function<std::vector<ProvenLink>()> links, MetricRegistry* registry) {
  const bool prefill = registration.role() == v1::WORKER_ROLE_PREFILL;
  const std::string prefix = MetricPrefix(registration.role());
  registry->AddGauge("baton_worker_info", "Always 1. The labels describe this worker.",
                     {{"role", prefill ? "prefill" : "decode"},
                      {"model", registration.model()},
                      {"model_fingerprint", registration.model_fingerprint()},
                      {"numerics_id", registration.numerics_id()},
                      {"epoch", absl::StrCat(absl::Hex(registration.epoch(), absl::kZeroPad16))}},
                     [] { return 1.0; });
  const auto gauge = [&](const char* name, const char* help, auto value) {
    registry->AddGauge(prefix + name, help, {},
                       [core, value] { return static_cast<double>(value(core->Load())); });
  };
  gauge("requests_running",
        prefill ? "Prompts whose chunks the next step can take."
                : "Sequences that the next step can take.",
        [](const WorkerLoad& l) { return l.running; });
  gauge("requests_waiting",
        prefill ? "Prompts whose computation has not begun."
                : "Sequences that wait for KV, for free blocks, for a place in the batch, or for a "
                  "client that reads too slowly.",
        [](const WorkerLoad& l) { return l.waiting; });
  gauge("waiting_prompt_tokens", "Prompt tokens that this worker still has to compute.",
        [](const WorkerLoad& l) { return l.waiting_tokens; });
  gauge("kv_blocks", "KV blocks in the pool, free or not.",
        [](const WorkerLoad& l) { return l.total_blocks; });
  gauge("kv_blocks_used", "KV blocks that are not free.",
        [](const WorkerLoad& l) { return l.total_blocks - l.free_blocks; });
  gauge("kv_blocks_cached",
        "Free KV blocks that the prefix cache keeps until they are needed for something else.",
        [](const WorkerLoad& l) { return l.cached_blocks; });
  registry->AddGauge(prefix + "kv_block_tokens", "Tokens per KV block.", {},
                     [tokens = registration.block_tokens()] { return double(tokens); });
  gauge("draining",
        "1 while this worker drains: it finishes running work and takes no new requests. Otherwise "
        "0.",
        [](const WorkerLoad& l) { return l.draining ? 1 : 0; });
  if (prefill) return;
  for (size_t index = 0; index < std::size(kLinkNames); ++index) {
    registry->AddGauge(prefix + "kv_links", "Proven links to prefill workers, by transport.",
                       {{"link", std::string(kLinkNames[index])}}, [links, index] {
                         const std::vector<ProvenLink> all = links();
                         return static_cast<double>(
                             std::count_if(all.begin(), all.end(), [index](const ProvenLink& link) {
                               return LinkIndex(link.link) == index;
                             }));
                       });
  }
}

}  // namespace baton
