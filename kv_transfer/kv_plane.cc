#include "kv_transfer/kv_plane.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/page_in.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "kv_transfer/device_checksums.h"
#include "kv_transfer/transport/memory_budget.h"

namespace baton {
namespace {

static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The test pattern of a peer is read in two parts. This is the size of the first one, which
// includes the setup of the connection, so that the second one measures only the rate.
constexpr size_t kFirstPatternBytes = 4096;
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(5);
constexpr absl::Duration kHelloWhileProving = absl::Milliseconds(100);
constexpr absl::Duration kHelloWhenUp = absl::Seconds(1);
constexpr int kUnansweredHellos = 5;
// A peer that asks so often and for so long, though each hello is answered, does not get the
// answers.
constexpr int kHellosInVain = 10;
constexpr absl::Duration kTimeInVain = absl::Seconds(3);
constexpr int kProgressPerRun = 256;
// Time for which a peer counts as usable after its last note. Used only if this worker does not
// test its links (KvPlane::Options::proves_links). Longer than kHelloWhenUp, the interval between
// hello notes.
constexpr absl::Duration kHeardLately = absl::Seconds(5);
constexpr size_t kInboxNotes = 1 << 16;
// Min interval between two equal warnings.
constexpr absl::Duration kSameWarning = absl::Seconds(60);
// Max length of one wait while the device works, because the end of device work can only be polled.
constexpr absl::Duration kWaitForDevice = absl::Microseconds(50);

}  // namespace

struct KvPlane::Peer {
  KvPeer who;
  KvAddress at;
  LinkState state = LinkState::kDown;
  PeerId id = -1;
  uint64_t incarnation = 0;
  absl::Time next_try = absl::InfinitePast();
  // Pause after the next attempt to connect. Doubles with each attempt. Becomes zero when the peer
  // sends a hello or, while the link is up, any other note.
  absl::Duration pause;
  absl::Time heard = absl::InfinitePast();

  uint64_t nonce = 0;
  absl::Time next_hello = absl::InfinitePast();
  int unanswered_hellos = 0;

  // Hellos of a peer that proves its link. They come with one nonce, every kHelloWhileProving,
  // until an answer has arrived.
  uint64_t asked_nonce = 0;
  absl::Time first_asked = absl::InfinitePast(), last_asked = absl::InfinitePast();
  int times_asked = 0;

  std::string warned;  // event and text of the last warning since the link was proven
  // Time from which the same warning may be logged again.
  absl::Time next_warning = absl::InfinitePast();

  // Proof that the link to this peer works: a short read of the peer's test pattern, a read of the
  // rest of the pattern, and the peer's answer to a hello, which is a note.
  std::vector<std::byte> pattern;
  absl::Time proof_started;
  absl::Time read_started;
  bool landed = false;       // True once RunOnce has seen the whole pattern.
  size_t pattern_right = 0;  // number of bytes checked, from the start of the pattern
  bool reading = false;
  bool answered = false;
  absl::Status read_status;
  double bytes_per_us = 0;
  std::string link;
};

absl::StatusOr<std::unique_ptr<KvPlane>> KvPlane::Create(Transport* transport, Options options) {
  if (options.epoch == 0) return absl::InvalidArgumentError("the KV plane needs an epoch");
  if (options.blocks <= 0 || options.layout.BlockBytes() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("a KV pool of ", options.blocks, " blocks of ",
                                                   options.layout.BlockBytes(), " bytes"));
  }
  std::unique_ptr<KvPlane> plane(new KvPlane(transport, options));
  auto pool = transport->AllocatePool(
      KvMeta::PoolBytes(options.layout, options.blocks, options.pattern_bytes));
  if (!pool.ok()) {
    return absl::Status(
        pool.status().code(),
        absl::StrCat("KV pool of ", options.blocks, " blocks of ", options.layout.BlockBytes(),
                     " bytes over ", transport->name(), ": ", pool.status().message()));
  }
  plane->pool_ = *std::move(pool);
  ASSIGN_OR_RETURN(auto meta, transport->Allocate(plane->meta().Bytes()));
  plane->meta_ = std::move(meta);
  if (plane->options_.page_in) {
    if (absl::Status status = plane->PageIn(); !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("KV pool of ", options.blocks, " blocks of ",
                                       options.layout.BlockBytes(), " bytes: ", status.message()));
    }
  }
  RETURN_IF_ERROR(plane->MakeChecksums());
  RETURN_IF_ERROR(plane->WritePattern());
  transport->SetNoteHandler([plane = plane.get()](absl::string_view note) {
    if (plane->inbox_.size() >= kInboxNotes) {
      plane->CountMalformed();
      return;
    }
    plane->inbox_.emplace_back(note);
  });
  return plane;
}

