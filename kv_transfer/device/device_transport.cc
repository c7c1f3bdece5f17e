#include "kv_transfer/device/device_transport.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "kv_transfer/device/bounced_reads.h"
#include "kv_transfer/device/device_copies.h"
#include "kv_transfer/device/device_pool_key.h"
#include "kv_transfer/device/device_staging.h"
#include "kv_transfer/device/pool_importers.h"
#include "kv_transfer/transport/ended_reads.h"

namespace baton {
namespace {

constexpr uint64_t kAddressMagic = 0xBA70ADE71CEADD12ull;
// Max copies on the stream; further reads wait in their peer's queue.
constexpr size_t kCopies = 64;
// Max length of one wait while the device works, because the end of device work can only be polled.
constexpr absl::Duration kWaitForDevice = absl::Microseconds(50);
// Before the transport frees its pools, it waits until their readers have closed them. Max number
// of waits of one millisecond, and max number of calls of Progress, which take about as long as all
// waits.
constexpr int kLastWaits = 500, kLastProgress = 500 * 100;

class DeviceTransport : public Transport {
 public:
  DeviceTransport(std::unique_ptr<Transport> inner, DeviceRuntime* runtime, DevicePath path)
      : runtime_(runtime),
        path_(path),
        inner_(std::move(inner)),
        staging_(std::make_unique<DeviceStaging>(runtime, inner_.get())),
        bounced_(std::make_unique<BouncedReads>(runtime, inner_.get())),
        importers_(inner_.get()) {}
  ~DeviceTransport() override;
  absl::Status Start();

  std::string name() const override {
    return absl::StrCat("device memory of ", runtime_->info().name, " over ", inner_->name());
  }
  absl::StatusOr<TransportMemory> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  absl::StatusOr<TransportMemory> AllocatePool(size_t bytes) override;
  std::string address() const override { return SealBytes(kAddressMagic, inner_->address()); }
  absl::StatusOr<PeerId> Connect(absl::string_view address) override;
  void Disconnect(PeerId peer) override;
  absl::Status Reachable(PeerId peer) override { return inner_->Reachable(peer); }
  absl::StatusOr<std::string> Link(PeerId peer) override;
  void Read(ReadOperation operation) override;
  absl::Status SendNote(PeerId peer, absl::string_view note) override {
    return inner_->SendNote(peer, note);
  }
  void SetNoteHandler(std::function<void(absl::string_view note)> handler) override {
    handler_ = std::move(handler);
  }
  bool Progress() override;
  void Wait(absl::Duration timeout) override;
  void Wake() override { inner_->Wake(); }

 private:
  // State of one read from a peer's pool in device memory.
  struct Job {
    ReadOperation operation;
    PeerId peer = -1;
    DevicePool* pool = nullptr;  // the peer's pool
    size_t asked = 0;            // bytes whose pieces have been started
    int pieces = 0;              // pieces that are being read
    absl::Status error;          // The first error; once set, no more pieces are started.
  };
  struct Peer {
    std::map<std::string, DevicePool, std::less<>> pools;  // opened pools by key
    std::string link;                                      // link of the pool that was read last
    std::deque<std::unique_ptr<Job>> queue;  // jobs that have not started all their pieces
    // Reads of which no further part will be started, but of which some parts are still under way.
    std::map<Job*, std::unique_ptr<Job>> handed_on;
    int copies = 0;  // copies under way on our stream
    // Id of the MappedNote that told the peer that its pools are mapped here. 0 if no pool of the
    // peer is mapped.
    uint64_t import_id = 0;
    absl::Status freed;  // Not OK once the peer is about to free its pools.
  };

  absl::StatusOr<DevicePool*> OpenPool(PeerId id, Peer* peer, absl::string_view key);
  bool Post(Peer* peer);
  void PostDirect(PeerId id, Peer* peer);
  void OnDirectRead(PeerId id, Job* job, absl::Status status);
  bool PostBounced(Peer* peer);
  void OnArrived(Job* job, std::byte* to, size_t bytes, std::byte* landing,
                 const absl::Status& status);
  absl::Status Copy(Job* job, std::byte* to, const std::byte* from, size_t bytes,
                    std::byte* landing);
  void OnNote(absl::string_view note);
  void PieceDone(Job* job, const absl::Status& status);
  void Fail(Peer* peer, const absl::Status& why);
  void CloseImports(PeerId id, Peer* peer);
  void OnUnmap(const UnmapNote& note);
  bool OnOurDevice(const std::byte* at) const;

