#include "kv_transfer/device_staging.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace baton {

DeviceStaging::~DeviceStaging() {
  if (stream_ != nullptr) (void)runtime_->Synchronize(*stream_);
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
  inner_->Disconnect(once);
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
  if (stream_ == nullptr) {
    auto stream = runtime_->CreateStream(StreamKind::kCopy);
    if (!stream.ok()) return stream.status();
    stream_ = *std::move(stream);
  }
  const auto found = FindReader(note);
  if (!found.ok()) return found.status();
  Reader& reader = **found;
  if (reader.under_way >= kMostUnderWay) {
    return absl::ResourceExhaustedError(
        absl::StrCat(reader.under_way, " stagings of this reader are under way"));
  }
  std::unique_ptr<DeviceEvent> event;
  if (spare_events_.empty()) {
    auto created = runtime_->CreateEvent();
    if (!created.ok()) return created.status();
    event = *std::move(created);
  } else {
    event = std::move(spare_events_.back());
    spare_events_.pop_back();
  }
  absl::Status status = runtime_->Copy(reader.slots.memory.data + note.slot * kSlotBytes,
                                       pools_[note.pool].data + note.offset, note.bytes, *stream_);
  if (status.ok()) status = runtime_->Record(*event, *stream_);
  if (!status.ok()) return status;
  ++reader.under_way;
  copies_.push_back({note.reader, note.id, note.slot, std::move(event)});
  return absl::OkStatus();
}

absl::StatusOr<DeviceStaging::Reader*> DeviceStaging::FindReader(const StageNote& note) {
  const auto known = readers_.find(note.reader);
  if (known != readers_.end()) return &known->second;
  const auto peer = inner_->Connect(note.address);
  if (!peer.ok()) return peer.status();
  auto slots = readers_.size() < kReaders ? NewSlots() : SlotsOfOneThatIsGone();
  if (!slots.ok()) {
    inner_->Disconnect(*peer);
    return slots.status();
  }
  Reader reader;
  reader.slots = *std::move(slots);
  reader.peer = *peer;
  reader.address = note.address;
  return &readers_.emplace(note.reader, std::move(reader)).first->second;
}

absl::StatusOr<DeviceStaging::Slots> DeviceStaging::NewSlots() {
  auto memory = inner_->Allocate(kSlots * kSlotBytes);
  if (!memory.ok()) return memory.status();
  const absl::Status pinned = runtime_->PinHost(memory->data, memory->bytes);
  if (!pinned.ok()) {
    Log(Severity::kWarning, "kv_staging_not_pinned", {{"why", pinned.message()}});
  }
  return Slots{*std::move(memory), pinned.ok()};
}

absl::StatusOr<DeviceStaging::Slots> DeviceStaging::SlotsOfOneThatIsGone() {
  for (auto it = readers_.begin(); it != readers_.end(); ++it) {
    if (it->second.under_way > 0) continue;
    // An answer to nothing, which a reader that is there ignores.
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

// A connection that broke unnoticed is made anew once: its end may have been the reader's own
// doing.
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

bool DeviceStaging::Progress() {
  bool any = false;
  while (!copies_.empty()) {
    const absl::StatusOr<bool> ran = runtime_->Query(*copies_.front().event);
    if (ran.ok() && !*ran) break;
    Copied copied = std::move(copies_.front());
    copies_.pop_front();
    spare_events_.push_back(std::move(copied.event));
    any = true;
    Reader& reader = readers_.at(copied.reader);
    --reader.under_way;
    StagedNote note;
    note.reader = copied.reader;
    note.id = copied.id;
    note.code = ran.status().code();
    note.message = std::string(ran.status().message());
    note.key = reader.slots.memory.key;
    note.offset = copied.slot * kSlotBytes;
    Answer(note, reader.address, &reader.peer);
  }
  return any;
}

}  // namespace baton