KvPlane::KvPlane(Transport* transport, Options options)
    : transport_(transport), options_(std::move(options)) {}

absl::Status KvPlane::PageIn() {
  std::vector<const TransportMemory*> memories = {&meta_};
  if (!pool_.on_device) memories.push_back(&pool_);
  uint64_t total = 0, before = 0;
  for (const TransportMemory* memory : memories) total += memory->bytes;
  for (const TransportMemory* memory : memories) {
    const absl::Status status =
        PageInForWriting(memory->data, memory->bytes, [&](uint64_t done) -> absl::Status {
          if (options_.on_page_in) options_.on_page_in(before + done, total);
          // Check again: other processes may have taken memory meanwhile, and the kernel kills a
          // process when memory runs out.
          return CheckMemoryFor(total - before - done);
        });
    RETURN_IF_ERROR(status);
    before += memory->bytes;
  }
  return absl::OkStatus();
}

absl::Status KvPlane::MakeChecksums() {
  if (!pool_.on_device) {
    checksums_ = CreateHostKvChecksums(pool_.data, options_.layout);
    return absl::OkStatus();
  }
  if (options_.device == nullptr || options_.checksum_kernel.entry == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the pool over ", transport_->name(), " needs a device and its checksums"));
  }
  ASSIGN_OR_RETURN(auto checksums,
                   CreateDeviceKvChecksums(options_.device, options_.checksum_kernel, pool_.data,
                                           options_.layout));
  checksums_ = std::move(checksums);
  return absl::OkStatus();
}

absl::Status KvPlane::WritePattern() {
  std::byte* const to = pool_.data + KvMeta::PatternOffset(options_.layout, options_.blocks);
  if (!pool_.on_device) {
    KvMeta::WritePattern(options_.epoch, to, options_.pattern_bytes);
    return absl::OkStatus();
  }
  std::vector<std::byte> pattern(options_.pattern_bytes);
  KvMeta::WritePattern(options_.epoch, pattern.data(), pattern.size());
  ASSIGN_OR_RETURN(auto stream, options_.device->CreateStream(StreamKind::kCopy));
  absl::Status status = options_.device->Copy(to, pattern.data(), pattern.size(), *stream);
  status.Update(options_.device->Synchronize(*stream));
  return status;
}

KvPlane::~KvPlane() {
  transport_->SetNoteHandler(nullptr);
  SetPeers({});
}

std::atomic<uint64_t>* KvPlane::generations() {
  return reinterpret_cast<std::atomic<uint64_t>*>(meta_.data + meta().GenerationOffset(0));
}

KvMeta KvPlane::meta() const {
  return {static_cast<uint64_t>(options_.blocks), options_.layout.layers};
}

std::string KvPlane::address() const {
  return PackKvAddress({options_.epoch, transport_->address(), pool_.key, meta_.key,
                        static_cast<uint64_t>(options_.blocks), options_.layout.Fingerprint(),
                        options_.numerics_id});
}

