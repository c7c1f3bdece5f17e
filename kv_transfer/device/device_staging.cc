#include "kv_transfer/device/device_staging.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr size_t kRefused = 16;

}  // namespace

DeviceStaging::~DeviceStaging() {
  copies_.reset();
  for (auto& [id, reader] : readers_) {
    if (reader.slots.pinned) runtime_->UnpinHost(reader.slots.memory.data);
  }
}

void DeviceStaging::Stage(const StageNote& note) {
  const absl::Status status = TryStage(note);
  if (status.ok()) return;
  StagedNote refusal;
  refusal.reader = note.reader;
  refusal.id = note.id;
  refusal.code = status.code();
  refusal.message = std::string(status.message());
  const auto known = readers_.find(note.reader);
  if (known != readers_.end()) {
    Answer(refusal, known->second.address, &known->second.peer);
    return;
  }
  PeerId once = -1;
  Answer(refusal, note.address, &once);
  if (once >= 0) refused_.push_back(once);
  if (refused_.size() > kRefused) {
    inner_->Disconnect(refused_.front());
    refused_.pop_front();
  }
}

absl::Status DeviceStaging::TryStage(const StageNote& note) {
  if (note.pool >= pools_.size() || note.slot >= kSlots || note.bytes == 0 ||
      note.bytes > kSlotBytes || note.offset > pools_[note.pool].bytes ||
      note.bytes > pools_[note.pool].bytes - note.offset) {
    return absl::InvalidArgumentError(absl::StrCat(
        "staging of ", note.bytes, " bytes at ", note.offset, " of pool ", note.pool, " of ",
        pools_.size(),
        note.pool < pools_.size() ? absl::StrCat(" (", pools_[note.pool].bytes, " bytes)") : "",
        " into slot ", note.slot, " of ", kSlots, " of ", kSlotBytes, " bytes"));
  }
  if (copies_ == nullptr) {
    ASSIGN_OR_RETURN(auto copies, DeviceCopies::Create(runtime_));
    copies_ = std::move(copies);
  }
  ASSIGN_OR_RETURN(const auto found, FindReader(note));
  Reader& reader = *found;
  if (reader.under_way >= kMaxUnderWay) {
    return absl::ResourceExhaustedError(
        absl::StrCat(reader.under_way, " stagings of this reader are under way"));
  }
  const absl::Status status =
      copies_->Copy(reader.slots.memory.data + note.slot * kSlotBytes,
                    pools_[note.pool].data + note.offset, note.bytes,
                    [this, reader = note.reader, id = note.id, slot = note.slot](
                        const absl::Status& copied) { OnCopied(reader, id, slot, copied); });
  if (status.ok()) ++reader.under_way;
  return status;
}

absl::StatusOr<DeviceStaging::Reader*> DeviceStaging::FindReader(const StageNote& note) {
  const auto known = readers_.find(note.reader);
  if (known != readers_.end()) return &known->second;
  ASSIGN_OR_RETURN(const auto peer, inner_->Connect(note.address));
  auto slots = readers_.size() < kReaders ? NewSlots() : SlotsOfOneThatIsGone();
  if (!slots.ok()) {
    inner_->Disconnect(peer);
    return slots.status();
  }
  Reader reader;
  reader.slots = *std::move(slots);
  reader.peer = peer;
  reader.address = note.address;
  return &readers_.emplace(note.reader, std::move(reader)).first->second;
}

absl::StatusOr<DeviceStaging::Slots> DeviceStaging::NewSlots() {
  ASSIGN_OR_RETURN(auto memory, inner_->Allocate(kSlots * kSlotBytes));
  const absl::Status pinned = runtime_->PinHost(memory.data, memory.bytes);
  if (!pinned.ok()) {
    Log(Severity::kWarning, "kv_staging_not_pinned", {{"why", pinned.message()}});
  }
  return Slots{std::move(memory), pinned.ok()};
}

absl::StatusOr<DeviceStaging::Slots> DeviceStaging::SlotsOfOneThatIsGone() {
  for (auto it = readers_.begin(); it != readers_.end(); ++it) {
    if (it->second.under_way > 0) continue;
    // Tests whether the reader is gone: sending it a note then fails. A reader that is alive
    // ignores this note, because the note answers none of its requests.
    StagedNote nothing;
    nothing.reader = it->first;
    if (!absl::IsUnavailable(inner_->SendNote(it->second.peer, EncodeStaged(nothing)))) continue;
    inner_->Disconnect(it->second.peer);
    Slots slots = std::move(it->second.slots);
    readers_.erase(it);
    return slots;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("KV is staged for ", readers_.size(), " readers already"));
}

// Sends a reader the answer to its request for a copy. If the connection turns out to be broken,
// connects once more and retries: the reader itself may have closed the old connection.
void DeviceStaging::Answer(const StagedNote& note, const std::string& address, PeerId* peer) {
  const std::string bytes = EncodeStaged(note);
  for (int tries = 0; tries < 2; ++tries) {
    if (*peer < 0) {
      const auto connected = inner_->Connect(address);
      if (!connected.ok()) return;
      *peer = *connected;
    }
    if (!absl::IsUnavailable(inner_->SendNote(*peer, bytes))) return;
    inner_->Disconnect(std::exchange(*peer, -1));
  }
}

void DeviceStaging::OnCopied(uint64_t reader_id, uint64_t id, uint32_t slot,
                             const absl::Status& status) {
  Reader& reader = readers_.at(reader_id);
  --reader.under_way;
  StagedNote note;
  note.reader = reader_id;
  note.id = id;
  note.code = status.code();
  note.message = std::string(status.message());
  note.key = reader.slots.memory.key;
  note.offset = slot * kSlotBytes;
  Answer(note, reader.address, &reader.peer);
}

}  // namespace baton
