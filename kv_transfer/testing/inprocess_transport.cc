#include "kv_transfer/testing/inprocess_transport.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "kv_transfer/transport/memory_budget.h"

namespace baton {
namespace {

// Max bytes copied in one call of Progress, so that notes do not wait long.
constexpr size_t kBytesPerProgress = 4 << 20;

// Alignment of memory, in bytes: a page.
constexpr size_t kAlignment = 4096;

// A reader may copy while the owner writes; generations and checksums detect that. The thread
// sanitizer must not report such a copy as a race.
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread"), noinline)) void CopyUnsynchronised(std::byte* to,
                                                                         const std::byte* from,
                                                                         size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
#else
void CopyUnsynchronised(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

// Memory from the heap, so that the address sanitizer finds who uses it after its owner has gone.
struct Region {
  explicit Region(size_t size) : bytes(size), begin(std::calloc(size + kAlignment, 1)) {
    if (begin == nullptr) return;
    const auto address = reinterpret_cast<uintptr_t>(begin);
    data = reinterpret_cast<std::byte*>((address + kAlignment) / kAlignment * kAlignment);
  }
  ~Region() { std::free(begin); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const size_t bytes;
  void* const begin;
  std::byte* data = nullptr;
};

}  // namespace

struct InProcessFabric::Endpoint {
  Mutex mutex;
  CondVar changed;
  bool gone ABSL_GUARDED_BY(mutex) = false;
  bool woken ABSL_GUARDED_BY(mutex) = false;
  std::deque<std::string> notes ABSL_GUARDED_BY(mutex);
  // Shared pointers, so that a copy under way keeps the memory alive while its owner is destroyed.
  std::map<std::string, std::shared_ptr<Region>, std::less<>> regions ABSL_GUARDED_BY(mutex);
};

class InProcessTransport : public Transport {
 public:
  InProcessTransport(InProcessFabric* fabric, std::string address,
                     std::shared_ptr<InProcessFabric::Endpoint> self)
      : fabric_(fabric), address_(std::move(address)), self_(std::move(self)) {}

  ~InProcessTransport() override {
    while (!peers_.empty()) Disconnect(peers_.begin()->first);
    {
      MutexLock lock(&fabric_->mutex_);
      fabric_->endpoints_.erase(address_);
    }
    MutexLock lock(&self_->mutex);
    self_->gone = true;
    self_->regions.clear();
    self_->notes.clear();
  }

  std::string name() const override { return "inproc"; }
  std::string address() const override { return address_; }

  absl::StatusOr<TransportMemory> Allocate(size_t bytes) override {
    if (bytes == 0) return absl::InvalidArgumentError("0 bytes were asked for");
    RETURN_IF_ERROR(CheckMemoryFor(bytes));
    auto region = std::make_shared<Region>(bytes);
    if (region->data == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("memory of ", bytes, " bytes: ", std::strerror(errno)));
    }
    MutexLock lock(&self_->mutex);
    TransportMemory memory{region->data, bytes, absl::StrCat("region", self_->regions.size())};
    self_->regions[memory.key] = std::move(region);
    return memory;
  }

  absl::StatusOr<PeerId> Connect(absl::string_view address) override {
    if (!absl::StartsWith(address, fabric_->prefix_)) {
      return absl::InvalidArgumentError("not an address of this in-process fabric");
    }
    const PeerId id = next_peer_++;
    peers_[id].address = std::string(address);
    return id;
  }

  void Disconnect(PeerId peer) override {
    if (peers_.erase(peer) == 0) return;
    std::deque<Posted> kept, ended;
    for (Posted& posted : reads_) {
      (posted.operation.peer == peer ? ended : kept).push_back(std::move(posted));
    }
    reads_ = std::move(kept);
    for (Posted& posted : ended) {
      posted.operation.done(absl::UnavailableError("disconnected before the read was done"));
    }
  }

  absl::StatusOr<std::string> Link(PeerId peer) override {
    const auto it = peers_.find(peer);
    if (it == peers_.end() || !it->second.used) {
      return absl::UnavailableError("nothing has gone to this peer yet");
    }
    return "inproc";
  }

  void Read(ReadOperation operation) override {
    std::string key(operation.key);
    reads_.push_back({std::move(operation), std::move(key)});
    reads_.back().operation.key = {};
  }

  absl::Status SendNote(PeerId peer, absl::string_view note) override {
    if (note.size() > kMaxNoteBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a note of ", note.size(), " bytes; the limit is ", kMaxNoteBytes));
    }
    const auto it = peers_.find(peer);
    if (it == peers_.end()) return absl::UnavailableError("no such peer");
    const auto target = fabric_->Find(it->second.address);
    if (target == nullptr) return absl::UnavailableError("the peer is gone");
    MutexLock lock(&target->mutex);
    if (target->gone) return absl::UnavailableError("the peer is gone");
    if (target->notes.size() >= kMaxNotesUnderWay) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMaxNotesUnderWay, " notes wait for this peer"));
    }
    target->notes.emplace_back(note);
    target->woken = true;
    target->changed.Signal();
    it->second.used = true;
    return absl::OkStatus();
  }

  void SetNoteHandler(std::function<void(absl::string_view note)> handler) override {
    handler_ = std::move(handler);
  }

  bool Progress() override {
    bool moved = false;
    // This call handles only the notes and reads that are queued now. Notes and reads that its
    // callbacks post wait for the next call.
    std::deque<std::string> notes;
    {
      MutexLock lock(&self_->mutex);
      notes.swap(self_->notes);
    }
    size_t bytes = 0;
    for (size_t left = reads_.size(); left > 0 && !reads_.empty(); --left) {
      if (bytes >= kBytesPerProgress) break;
      Posted posted = std::move(reads_.front());
      reads_.pop_front();
      bytes += posted.operation.bytes;
      const absl::Status status = Copy(posted);
      posted.operation.done(status);
      moved = true;
    }
    for (const std::string& note : notes) {
      if (handler_) handler_(note);
      moved = true;
    }
    return moved;
  }

  void Wait(absl::Duration timeout) override {
    if (fabric_->options_.single_threaded || !reads_.empty()) return;
    MutexLock lock(&self_->mutex);
    if (self_->notes.empty() && !self_->woken) self_->changed.WaitFor(&self_->mutex, timeout);
    self_->woken = false;
  }

  void Wake() override {
    MutexLock lock(&self_->mutex);
    self_->woken = true;
    self_->changed.Signal();
  }

 private:
  struct Peer {
    std::string address;
    bool used = false;
  };
  struct Posted {
    ReadOperation operation;
    std::string key;
  };

  absl::Status Copy(const Posted& posted) {
    const ReadOperation& operation = posted.operation;
    const auto it = peers_.find(operation.peer);
    if (it == peers_.end()) return absl::UnavailableError("no such peer");
    const auto target = fabric_->Find(it->second.address);
    if (target == nullptr) return absl::UnavailableError("the peer is gone");
    std::shared_ptr<Region> region;
    {
      MutexLock lock(&target->mutex);
      if (target->gone) return absl::UnavailableError("the peer is gone");
      const auto found = target->regions.find(posted.key);
      if (found != target->regions.end()) region = found->second;
    }
    if (region == nullptr) return absl::InvalidArgumentError("the peer has no such memory");
    if (operation.offset > region->bytes || operation.bytes > region->bytes - operation.offset) {
      return absl::InvalidArgumentError(absl::StrCat("a read of ", operation.bytes, " bytes at ",
                                                     operation.offset, " of ", region->bytes));
    }
    CopyUnsynchronised(operation.local, region->data + operation.offset, operation.bytes);
    it->second.used = true;
    return absl::OkStatus();
  }

  InProcessFabric* const fabric_;
  const std::string address_;
  const std::shared_ptr<InProcessFabric::Endpoint> self_;
  std::function<void(absl::string_view)> handler_;
  PeerId next_peer_ = 0;
  std::map<PeerId, Peer> peers_;
  std::deque<Posted> reads_;
};

InProcessFabric::InProcessFabric(Options options)
    : options_(options), prefix_(absl::StrCat("inproc:", absl::Hex(RandomU64()), ":")) {}

InProcessFabric::~InProcessFabric() = default;

std::unique_ptr<Transport> InProcessFabric::CreateTransport() {
  auto endpoint = std::make_shared<Endpoint>();
  std::string address;
  {
    MutexLock lock(&mutex_);
    address = absl::StrCat(prefix_, created_++);
    endpoints_[address] = endpoint;
  }
  return std::make_unique<InProcessTransport>(this, std::move(address), std::move(endpoint));
}

std::shared_ptr<InProcessFabric::Endpoint> InProcessFabric::Find(absl::string_view address) {
  MutexLock lock(&mutex_);
  const auto it = endpoints_.find(address);
  return it == endpoints_.end() ? nullptr : it->second;
}

}  // namespace baton