absl::Status KvPlane::Fits(const KvPeer& peer, const KvAddress& at) const {
  if (at.epoch != peer.epoch) {
    return absl::FailedPreconditionError(
        absl::StrCat("the peer's KV address has epoch ", at.epoch, ", not ", peer.epoch));
  }
  if (at.layout_fingerprint != options_.layout.Fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat("the peer's KV layout is ",
                                                      at.layout_fingerprint, ", this worker's ",
                                                      options_.layout.Fingerprint()));
  }
  if (at.numerics_id != options_.numerics_id) {
    return absl::FailedPreconditionError(absl::StrCat("the peer's numerics are ", at.numerics_id,
                                                      ", this worker's ", options_.numerics_id));
  }
  return absl::OkStatus();
}

void KvPlane::SetPeers(const std::vector<KvPeer>& peers) {
  std::set<WorkerEpoch> named;
  for (const KvPeer& peer : peers) {
    if (peer.epoch == options_.epoch || !named.insert(peer.epoch).second) continue;
    Peer* known = Find(peer.epoch);
    if (known != nullptr && known->who.kv_address == peer.kv_address) {
      known->who.address = peer.address;
      continue;
    }
    if (known != nullptr) {
      Drop(known, "the peer has a new KV address");
      peers_.erase(peer.epoch);
    }
    const auto at = UnpackKvAddress(peer.kv_address);
    const absl::Status fits = at.ok() ? Fits(peer, *at) : at.status();
    if (!fits.ok()) {
      named.erase(peer.epoch);
      Log(Severity::kWarning, "kv_peer_left_out",
          {{"peer", peer.address}, {"why", fits.message()}});
      continue;
    }
    auto added = std::make_unique<Peer>();
    added->who = peer;
    added->at = *at;
    peers_[peer.epoch] = std::move(added);
  }
  for (auto it = peers_.begin(); it != peers_.end();) {
    if (named.contains(it->first)) {
      ++it;
      continue;
    }
    Drop(it->second.get(), "");
    it = peers_.erase(it);
  }
}

std::vector<ProvenLink> KvPlane::links() const {
  std::vector<ProvenLink> links;
  if (!options_.proves_links) return links;
  for (const auto& [epoch, peer] : peers_) {
    if (peer->state == LinkState::kUp) links.push_back({epoch, peer->link, peer->bytes_per_us});
  }
  return links;
}

bool KvPlane::has_link_or_no_peers() const {
  const auto linked = [this](const auto& peer) {
    return peer.second->state == LinkState::kUp &&
           (options_.proves_links || now_ - peer.second->heard < kHeardLately);
  };
  return peers_.empty() || std::any_of(peers_.begin(), peers_.end(), linked);
}

KvPlane::Peer* KvPlane::Find(WorkerEpoch epoch) {
  const auto it = peers_.find(epoch);
  return it == peers_.end() ? nullptr : it->second.get();
}
const KvPlane::Peer* KvPlane::Find(WorkerEpoch epoch) const {
  const auto it = peers_.find(epoch);
  return it == peers_.end() ? nullptr : it->second.get();
}

KvPlane::LinkState KvPlane::StateOf(WorkerEpoch epoch) const {
  const Peer* peer = Find(epoch);
  return peer == nullptr ? LinkState::kUnknown : peer->state;
}
uint64_t KvPlane::IncarnationOf(WorkerEpoch epoch) const {
  const Peer* peer = Find(epoch);
  return peer == nullptr ? 0 : peer->incarnation;
}
uint64_t KvPlane::BlocksOf(WorkerEpoch epoch) const {
  const Peer* peer = Find(epoch);
  return peer == nullptr ? 0 : peer->at.blocks;
}
absl::Time KvPlane::HeardFrom(WorkerEpoch epoch) const {
  const Peer* peer = Find(epoch);
  return peer == nullptr ? absl::InfinitePast() : peer->heard;
}
std::string KvPlane::LinkOf(WorkerEpoch epoch) {
  const Peer* peer = Find(epoch);
  return peer == nullptr ? "" : peer->link;
}