  DeviceRuntime* const runtime_;
  const DevicePath path_;
  const uint64_t node_ = ThisNode();
  std::unique_ptr<Transport> inner_;
  std::unique_ptr<DeviceStaging> staging_;
  std::unique_ptr<BouncedReads> bounced_;
  std::unique_ptr<DeviceCopies> copies_;
  std::vector<TransportMemory> pools_;
  // OK if `inner_` can read and write our pools directly, otherwise the reason.
  absl::Status direct_ = absl::FailedPreconditionError("this worker has no pool");
  std::function<void(absl::string_view)> handler_;
  std::map<PeerId, Peer> peers_;  // The keys are peer ids of `inner_`.
  std::deque<StageNote> asked_;
  PoolImporters importers_;
  EndedReads ended_;
};

absl::Status DeviceTransport::Start() {
  ASSIGN_OR_RETURN(auto copies, DeviceCopies::Create(runtime_));
  copies_ = std::move(copies);
  inner_->SetNoteHandler([this](absl::string_view note) { OnNote(note); });
  return absl::OkStatus();
}

DeviceTransport::~DeviceTransport() {
  handler_ = nullptr;
  while (!peers_.empty()) Disconnect(peers_.begin()->first);
  // Readers may have reported, since the last Progress, that they have mapped our pools. Take these
  // notes first.
  for (int turns = 0; turns < kLastProgress && inner_->Progress(); ++turns) {
  }
  importers_.AskToClose();
  for (int waits = 0, turns = 0;
       importers_.open() > 0 && waits < kLastWaits && turns < kLastProgress; ++turns) {
    if (!inner_->Progress()) {
      inner_->Wait(absl::Milliseconds(1));
      ++waits;
    }
    importers_.AskToClose();  // also asks readers that have mapped our pools since the last call
  }
  if (importers_.open() > 0) {
    Log(Severity::kWarning, "kv_pool_freed_while_mapped", {{"readers", importers_.open()}});
  }
  inner_->SetNoteHandler(nullptr);
  staging_.reset();
  inner_.reset();
  copies_.reset();
  bounced_.reset();
  for (const TransportMemory& pool : pools_) runtime_->Free(pool.data);
}

absl::StatusOr<TransportMemory> DeviceTransport::AllocatePool(size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("0 bytes were asked for");
  ASSIGN_OR_RETURN(const auto data, runtime_->Allocate(bytes, true));
  absl::Status zeroed = runtime_->Fill(data, 0, bytes, copies_->stream());
  zeroed.Update(runtime_->Synchronize(copies_->stream()));
  if (!zeroed.ok()) {
    runtime_->Free(data);
    return zeroed;
  }
  DevicePoolKey key;
  key.node = node_;
  key.device = runtime_->info().id;
  key.pool = static_cast<uint32_t>(pools_.size());
  key.bytes = bytes;
  const auto handle = runtime_->ExportMemory(data);
  if (handle.ok()) {
    key.handle = *handle;
  } else {
    Log(Severity::kWarning, "kv_pool_not_exported", {{"why", handle.status().message()}});
  }
  if (path_ == DevicePath::kAuto || path_ == DevicePath::kDirect) {
    const auto direct = inner_->RegisterDeviceMemory(data, bytes);
    direct_ = direct.status();
    if (direct.ok()) key.direct = direct->key;
    if (!direct.ok() && path_ == DevicePath::kDirect) {
      runtime_->Free(data);
      return direct.status();
    }
    Log(Severity::kInfo, "kv_device_memory",
        {{"bytes", bytes},
         {"registered", direct.ok() ? absl::StrCat("with ", inner_->name()) : "no"},
         {"why", direct.ok() ? "it reads device memory" : direct.status().message()}});
  }
  staging_->AddPool(data, bytes);
  pools_.push_back({data, bytes, EncodeDevicePoolKey(key), true});
  return pools_.back();
}

bool DeviceTransport::OnOurDevice(const std::byte* at) const {
  return std::any_of(pools_.begin(), pools_.end(), [at](const TransportMemory& pool) {
    return at >= pool.data && at < pool.data + pool.bytes;
  });
}

absl::StatusOr<PeerId> DeviceTransport::Connect(absl::string_view address) {
  const absl::string_view inner = UnsealBytes(kAddressMagic, address);
  if (inner.empty()) {
    return absl::InvalidArgumentError("not an address of a transport of device memory");
  }
  ASSIGN_OR_RETURN(const auto id, inner_->Connect(inner));
  peers_.try_emplace(id);
  return id;
}

absl::StatusOr<DevicePool*> DeviceTransport::OpenPool(PeerId id, Peer* peer,
                                                      absl::string_view key) {
  const auto known = peer->pools.find(key);
  if (known != peer->pools.end()) return &known->second;
  ASSIGN_OR_RETURN(const auto decoded, DecodeDevicePoolKey(key));
  ASSIGN_OR_RETURN(auto pool,
                   OpenDevicePool(decoded, {runtime_, node_, inner_->name(), direct_}, path_));
  Log(Severity::kInfo, "kv_device_path",
      {{"peer", id},
       {"device", decoded.device},
       {"path", pool.path == DevicePath::kIpc      ? absl::StrCat("cuda ipc, ", pool.link)
                : pool.path == DevicePath::kDirect ? absl::StrCat("direct, ", inner_->name())
                                                   : "bounced through host memory"},
       {"why", pool.why.empty() ? "the first choice" : pool.why}});
  if (pool.imported != nullptr && peer->import_id == 0) {
    peer->import_id = RandomU64() | 1;
    // This note tells the owner that its pool is mapped in this process. If the note is lost, the
    // owner may free the pool while it is mapped.
    inner_->SendNote(id, EncodeMapped({peer->import_id, true, inner_->address()})).IgnoreError();
  }
  return &peer->pools.emplace(std::string(key), std::move(pool)).first->second;
}

void DeviceTransport::Read(ReadOperation operation) {
  if (!IsDevicePoolKey(operation.key)) {
    if (!OnOurDevice(operation.local)) {
      inner_->Read(std::move(operation));
      return;
    }
    operation.key = {};
    ended_.Add(std::move(operation),
               absl::InvalidArgumentError("a read of host memory into device memory"));
    return;
  }
  const PeerId id = operation.peer;
  const auto peer = peers_.find(id);
  absl::Status status =
      peer == peers_.end() ? absl::UnavailableError("no such peer") : absl::OkStatus();
  DevicePool* pool = nullptr;
  if (status.ok()) status = peer->second.freed;
  if (status.ok()) {
    const auto opened = OpenPool(id, &peer->second, operation.key);
    status = opened.status();
    if (opened.ok()) pool = *opened;
  }
  if (status.ok() &&
      (operation.offset > pool->bytes || operation.bytes > pool->bytes - operation.offset)) {
    status = absl::InvalidArgumentError(absl::StrCat("a read of ", operation.bytes, " bytes at ",
                                                     operation.offset, " of ", pool->bytes));
  }
  operation.key = {};
  if (!status.ok() || operation.bytes == 0) {
    ended_.Add(std::move(operation), std::move(status));
    return;
  }
  auto job = std::make_unique<Job>();
  job->operation = std::move(operation);
  job->peer = id;
  job->pool = pool;
  peer->second.queue.push_back(std::move(job));
}

// Copies one part of a read on the stream, from a peer's mapped memory or from a landing buffer
// (pinned memory of BouncedReads). Returns the landing buffer when the copy has ended.
absl::Status DeviceTransport::Copy(Job* job, std::byte* to, const std::byte* from, size_t bytes,
                                   std::byte* landing) {
  const absl::Status status =
      copies_->Copy(to, from, bytes, [this, job, landing](const absl::Status& copied) {
        --peers_.at(job->peer).copies;
        if (landing != nullptr) bounced_->Return(landing);
        PieceDone(job, copied);
      });
  if (status.ok()) ++peers_.at(job->peer).copies;
  return status;
}

// Starts as many of the reads in `peer->queue` as the limits allow. Returns true if it started any.
bool DeviceTransport::Post(Peer* peer) {
  bool moved = false;
  while (!peer->queue.empty()) {
    Job* job = peer->queue.front().get();
    if (job->pool->path == DevicePath::kBounced) {
      if (!PostBounced(peer)) break;
      moved = true;
    } else if (job->pool->path == DevicePath::kDirect) {
      PostDirect(job->peer, peer);
      moved = true;
    } else {
      if (copies_->under_way() >= kCopies) break;
      ReadOperation& read = job->operation;
      ++job->pieces;
      job->asked = read.bytes;
      moved = true;
      peer->handed_on.emplace(job, std::move(peer->queue.front()));
      peer->queue.pop_front();
      const absl::Status status =
          Copy(job, read.local, job->pool->imported + read.offset, read.bytes, nullptr);
      if (!status.ok()) PieceDone(job, status);
    }
  }
  return moved;
}

// Hands the oldest read in the queue to the inner transport.
void DeviceTransport::PostDirect(PeerId id, Peer* peer) {
  Job* const job = peer->queue.front().get();
  const ReadOperation& read = job->operation;
  ++job->pieces;
  job->asked = read.bytes;
  peer->handed_on.emplace(job, std::move(peer->queue.front()));
  peer->queue.pop_front();
  inner_->Read(
      {id, job->pool->direct, read.offset, read.local, read.bytes,
       [this, id, job](absl::Status status) { OnDirectRead(id, job, std::move(status)); }});
}

// Handles the result of a direct read. If the inner transport turns out not to support direct
// reads, this read and all later reads of the pool go through host memory (kBounced).
void DeviceTransport::OnDirectRead(PeerId id, Job* job, absl::Status status) {
  if (!absl::IsUnimplemented(status) || path_ != DevicePath::kAuto || !job->error.ok()) {
    PieceDone(job, status);
    return;
  }
  if (job->pool->path == DevicePath::kDirect) {
    Log(Severity::kWarning, "kv_device_path",
        {{"peer", id}, {"path", "bounced through host memory"}, {"why", status.message()}});
    job->pool->path = DevicePath::kBounced;
  }
  Peer& peer = peers_.at(id);
  job->pieces = 0;
  job->asked = 0;
  const auto it = peer.handed_on.find(job);
  peer.queue.push_back(std::move(it->second));
  peer.handed_on.erase(it);
}

// Asks the peer for the next part of the oldest queued read, up to DeviceStaging::kSlotBytes bytes.
// Returns false if the read has to wait.
bool DeviceTransport::PostBounced(Peer* peer) {
  Job* job = peer->queue.front().get();
  if (job->error.ok()) {
    const ReadOperation& read = job->operation;
    const size_t bytes = std::min<size_t>(DeviceStaging::kSlotBytes, read.bytes - job->asked);
    std::byte* const to = read.local + job->asked;
    const auto asked =
        bounced_->Ask({job->peer, job->pool->index, read.offset + job->asked, bytes},
                      OnOurDevice(read.local) ? nullptr : to,
                      [this, job, to, bytes](const absl::Status& status, std::byte* landing) {
                        OnArrived(job, to, bytes, landing, status);
                      });
    if (asked.ok() && !*asked) return false;
    job->error = asked.status();
    if (asked.ok()) {
      ++job->pieces;
      job->asked += bytes;
    }
  }
  if (job->asked == job->operation.bytes || !job->error.ok()) {
    peer->handed_on.emplace(job, std::move(peer->queue.front()));
    peer->queue.pop_front();
    if (job->pieces == 0) {
      ++job->pieces;
      PieceDone(job, job->error);
    }
  }
  return true;
}

void DeviceTransport::OnNote(absl::string_view note) {
  if (!IsStagingNote(note)) {
    if (handler_) handler_(note);
    return;
  }
  if (const auto staged = DecodeStaged(note)) {
    bounced_->OnStaged(*staged);
  } else if (auto asked = DecodeStage(note)) {
    if (asked_.size() < kMaxNotesUnderWay) asked_.push_back(*std::move(asked));
  } else if (const auto mapped = DecodeMapped(note)) {
    importers_.OnMapped(*mapped);
  } else if (const auto unmap = DecodeUnmap(note)) {
    OnUnmap(*unmap);
  }
}

// Handles the end of a run, which is one part of a read that goes through host memory. If the bytes
// are in a landing buffer (pinned memory of BouncedReads), copies them on to the device.
void DeviceTransport::OnArrived(Job* job, std::byte* to, size_t bytes, std::byte* landing,
                                const absl::Status& status) {
  absl::Status result = status;
  if (landing != nullptr) {
    if (result.ok() && job->error.ok()) {
      result = Copy(job, to, landing, bytes, landing);
      if (result.ok()) return;  // The copy now owns the landing buffer and reports the piece.
    }
    bounced_->Return(landing);
  }
  PieceDone(job, result);
}

void DeviceTransport::PieceDone(Job* job, const absl::Status& status) {
  --job->pieces;
  job->error.Update(status);
  Peer& peer = peers_.at(job->peer);
  if (status.ok()) peer.link = job->pool->link;
  const auto it = peer.handed_on.find(job);
  if (it == peer.handed_on.end() || job->pieces > 0) return;
  const std::unique_ptr<Job> owned = std::move(it->second);
  peer.handed_on.erase(it);
  ended_.Add(std::move(owned->operation), std::move(owned->error));
}

// Fails all reads in the queue of `peer`. A read is made in pieces. If no piece of it is under way,
// the read ends immediately.
void DeviceTransport::Fail(Peer* peer, const absl::Status& why) {
  while (!peer->queue.empty()) {
    Job* job = peer->queue.front().get();
    peer->handed_on.emplace(job, std::move(peer->queue.front()));
    peer->queue.pop_front();
    job->error.Update(why);
    ++job->pieces;
    PieceDone(job, why);
  }
}

// Closes a peer's mapped pools. The caller must start no more copies from them. Waits for the
// copies on the stream, because nothing can cancel those.
void DeviceTransport::CloseImports(PeerId id, Peer* peer) {
  while (peer->copies > 0) copies_->FinishOldest();
  for (auto& [key, pool] : peer->pools) {
    if (pool.imported == nullptr) continue;
    runtime_->CloseMemory(const_cast<std::byte*>(pool.imported));
    pool.imported = nullptr;
  }
  if (peer->import_id != 0) {
    inner_->SendNote(id, EncodeMapped({.id = peer->import_id})).IgnoreError();
    peer->import_id = 0;
  }
}

void DeviceTransport::OnUnmap(const UnmapNote& note) {
  for (auto& [id, peer] : peers_) {
    if (peer.import_id == 0 || peer.import_id != note.id) continue;
    peer.freed = absl::UnavailableError("the owner frees its pools");
    Fail(&peer, peer.freed);
    CloseImports(id, &peer);
  }
}

void DeviceTransport::Disconnect(PeerId id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) {
    inner_->Disconnect(id);
    return;
  }
  Peer& peer = found->second;
  const absl::Status why = absl::UnavailableError("disconnected before the read was done");
  Fail(&peer, why);
  // Some reads of the peer are still under way, and `inner_->Disconnect` below ends them. If bytes
  // have just arrived in a landing buffer in host memory, this error keeps OnArrived from copying
  // them to the device.
  for (auto& [job, owned] : peer.handed_on) {
    if (job->pool->path != DevicePath::kIpc) job->error.Update(why);
  }
  bounced_->EndWaiting(id, why);
  CloseImports(id, &peer);
  inner_->Disconnect(id);
  bounced_->Forget(id);
  peers_.erase(id);
  ended_.Report(id);
}

bool DeviceTransport::Progress() {
  bool moved = inner_->Progress();
  std::deque<StageNote> asked;
  asked.swap(asked_);
  for (const StageNote& note : asked) staging_->Stage(note);
  moved |= !asked.empty();
  moved |= staging_->Progress();
  for (auto& [id, peer] : peers_) moved |= Post(&peer);
  moved |= copies_->Progress();
  return ended_.Report(EndedReads::kAll) || moved;
}

void DeviceTransport::Wait(absl::Duration timeout) {
  if (!ended_.empty() || !asked_.empty()) return;
  if (copies_->under_way() > 0 || staging_->busy()) timeout = std::min(timeout, kWaitForDevice);
  inner_->Wait(timeout);
}

absl::StatusOr<std::string> DeviceTransport::Link(PeerId id) {
  const auto peer = peers_.find(id);
  if (peer != peers_.end() && !peer->second.link.empty()) return peer->second.link;
  return inner_->Link(id);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateDeviceTransport(std::unique_ptr<Transport> inner,
                                                                 DeviceRuntime* runtime,
                                                                 DevicePath path) {
  auto transport = std::make_unique<DeviceTransport>(std::move(inner), runtime, path);
  RETURN_IF_ERROR(transport->Start());
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace baton
