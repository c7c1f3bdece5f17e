#include "kv_transfer/testing/faulty_transport.h"

#include <algorithm>
#include <utility>

namespace baton {

FaultyTransport::FaultyTransport(Transport* inner, uint64_t seed, std::function<absl::Time()> clock)
    : inner_(inner), clock_(std::move(clock)), random_(seed) {}

FaultyTransport::~FaultyTransport() {
  inner_->SetNoteHandler(nullptr);
  while (!reads_.empty()) Disconnect(reads_.front().operation.peer);
}

bool FaultyTransport::Chance(double probability) {
  return probability > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

absl::Duration FaultyTransport::Between(absl::Duration low, absl::Duration high) {
  if (high <= low) return low;
  return low +
         std::uniform_int_distribution<int64_t>(0, absl::ToInt64Microseconds(high - low))(random_) *
             absl::Microseconds(1);
}

absl::Time FaultyTransport::NextDue() const {
  absl::Time next = absl::InfiniteFuture();
  for (const HeldRead& read : reads_) {
    if (!read.stalled) next = std::min(next, read.due);
  }
  for (const HeldNote& note : notes_) next = std::min(next, note.due);
  return next;
}

void FaultyTransport::Read(ReadOperation operation) {
  HeldRead read{clock_() + Between(faults_.read_delay_min, faults_.read_delay_max),
                std::move(operation), ""};
  read.key = std::string(read.operation.key);
  read.operation.key = {};
  read.stalled = Chance(faults_.stall_read);
  if (Chance(faults_.tear_read) && read.operation.bytes >= 2) {
    // A torn read is two reads, of the first and of the second half. If the first one fails, the
    // whole read fails. Otherwise the second one is made, and its result is the result of the read.
    HeldRead first = read;
    const size_t half = read.operation.bytes / 2;
    first.operation.bytes = half;
    read.operation.offset += half;
    read.operation.local += half;
    read.operation.bytes -= half;
    read.due += Between(absl::ZeroDuration(), faults_.read_delay_max);
    const auto rest = std::make_shared<HeldRead>(std::move(read));
    first.operation.done = [this, rest](absl::Status status) {
      if (!status.ok()) {
        rest->operation.done(std::move(status));
      } else {
        reads_.push_back(*rest);
      }
    };
    reads_.push_back(std::move(first));
    return;
  }
  reads_.push_back(std::move(read));
}

absl::Status FaultyTransport::SendNote(PeerId peer, absl::string_view note) {
  if (note.size() > kMaxNoteBytes) return inner_->SendNote(peer, note);
  if (IsCut(peer)) return absl::UnavailableError("cut");
  if (peer < first_loud_ || Chance(faults_.drop_note)) return absl::OkStatus();
  absl::Time due = clock_() + Between(faults_.note_delay_min, faults_.note_delay_max);
  bool waits = due > clock_();
  for (const HeldNote& held : notes_) {
    if (held.peer != peer) continue;
    due = std::max(due, held.due);
    waits = true;
  }
  if (!waits) return inner_->SendNote(peer, note);
  notes_.push_back({due, peer, std::string(note)});
  return absl::OkStatus();
}

void FaultyTransport::SetNoteHandler(std::function<void(absl::string_view note)> handler) {
  if (!handler) return inner_->SetNoteHandler(nullptr);
  inner_->SetNoteHandler([this, handler = std::move(handler)](absl::string_view note) {
    if (!cut_all_) handler(note);
  });
}

void FaultyTransport::StartRead(HeldRead read) {
  if (IsCut(read.operation.peer) || Chance(faults_.fail_read)) {
    read.operation.done(absl::UnavailableError("cut"));
    return;
  }
  const bool corrupt = Chance(faults_.corrupt_read) && read.operation.bytes > 0;
  const size_t where = corrupt ? random_() % read.operation.bytes : 0;
  ++started_;
  ReadOperation inner = read.operation;
  inner.key = read.key;
  inner.done = [this, corrupt, where, operation = std::move(read.operation)](absl::Status status) {
    --started_;
    if (status.ok() && corrupt) operation.local[where] ^= std::byte{0x10};
    operation.done(std::move(status));
  };
  inner_->Read(std::move(inner));
}

void FaultyTransport::Disconnect(PeerId peer) {
  notes_.erase(std::remove_if(notes_.begin(), notes_.end(),
                              [peer](const HeldNote& note) { return note.peer == peer; }),
               notes_.end());
  inner_->Disconnect(peer);
  // Ends the reads that had not started. They include the second half of a read whose first half
  // has just ended in `inner_->Disconnect`.
  std::vector<HeldRead> ended, kept;
  for (HeldRead& read : reads_) {
    (read.operation.peer == peer ? ended : kept).push_back(std::move(read));
  }
  reads_ = std::move(kept);
  for (HeldRead& read : ended) {
    read.operation.done(absl::UnavailableError("disconnected before the read was done"));
  }
}

bool FaultyTransport::Progress() {
  bool moved = false;
  const absl::Time now = clock_();
  std::deque<HeldNote> notes;
  notes.swap(notes_);
  for (HeldNote& note : notes) {
    if (note.due > now) {
      notes_.push_back(std::move(note));
    } else if (!IsCut(note.peer)) {
      // The sender has already got OK, so a note that fails now is lost.
      (void)inner_->SendNote(note.peer, note.bytes);
      moved = true;
    }
  }
  std::vector<HeldRead> due, kept;
  for (HeldRead& read : reads_) {
    (read.stalled || read.due > now ? kept : due).push_back(std::move(read));
  }
  reads_ = std::move(kept);
  if (faults_.shuffle_reads) std::shuffle(due.begin(), due.end(), random_);
  for (HeldRead& read : due) {
    StartRead(std::move(read));
    moved = true;
  }
  return inner_->Progress() || moved;
}

void FaultyTransport::Wait(absl::Duration timeout) {
  const absl::Time due = NextDue();
  if (due != absl::InfiniteFuture()) timeout = std::min(timeout, due - clock_());
  if (timeout > absl::ZeroDuration()) inner_->Wait(timeout);
}

}  // namespace baton
