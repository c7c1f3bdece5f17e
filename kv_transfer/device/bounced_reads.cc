#include "kv_transfer/device/bounced_reads.h"

#include <utility>

#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "kv_transfer/device/device_staging.h"

namespace baton {
namespace {

constexpr int kLandings = 16;

}  // namespace

BouncedReads::BouncedReads(DeviceRuntime* runtime, Transport* inner)
    : runtime_(runtime), inner_(inner), reader_(RandomU64()) {}

BouncedReads::~BouncedReads() {
  if (landings_ != nullptr) runtime_->FreePinned(landings_);
}

absl::StatusOr<bool> BouncedReads::Ask(const Run& run, std::byte* to, Arrived arrived) {
  if (to == nullptr && landings_ == nullptr) {
    ASSIGN_OR_RETURN(const auto landings,
                     runtime_->AllocatePinned(kLandings * DeviceStaging::kSlotBytes));
    landings_ = landings;
    for (int i = 0; i < kLandings; ++i) {
      free_landings_.push_back(landings_ + i * DeviceStaging::kSlotBytes);
    }
  }
  const auto [known, is_new] = free_slots_.try_emplace(run.peer);
  std::vector<uint32_t>& slots = known->second;
  for (uint32_t slot = 0; is_new && slot < DeviceStaging::kSlots; ++slot) slots.push_back(slot);
  if (slots.empty() || (to == nullptr && free_landings_.empty())) return false;
  StageNote note;
  note.reader = reader_;
  note.id = last_ + 1;
  note.slot = slots.back();
  note.pool = run.pool;
  note.offset = run.offset;
  note.bytes = run.bytes;
  note.address = inner_->address();
  const absl::Status sent = inner_->SendNote(run.peer, EncodeStage(note));
  if (absl::IsResourceExhausted(sent)) return false;
  RETURN_IF_ERROR(sent);
  slots.pop_back();
  Bounce bounce{run, to, nullptr, note.slot, std::move(arrived)};
  if (to == nullptr) {
    bounce.to = bounce.landing = free_landings_.back();
    free_landings_.pop_back();
  }
  bounces_.emplace(++last_, std::move(bounce));
  return true;
}

void BouncedReads::OnStaged(const StagedNote& note) {
  if (note.reader != reader_) return;
  const auto it = bounces_.find(note.id);
  if (it == bounces_.end() || it->second.reading) return;
  Bounce& bounce = it->second;
  if (note.code != absl::StatusCode::kOk) {
    End(note.id, absl::Status(note.code, note.message));
    return;
  }
  bounce.reading = true;
  inner_->Read({bounce.run.peer, note.key, note.offset, bounce.to, bounce.run.bytes,
                [this, number = note.id](const absl::Status& status) { End(number, status); }});
}

// Ends a run, which is one part of a read, and frees its slot (host memory of the peer). Then calls
// the run's `arrived`, and passes it the landing buffer (our pinned memory) that the run used, or
// null if the run used none.
void BouncedReads::End(uint64_t number, const absl::Status& status) {
  const auto it = bounces_.find(number);
  const Bounce bounce = std::move(it->second);
  bounces_.erase(it);
  free_slots_.at(bounce.run.peer).push_back(bounce.slot);
  bounce.arrived(status, bounce.landing);
}

void BouncedReads::EndWaiting(PeerId peer, const absl::Status& why) {
  std::vector<uint64_t> waiting;
  for (const auto& [number, bounce] : bounces_) {
    if (bounce.run.peer == peer && !bounce.reading) waiting.push_back(number);
  }
  for (const uint64_t number : waiting) End(number, why);
}

void BouncedReads::Forget(PeerId peer) { free_slots_.erase(peer); }

}  // namespace baton
