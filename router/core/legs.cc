#include "router/core/legs.h"

#include <algorithm>
#include <utility>

#include "router/core/attempt.h"
#include "router/core/membership.h"
#include "router/core/request_metrics.h"
#include "router/core/request_queue.h"

namespace baton {

Leg& Legs::Open(Request* request, Worker& worker, bool prefill, uint64_t prompt_tokens,
                uint64_t cached_tokens) {
  const LegKey key = next_key_++;
  Leg& leg = legs_[key];
  leg = {.key = key,
         .request = request,
         .worker = worker.name.key,
         .prefill = prefill,
         .started = core_->now,
         .heard = core_->now,
         .prompt_tokens = prompt_tokens,
         .cached_tokens = std::min(cached_tokens, prompt_tokens),
         .turn = request->queue.turn};
  ++worker.legs;
  worker.health.Began(key, core_->now);
  if (!prefill) worker.new_blocks += worker.BlocksFor(membership_->NeedOf(*request).tokens);
  worker.prompt_tokens += leg.prompt_tokens;
  worker.cached_prompt_tokens += leg.cached_tokens;
  if (prompt_tokens > 0) {
    ++worker.prompts;
    ++request->caller->prompts;
    request->caller->last_turn = std::max(request->caller->last_turn, leg.turn);
    worker.turns.emplace(leg.turn, leg.prompt_tokens - leg.cached_tokens);
    (prefill ? core_->metrics->expected_prefill_hits : core_->metrics->expected_decode_hits)
        .Add(leg.cached_tokens);
    NoteKept(leg);
  }
  return leg;
}

LegKey Legs::OpenToForget(const Worker& worker, bool prefill) {
  const LegKey key = next_key_++;
  legs_[key] = {.key = key,
                .worker = worker.name.key,
                .prefill = prefill,
                .forgets = true,
                .started = core_->now,
                .heard = core_->now};
  return key;
}

void Legs::CancelForgetting() {
  for (auto& [key, leg] : legs_) {
    if (std::exchange(leg.forgets, false)) core_->actions.push_back(CancelLeg{key});
  }
}

void Legs::NoteKept(const Leg& leg) {
  const Worker* worker = membership_->workers().Find(leg.worker);
  const CheckedRequest& checked = leg.request->checked;
  if (worker == nullptr || !worker->registration.prefix_cache() || !checked.prefix_cache ||
      checked.block_names == nullptr) {
    return;
  }
  membership_->caches().NoteRouted(leg.worker, *checked.block_names);
}

void Legs::PromptDone(Leg& leg) {
  if (Worker* worker = membership_->workers().Find(leg.worker);
      worker != nullptr && leg.prompt_tokens > 0) {
    --worker->prompts;
    worker->prompt_tokens -= leg.prompt_tokens;
    worker->cached_prompt_tokens -= leg.cached_tokens;
    worker->turns.erase(worker->turns.find({leg.turn, leg.prompt_tokens - leg.cached_tokens}));
    queue_->LookAgain();
  }
  if (leg.prompt_tokens > 0) {
    Caller& caller = *leg.request->caller;
    if (--caller.prompts == 0) caller.last_turn = 0;
  }
  leg.prompt_tokens = leg.cached_tokens = 0;
}

void Legs::Close(Leg& leg, bool cancel) {
  PromptDone(leg);
  leg.request = nullptr;
  if (Worker* worker = membership_->workers().Find(leg.worker)) {
    --worker->legs;
    worker->health.Ended(leg.key);
    if (worker->legs == 0 && worker->attach == 0) membership_->ForgetAt(core_->now);
  }
  queue_->LookAgain();
  if (cancel) core_->actions.push_back(CancelLeg{leg.key});
  if (!leg.prefill) RoomFreed();
}

Leg* Legs::Find(LegKey key) {
  const auto found = legs_.find(key);
  return found == legs_.end() ? nullptr : &found->second;
}

std::vector<LegKey> Legs::ListeningTo(const std::vector<WorkerKey>& workers) const {
  std::vector<LegKey> keys;
  for (const auto& [key, leg] : legs_) {
    if (leg.request != nullptr &&
        std::find(workers.begin(), workers.end(), leg.worker) != workers.end()) {
      keys.push_back(key);
    }
  }
  return keys;
}

void Legs::Excuse(absl::Duration by) {
  for (auto& [key, leg] : legs_) leg.heard = std::min(core_->now, leg.heard + by);
}

void Legs::WaitForRoom(Request* request) { waiting_[request->key] = request; }

void Legs::StopWaiting(Request* request) {
  if (waiting_.erase(request->key) == 0) return;
  queue_->LookAgain();
  // A decode worker may have free blocks that this request did not take. The next waiting request
  // could use them.
  RoomFreed();
}

void Legs::RoomFreed() {
  for (const auto& [key, request] : waiting_) {
    if (!request->attempt->waits_for_room()) continue;
    request->attempt->OnRoomFreed();
    core_->timers.Update(*request);
    return;
  }
}

std::set<WorkerKey> Legs::Awaited() const {
  std::map<WorkerKey, Need> min;  // The smallest need of the tickets of each prefill worker.
  for (const auto& [key, request] : waiting_) {
    const Need need = membership_->NeedOf(*request);
    const auto [found, added] = min.try_emplace(request->attempt->prefill_worker(), need);
    if (!added && need.tokens < found->second.tokens) found->second = need;
  }
  std::set<WorkerKey> awaited;
  for (const auto& [key, need] : min) {
    const Worker* prefill = membership_->workers().Find(key);
    if (prefill == nullptr) continue;
    for (const Worker* decode : membership_->workers().PartnersFor(*prefill, need, core_->now)) {
      awaited.insert(decode->name.key);
    }
  }
  return awaited;
}

}  // namespace baton