bool KvPlane::Connect(Peer* peer) {
  const absl::Duration pause = std::max(peer->pause, kFirstPause);
  peer->next_try = now_ + pause;
  peer->pause = std::min(2 * pause, kLongestPause);
  const auto id = transport_->Connect(peer->at.transport_address);
  if (!id.ok()) {
    Warn(peer, "kv_peer_cannot_be_connected", id.status().message());
    return false;
  }
  peer->id = *id;
  peer->incarnation = ++incarnations_;
  peer->next_hello = absl::InfinitePast();
  peer->unanswered_hellos = 0;
  if (!options_.proves_links) {
    peer->state = LinkState::kUp;
    return true;
  }
  peer->state = LinkState::kProving;
  peer->nonce = RandomU64();
  peer->proof_started = now_;
  peer->pattern.resize(options_.pattern_bytes);
  peer->pattern_right = 0;
  peer->landed = false;
  peer->answered = false;
  peer->read_status = absl::OkStatus();
  ReadPattern(peer, 0, kFirstPatternBytes);
  return true;
}

void KvPlane::Warn(Peer* peer, absl::string_view event, absl::string_view why) {
  std::string words = absl::StrCat(event, " ", why);
  if (words == peer->warned && now_ < peer->next_warning) return;
  peer->warned = std::move(words);
  peer->next_warning = now_ + kSameWarning;
  Log(Severity::kWarning, event, {{"peer", peer->who.address}, {"why", why}});
}

void KvPlane::Drop(WorkerEpoch epoch, absl::string_view why) {
  if (Peer* peer = Find(epoch); peer != nullptr) Drop(peer, why);
}

void KvPlane::Drop(Peer* peer, absl::string_view why) {
  if (peer->state == LinkState::kDown) return;
  if (!why.empty()) Warn(peer, "kv_link_down", why);
  peer->state = LinkState::kDown;
  peer->incarnation = 0;
  const PeerId id = std::exchange(peer->id, -1);
  transport_->Disconnect(id);
  peer->reading = false;
  peer->pattern = {};
}

bool KvPlane::SendTo(Peer* peer, const KvNote& note) {
  const std::string bytes = EncodeNote(note);
  // If the connection turns out to be broken, the peer itself may have closed it. A worker without
  // `proves_links` (a prefill worker) connects once more and retries.
  for (int tries = 0; tries < 2; ++tries) {
    if (peer->state == LinkState::kDown && !options_.proves_links && now_ >= peer->next_try) {
      if (!Connect(peer)) return false;
    }
    if (peer->state == LinkState::kDown) return false;
    const absl::Status sent = transport_->SendNote(peer->id, bytes);
    if (!absl::IsUnavailable(sent)) return sent.ok();
    Drop(peer, sent.message());
  }
  return false;
}

void KvPlane::Send(WorkerEpoch epoch, KvNote note) {
  Peer* peer = Find(epoch);
  if (peer == nullptr) return;
  note.from = options_.epoch;
  note.to = epoch;
  SendTo(peer, note);
}

void KvPlane::SayHello(Peer* peer) {
  if (now_ < peer->next_hello) return;
  peer->next_hello =
      now_ + (peer->state == LinkState::kProving ? kHelloWhileProving : kHelloWhenUp);
  ++peer->unanswered_hellos;
  KvNote hello;
  hello.type = KvNote::Type::kHello;
  hello.from = options_.epoch;
  hello.to = peer->who.epoch;
  hello.nonce = peer->nonce;
  SendTo(peer, hello);
}

