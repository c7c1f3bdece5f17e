#include <utility>

#include "absl/strings/str_cat.h"
#include "router/router_core_parts.h"

// A try whose prompt the decode worker computes: one leg, no ticket, no hand-over.
namespace baton {

void RouterCore::Parts::OpenColocated(Request& request, Worker& worker, absl::Time now) {
  request.stage = Request::Stage::kRunning;
  request.not_before = absl::InfinitePast();
  Bind(request, worker.identity);
  request.base = request.answer.tokens().size();
  request.colocated = true;
  request.prefill_worker = 0;
  request.prefill_address = worker.name.address;
  request.link.clear();
  request.served = v1::SERVING_MODE_COLOCATED;
  request.scored = 0;
  ++counters.colocated;

  StartDecode start = OpenDecode(request, worker, now);
  // Another try scores the prompt again only if some of it is still missing.
  if (!request.awaits_scores()) start.request.mutable_sampling()->clear_prompt_logprobs();
  Leg& leg = legs.at(start.leg);
  leg.prompt_tokens = static_cast<uint64_t>(start.request.token_ids_size());
  ++worker.prompts;
  worker.prompt_tokens += leg.prompt_tokens;
  actions.push_back(std::move(start));
}

void RouterCore::Parts::OnBegun(Request& request, absl::Time now) {
  if (request.ticket_at) return;
  request.ticket_at = now;
  request.refused_since.reset();
  request.timing.set_queue_us(request.timing.queue_us() + Micros(now - request.enqueued));
}

bool RouterCore::Parts::OnFirstColocated(Request& request, Leg& leg, absl::Time now) {
  if (request.awaits_scores()) {
    LegFailed(leg,
              absl::DataLossError(absl::StrCat(
                  "the decode worker sent the first token after the logprobs of ",
                  request.prompt_scored, " of ", request.checked.prompt.size(), " prompt tokens")),
              false, now);
    return false;
  }
  OnBegun(request, now);
  PromptDone(leg);
  request.first_token_at = now;
  request.timing.set_prefill_us(request.timing.prefill_us() + Micros(now - *request.ticket_at));
  return true;
}

}  // namespace baton
