#include "kv_transfer/kv_publisher.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/random.h"

namespace baton {
namespace {

// Compares two secrets in constant time, so that the time does not reveal how many bytes of a
// guessed secret were right.
bool SameSecret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace

KvPublisher::KvPublisher(KvPlane* plane, Options options)
    : plane_(plane), options_(std::move(options)), checksummed_(plane->options().blocks) {}

std::unique_ptr<KvPublisher> KvPublisher::Create(KvPlane* plane, Options options) {
  std::unique_ptr<KvPublisher> publisher(new KvPublisher(plane, std::move(options)));
  plane->SetPublisher({[self = publisher.get()](const KvNote& note) { self->OnNote(note); },
                       [self = publisher.get()](absl::Time now, bool drained) {
                         return self->RunOnce(now, drained);
                       }});
  return publisher;
}

KvPublisher::~KvPublisher() {
  plane_->SetPublisher({});
  handovers_.clear();
  plane_->checksums()->Finish();
}

KvTicket KvPublisher::Open(const std::vector<BlockId>& blocks, int tokens,
                           std::function<void(absl::Status)> ended, int ready_blocks) {
  const KvPlane::Options& plane = plane_->options();
  BATON_CHECK(tokens > 0 && plane.layout.BlocksFor(tokens) == static_cast<int>(blocks.size()))
      << tokens << " tokens in " << blocks.size() << " blocks";
  BATON_CHECK(ready_blocks >= 0 && ready_blocks < static_cast<int>(blocks.size()))
      << ready_blocks << " of " << blocks.size() << " blocks are ready";
  KvTicket ticket;
  ticket.handover_id = ++last_id_;
  ticket.secret = RandomBytes(kSecretBytes);
  ticket.owner_epoch = plane.epoch;
  ticket.owner = options_.owner;
  ticket.layout_fingerprint = plane.layout.Fingerprint();
  ticket.numerics_id = plane.numerics_id;
  ticket.tokens = tokens;
  ticket.blocks = blocks;
  for (const BlockId block : blocks) {
    BATON_CHECK(block >= 0 && block < plane.blocks) << block;
    ticket.generations.push_back(plane_->generations()[block].load(std::memory_order_acquire));
  }
  Handover& handover = handovers_[ticket.handover_id];
  handover.ticket = ticket;
  handover.ended = std::move(ended);
  if (ready_blocks > 0) ShowReady(ticket.handover_id, &handover, ready_blocks);
  return ticket;
}

// Publishes the first `blocks` blocks of a new hand-over, whose KV was written earlier.
void KvPublisher::ShowReady(uint64_t id, Handover* handover, int blocks) {
  const KvLayout& layout = plane_->options().layout;
  Front front;
  front.tokens = blocks * layout.block_tokens;
  front.layers = layout.layers;
  front.partial_blocks = blocks;
  handover->published = front;
  std::vector<KvSlice> missing;
  for (int i = 0; i < blocks; ++i) {
    const Checksummed& known = checksummed_[handover->ticket.blocks[i]];
    const bool all =
        known.generation == handover->ticket.generations[i] && known.layers == layout.layers;
    if (!all) AddSlices(*handover, i, i + 1, 0, layout.layers, &missing);
  }
  if (missing.empty()) {
    handover->shown = front;
    return;
  }
  plane_->checksums()->Take(
      std::move(missing), nullptr,
      [this, id, front](const absl::Status& status, absl::Span<const KvSlice> taken) {
        Show(id, front, status, taken);
      });
}

void KvPublisher::AddSlices(const Handover& handover, int first_block, int end_block,
                            int first_layer, int end_layer, std::vector<KvSlice>* slices) const {
  for (int i = first_block; i < end_block; ++i) {
    const BlockId block = handover.ticket.blocks[i];
    for (int layer = first_layer; layer < end_layer; ++layer) {
      slices->push_back(
          {.block = block,
           .layer = layer,
           .seed = KvSeed(plane_->options().epoch, block, handover.ticket.generations[i], layer)});
    }
  }
}

void KvPublisher::Publish(uint64_t handover_id, int tokens, int layers,
                          std::shared_ptr<DeviceEvent> written) {
  const auto it = handovers_.find(handover_id);
  if (it == handovers_.end()) return;
  Handover& handover = it->second;
  const KvLayout& layout = plane_->options().layout;
  const bool all = tokens == handover.ticket.tokens;
  BATON_CHECK(!handover.complete && tokens > 0 && tokens <= handover.ticket.tokens &&
              (all || tokens % layout.block_tokens == 0))
      << tokens << " of " << handover.ticket.tokens << " tokens";
  BATON_CHECK(layers > 0 && layers <= layout.layers) << layers << " of " << layout.layers;
  Front& front = handover.published;
  BATON_CHECK(tokens > front.tokens || (tokens == front.tokens && layers >= front.layers))
      << tokens << " tokens, " << layers << " layers after " << front.tokens << ", "
      << front.layers;

  std::vector<KvSlice> slices;
  if (tokens > front.tokens) {
    AddSlices(handover, front.full_blocks, front.partial_blocks, front.layers, layout.layers,
              &slices);
    front.full_blocks = front.partial_blocks;
    front.partial_blocks = layout.BlocksFor(tokens);
    front.layers = 0;
  }
  AddSlices(handover, front.full_blocks, front.partial_blocks, front.layers, layers, &slices);
  front.tokens = tokens;
  front.layers = layers;
  plane_->checksums()->Take(
      std::move(slices), std::move(written),
      [this, handover_id, front](const absl::Status& status, absl::Span<const KvSlice> taken) {
        Show(handover_id, front, status, taken);
      });
}

void KvPublisher::Show(uint64_t id, const Front& front, const absl::Status& status,
                       absl::Span<const KvSlice> slices) {
  const auto it = handovers_.find(id);
  // The hand-over has ended; its blocks may belong to another hand-over by now.
  if (it == handovers_.end()) return;
  Handover& handover = it->second;
  if (!status.ok()) {
    TellReader(id, handover, KvNote::Reason::kAborted);
    ended_.push_back(
        {id, std::move(handover.ended),
         absl::InternalError(absl::StrCat("checksums of hand-over ", id, ": ", status.message()))});
    handovers_.erase(it);
    return;
  }
  const KvMeta meta = plane_->meta();
  for (const KvSlice& slice : slices) {
    reinterpret_cast<std::atomic<uint64_t>*>(plane_->meta_data() +
                                             meta.ChecksumOffset(slice.block, slice.layer))
        ->store(slice.checksum, std::memory_order_release);
    Checksummed& known = checksummed_[slice.block];
    const uint64_t generation = plane_->generations()[slice.block].load(std::memory_order_acquire);
    if (known.generation != generation) known = {.generation = generation};
    // The slices of a block are shown in the order of their layers.
    if (slice.layer == known.layers) ++known.layers;
  }
  handover.shown = front;
  if (handover.complete && AllShown(handover)) handover.heard = true;
  SendState(id, handover);
}

bool KvPublisher::AllShown(const Handover& handover) const {
  return handover.shown.tokens == handover.ticket.tokens &&
         handover.shown.layers == plane_->options().layout.layers;
}

void KvPublisher::Complete(uint64_t handover_id, std::string payload) {
  const auto it = handovers_.find(handover_id);
  if (it == handovers_.end()) return;
  Handover& handover = it->second;
  const Front& front = handover.published;
  BATON_CHECK(!handover.complete && front.tokens == handover.ticket.tokens &&
              front.layers == plane_->options().layout.layers)
      << front.tokens << " of " << handover.ticket.tokens << " tokens, " << front.layers
      << " layers";
  BATON_CHECK(payload.size() <= kMaxPayloadBytes) << payload.size();
  handover.complete = true;
  handover.payload = std::move(payload);
  handover.heard = true;
  SendState(handover_id, handover);
}

absl::Status KvPublisher::Abort(uint64_t handover_id) {
  for (auto it = ended_.begin(); it != ended_.end(); ++it) {
    if (it->id != handover_id) continue;
    absl::Status status = std::move(it->status);
    ended_.erase(it);
    return status;
  }
  const auto it = handovers_.find(handover_id);
  if (it == handovers_.end()) return absl::OkStatus();
  TellReader(handover_id, it->second, KvNote::Reason::kAborted);
  handovers_.erase(it);
  return absl::OkStatus();
}

void KvPublisher::SendState(uint64_t id, const Handover& handover) {
  if (handover.reader == 0) return;
  const Front& front = handover.shown;
  const bool full = front.layers == plane_->options().layout.layers;
  KvNote note;
  note.type = KvNote::Type::kState;
  note.handover_id = id;
  note.secret = handover.ticket.secret;
  note.attempt = handover.attempt;
  note.full_blocks = full ? front.partial_blocks : front.full_blocks;
  note.partial_blocks = front.partial_blocks;
  note.partial_layers = front.layers;
  if (handover.complete && AllShown(handover)) {
    note.complete = true;
    note.payload = handover.payload;
  }
  plane_->Send(handover.reader, std::move(note));
}

void KvPublisher::TellReader(uint64_t id, const Handover& handover, KvNote::Reason reason) {
  if (handover.reader == 0) return;
  KvNote note;
  note.type = KvNote::Type::kRefused;
  note.handover_id = id;
  note.secret = handover.ticket.secret;
  note.attempt = handover.attempt;
  note.reason = reason;
  plane_->Send(handover.reader, std::move(note));
}

// Refuses `asked`, a note (control message) from a reader. The answer repeats the secret in
// `asked`. It never has the hand-over's own secret, so a reader that guesses learns nothing.
void KvPublisher::Refuse(const KvNote& asked, KvNote::Reason reason) {
  // A reader repeats its release if the answer was lost, and the hand-over is then gone already.
  // This is normal and is not counted.
  const bool again = asked.type == KvNote::Type::kRelease && asked.handover_id <= last_id_ &&
                     handovers_.count(asked.handover_id) == 0;
  if (!again) plane_->CountRefused();
  KvNote note;
  note.type = KvNote::Type::kRefused;
  note.handover_id = asked.handover_id;
  note.secret = asked.secret;
  note.attempt = asked.attempt;
  note.reason = reason;
  plane_->Send(asked.from, std::move(note));
}

void KvPublisher::OnNote(const KvNote& note) {
  const auto it = handovers_.find(note.handover_id);
  if (it == handovers_.end() || !SameSecret(it->second.ticket.secret, note.secret)) {
    Refuse(note, KvNote::Reason::kUnknown);
    return;
  }
  if (note.type == KvNote::Type::kOpen) {
    OnOpen(note, &it->second);
  } else {
    OnRelease(note, it->first, &it->second);
  }
}

void KvPublisher::OnOpen(const KvNote& note, Handover* handover) {
  const bool renewal = handover->reader == note.from && handover->attempt == note.attempt;
  if (!renewal) {
    if (handover->attempted && note.attempt <= handover->attempt) {
      Refuse(note, KvNote::Reason::kSuperseded);
      return;
    }
    TellReader(note.handover_id, *handover, KvNote::Reason::kSuperseded);
    handover->reader = note.from;
    handover->attempt = note.attempt;
    handover->attempted = true;
  }
  handover->heard = true;
  SendState(note.handover_id, *handover);
}

void KvPublisher::OnRelease(const KvNote& note, uint64_t id, Handover* handover) {
  const bool current = handover->reader == note.from && handover->attempt == note.attempt;
  const bool taken = note.outcome == KvNote::Outcome::kTaken;
  if (current && taken && !(handover->complete && AllShown(*handover))) {
    // The reader claims to have pulled everything, but not all KV has been announced yet.
    plane_->CountMalformed();
    return;
  }
  KvNote answer;
  answer.type = KvNote::Type::kReleased;
  answer.handover_id = note.handover_id;
  answer.secret = note.secret;
  answer.attempt = note.attempt;
  plane_->Send(note.from, std::move(answer));
  if (!current) return;
  handover->reader = 0;
  handover->heard = true;
  if (note.outcome == KvNote::Outcome::kGaveUp) return;
  ended_.push_back({id, std::move(handover->ended),
                    taken ? absl::OkStatus()
                          : absl::DataLossError(absl::StrCat("the reader of hand-over ", id,
                                                             " got bytes that were not written"))});
  handovers_.erase(id);
}

bool KvPublisher::RunOnce(absl::Time now, bool drained) {
  for (auto it = handovers_.begin(); it != handovers_.end();) {
    Handover& handover = it->second;
    if (handover.heard) {
      handover.heard = false;
      if (handover.complete) handover.lease_end = now + options_.lease;
    }
    // Notes (control messages) that wait in the inbox may renew the lease. So the lease ends only
    // after all of them have been handled.
    if (!drained || now < handover.lease_end) {
      ++it;
      continue;
    }
    TellReader(it->first, handover, KvNote::Reason::kUnknown);
    ended_.push_back({it->first, std::move(handover.ended),
                      absl::FailedPreconditionError(
                          absl::StrCat("hand-over ", it->first, ": no reader renewed its lease in ",
                                       absl::FormatDuration(options_.lease)))});
    it = handovers_.erase(it);
  }
  const bool any = !ended_.empty();
  while (!ended_.empty()) {  // `call` may abort another hand-over, which changes `ended_`.
    Ended ended = std::move(ended_.front());
    ended_.pop_front();
    ended.call(ended.status);
  }
  return any;
}

}  // namespace baton