void KvPlane::ReadPattern(Peer* peer, size_t offset, size_t bytes) {
  peer->reading = true;
  peer->read_started = now_;
  ReadPool(
      peer->who.epoch, KvMeta::PatternOffset(options_.layout, peer->at.blocks) + offset,
      peer->pattern.data() + offset, bytes, [this, peer, offset, bytes](absl::Status status) {
        peer->reading = false;
        peer->read_status = std::move(status);
        if (!peer->read_status.ok()) return;
        if (!KvMeta::CheckPattern(peer->at.epoch, offset, peer->pattern.data() + offset, bytes)) {
          ++counters_.wrong_pattern;
          peer->read_status = absl::DataLossError("the peer's test pattern arrived wrong");
          return;
        }
        peer->pattern_right = offset + bytes;
      });
}

bool KvPlane::MoveProof(Peer* peer) {
  if (!peer->reading && !peer->read_status.ok()) {
    Drop(peer, absl::StrCat("proving the link failed: ", peer->read_status.ToString()));
    return true;
  }
  if (now_ - peer->proof_started >= options_.proof_timeout) {
    Drop(peer, absl::StrCat(
                   "proving the link failed: ", peer->pattern_right, " of ", options_.pattern_bytes,
                   " bytes of the test pattern and ", peer->answered ? "an" : "no",
                   " answer to hellos arrived in ", absl::FormatDuration(options_.proof_timeout),
                   peer->pattern_right == 0 ? "; check that the peer runs, and that no firewall "
                                              "blocks the KV plane between the two (--kv-ports)"
                                            : ""));
    return true;
  }
  if (!peer->answered) SayHello(peer);
  if (peer->state != LinkState::kProving || peer->reading) return false;
  if (peer->pattern_right == kFirstPatternBytes) {
    ReadPattern(peer, kFirstPatternBytes, options_.pattern_bytes - kFirstPatternBytes);
    return true;
  }
  if (peer->bytes_per_us == 0) {
    // The bytes arrived during this call of RunOnce, after its time `now_`. So this call can't
    // measure the rate, and the next call does.
    if (!std::exchange(peer->landed, true)) return true;
    const absl::Duration took = std::max(now_ - peer->read_started, absl::Microseconds(1));
    peer->bytes_per_us =
        (options_.pattern_bytes - kFirstPatternBytes) / absl::ToDoubleMicroseconds(took);
  }
  if (!peer->answered) return false;
  const auto link = transport_->Link(peer->id);
  if (!link.ok()) return false;
  peer->link = *link;
  peer->pattern = {};
  peer->state = LinkState::kUp;
  peer->warned.clear();
  peer->next_hello = now_ + kHelloWhenUp;
  peer->unanswered_hellos = 0;
  Log(Severity::kInfo, "kv_link_proven",
      {{"peer", peer->who.address},
       {"link", peer->link},
       {"mb_per_s", static_cast<int64_t>(peer->bytes_per_us)}});
  return true;
}

bool KvPlane::MoveLink(Peer* peer, bool drained) {
  switch (peer->state) {
    case LinkState::kDown:
      if (now_ < peer->next_try) return false;
      peer->bytes_per_us = 0;
      return Connect(peer);
    case LinkState::kProving:
      return MoveProof(peer);
    case LinkState::kUp:
      if (!options_.proves_links) {
        // This worker sends no hello notes, because it does not test its links. Without this check,
        // it would notice a broken connection only when it next has a note to send.
        const absl::Status reachable = transport_->Reachable(peer->id);
        if (reachable.ok()) return false;
        Drop(peer, reachable.message());
        return true;
      }
      // Counts the hello notes that the peer has not answered, instead of measuring time. If this
      // process was stopped for a while, the answers are in the inbox. `drained` is true once the
      // inbox has been read.
      if (drained && now_ >= peer->next_hello && peer->unanswered_hellos >= kUnansweredHellos) {
        Drop(peer, absl::StrCat("no answer to ", peer->unanswered_hellos, " hellos"));
        return true;
      }
      SayHello(peer);
      return false;
    case LinkState::kUnknown:
      break;
  }
  return false;
}

void KvPlane::ReadPool(WorkerEpoch epoch, uint64_t offset, std::byte* local, size_t bytes,
                       std::function<void(absl::Status)> done) {
  Peer* peer = Find(epoch);
  BATON_CHECK(peer != nullptr && peer->id >= 0) << epoch;
  transport_->Read({peer->id, peer->at.pool_key, offset, local, bytes, std::move(done)});
}

void KvPlane::ReadMeta(WorkerEpoch epoch, uint64_t offset, std::byte* local, size_t bytes,
                       std::function<void(absl::Status)> done) {
  Peer* peer = Find(epoch);
  BATON_CHECK(peer != nullptr && peer->id >= 0) << epoch;
  transport_->Read({peer->id, peer->at.meta_key, offset, local, bytes, std::move(done)});
}

void KvPlane::HandleNote(const std::string& bytes) {
  ++counters_.notes;
  const auto note = DecodeNote(bytes);
  if (!note) {
    ++counters_.malformed;
    return;
  }
  if (note->to != options_.epoch) {
    ++counters_.misdirected;
    return;
  }
  Peer* peer = Find(note->from);
  if (peer == nullptr) {
    ++counters_.unknown_peer;
    return;
  }
  const User* user = nullptr;
  switch (note->type) {
    case KvNote::Type::kHello: {
      peer->heard = now_;
      peer->pause = absl::ZeroDuration();
      if (AsksInVain(peer, note->nonce)) {
        Drop(peer, "the peer does not get the answers to its hellos");
        peer->next_try = now_;
      }
      KvNote answer;
      answer.type = KvNote::Type::kHelloAck;
      answer.nonce = note->nonce;
      Send(note->from, answer);
      return;
    }
    case KvNote::Type::kHelloAck:
      if (note->nonce != peer->nonce || peer->state == LinkState::kDown) {
        ++counters_.misdirected;
        return;
      }
      peer->answered = true;
      break;
    case KvNote::Type::kOpen:
    case KvNote::Type::kRelease:
      user = &publisher_;
      break;
    case KvNote::Type::kState:
    case KvNote::Type::kRefused:
    case KvNote::Type::kReleased:
      user = &puller_;
      break;
  }
  peer->heard = now_;
  peer->unanswered_hellos = 0;
  if (peer->state == LinkState::kUp) peer->pause = absl::ZeroDuration();
  if (user == nullptr) return;
  if (!user->on_note) {
    ++counters_.misdirected;
    return;
  }
  user->on_note(*note);
}

// UCX 1.13 may keep notes back forever, without an error, on a connection that was made while the
// network failed. So this is not left to the transport.
bool KvPlane::AsksInVain(Peer* peer, uint64_t nonce) {
  if (nonce != peer->asked_nonce || now_ - peer->last_asked >= kHelloWhenUp / 2) {
    peer->asked_nonce = nonce;
    peer->first_asked = now_;
    peer->times_asked = 0;
  }
  peer->last_asked = now_;
  if (++peer->times_asked < kHellosInVain || now_ - peer->first_asked < kTimeInVain) return false;
  peer->first_asked = now_;
  peer->times_asked = 0;
  return true;
}

void KvPlane::Wait(absl::Duration timeout) {
  transport_->Wait(checksums_->busy() ? std::min(timeout, kWaitForDevice) : timeout);
}

bool KvPlane::RunOnce(absl::Time now) {
  now_ = now;
  bool moved = false;
  bool drained = false;
  for (int i = 0; i < kProgressPerRun && !drained; ++i) {
    drained = !transport_->Progress();
    moved |= !drained;
    while (!inbox_.empty()) {
      const std::string note = std::move(inbox_.front());
      inbox_.pop_front();
      HandleNote(note);
    }
  }
  moved |= checksums_->Progress();
  for (auto& [epoch, peer] : peers_) moved |= MoveLink(peer.get(), drained);
  if (publisher_.run_once) moved |= publisher_.run_once(now, drained);
  if (puller_.run_once) moved |= puller_.run_once(now, drained);
  return moved;
}

}  // namespace baton
