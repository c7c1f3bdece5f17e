#include "kv_transfer/transport/ucx_worker.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/usable_memory.h"
#include "kv_transfer/transport/byte_packer.h"
#include "kv_transfer/transport/listening_sockets.h"
#include "kv_transfer/transport/memory_budget.h"
#include "kv_transfer/transport/ucx_devices.h"
#include "kv_transfer/transport/ucx_failures.h"
#include "kv_transfer/transport/ucx_settings.h"
#include "kv_transfer/transport/ucx_sockets.h"

#if defined(__SANITIZE_ADDRESS__)
// Suppresses the leaks of UCX workers that are never destroyed (see ~UcxWorker).
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libucp.so\nleak:libuct.so\nleak:libucs.so\n";
}
// Keeps the table of suppressed leaks out of the log.
extern "C" const char* __lsan_default_options() { return "print_suppressions=0"; }
#endif

namespace baton {
namespace {

// Shared memory needed for the queues of one worker, with a reserve: UCX 1.13 asks for 4.3 MB.
constexpr uint64_t kShmBytes = 16 << 20;

// Returns the reason why UCX can't get shared memory for its queues, and a remedy, or "" if no
// reason is visible from outside UCX. `said` is UCX's message.
std::string ShortOfSharedMemory(absl::string_view said) {
  constexpr char kOr[] = ", or use --kv-transports=tcp, which does not need it";
  if (absl::StrContains(said, "shmget") || absl::StrContains(said, "shmmax")) {
    return absl::StrCat(
        "the limits of SysV shared memory are too low (kernel.shmmax, kernel.shmall "
        "and kernel.shmmni, which `ipcs -l` shows): raise them with sysctl",
        kOr);
  }
  struct statvfs shm;
  if (statvfs("/dev/shm", &shm) != 0) {
    return absl::StrCat("/dev/shm can't be used (", std::strerror(errno), "): mount a tmpfs there",
                        kOr);
  }
  const uint64_t free = uint64_t{shm.f_bavail} * shm.f_frsize;
  if (free >= kShmBytes) return "";
  return absl::StrCat("/dev/shm is full: it has ", free, " of ",
                      uint64_t{shm.f_blocks} * shm.f_frsize, " bytes free, and a worker needs ",
                      kShmBytes >> 20,
                      " MiB there: delete files in it, enlarge it (docker run --shm-size=1g; "
                      "in Kubernetes an emptyDir of medium Memory at /dev/shm)",
                      kOr);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(
    const UcxOptions& options, std::function<void(absl::string_view note)> note) {
  std::unique_ptr<UcxWorker> worker(new UcxWorker(options));
  worker->note_ = std::move(note);
  absl::Status status = worker->Start(options);
  if (status.ok()) status = worker->ReadAddress();
  RETURN_IF_ERROR(status);
  return worker;
}

absl::Status UcxWorker::Start(const UcxOptions& options) {
  TameUcx();
  ASSIGN_OR_RETURN(const auto config, UcxSettings(options));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "baton";
  UcxWordsHeld words;  // holds UCX's log messages back, so that our error comes before them
  ucs_status_t status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) {
    context_ = nullptr;
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-transports '", options.tls, "' and --kv-net-device '",
                     options.net_devices, "' fit no transport of UCX (", ucs_status_string(status),
                     "): take auto, shm, tcp, or names that `ucx_info -d` lists", words.Take()));
  }
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // One thread creates the worker and another thread uses it, never both at the same time.
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  has_ = UcxTransportsOf(context_);
  // UCX 1.13 has no call for the addresses at which it listens. So compare this process's listening
  // sockets before and after the worker is created.
  const std::map<uint64_t, ListeningSocket> before = ListeningSockets();
  status = ucp_worker_create(context_, &worker, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    const std::string said = words.Take();
    const std::string why = ShortOfSharedMemory(said);
    if (why.empty()) {
      return UcxError(absl::StatusCode::kUnavailable, absl::StrCat("creating a worker", said),
                      status);
    }
    return absl::ResourceExhaustedError(absl::StrCat("no shared memory for KV: ", why, said));
  }
  if (Has("tcp")) {
    for (const auto& [inode, socket] : ListeningSockets()) {
      if (before.contains(inode)) continue;
      GuardUcxListener(socket.fd);
      listens_at_.push_back(socket.address);
    }
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kNoteId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = OnNote;
  handler.arg = this;
  status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kUnavailable, "taking active messages", status);
  }
  status = ucp_worker_get_efd(worker_, &worker_fd_);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kUnavailable, "asking for its event descriptor", status);
  }
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) {
    return absl::UnavailableError(absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status UcxWorker::ReadAddress() {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kUnavailable, "asking for its address", status);
  }
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return absl::OkStatus();
}

bool UcxWorker::Has(absl::string_view transport) const {
  return absl::c_linear_search(has_, transport);
}

UcxWorker::~UcxWorker() {
  for (ucp_mem_h memory : memory_) ucp_mem_unmap(context_, memory);
  const bool stays = worker_ != nullptr && transports_ != "shm";
  if (worker_ != nullptr && !stays) ucp_worker_destroy(worker_);
  if (context_ != nullptr && !stays) ucp_cleanup(context_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

// Handles a note (a short message) that has arrived. Our notes use UCX's eager protocol and have at
// most kMaxNoteBytes. Any other message was not sent by a transport of ours and is dropped.
ucs_status_t UcxWorker::OnNote(void* self, const void*, size_t header_bytes, void* data,
                               size_t bytes, const ucp_am_recv_param_t* param) {
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || header_bytes != 0 ||
      bytes > Transport::kMaxNoteBytes) {
    return UCS_OK;
  }
  static_cast<UcxWorker*>(self)->note_({static_cast<const char*>(data), bytes});
  return UCS_OK;
}

absl::StatusOr<TransportMemory> UcxWorker::Allocate(size_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("0 bytes were asked for");
  RETURN_IF_ERROR(CheckMemoryFor(bytes));
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucp_mem_h handle = nullptr;
  ucs_status_t status = ucp_mem_map(context_, &params, &handle);
  if (status != UCS_OK) {
    return UcxError(
        absl::StatusCode::kResourceExhausted,
        absl::StrCat("allocating ", bytes, " bytes, of ", ReadUsableMemory().bytes, " available"),
        status);
  }
  memory_.push_back(handle);
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  status = ucp_mem_query(handle, &attributes);
  if (status != UCS_OK) return UcxError(absl::StatusCode::kUnavailable, "memory query", status);
  const uintptr_t start = reinterpret_cast<uintptr_t>(attributes.address);
  BATON_CHECK(start % 4096 == 0) << start;
  auto* const begin = static_cast<std::byte*>(attributes.address);
  ASSIGN_OR_RETURN(auto key, KeyOf(handle, begin, bytes));
  return TransportMemory{begin, bytes, std::move(key)};
}

absl::StatusOr<std::string> UcxWorker::KeyOf(ucp_mem_h memory, const std::byte* begin,
                                             size_t bytes) {
  void* packed = nullptr;
  size_t packed_bytes = 0;
  const ucs_status_t status = ucp_rkey_pack(context_, memory, &packed, &packed_bytes);
  if (status != UCS_OK) return UcxError(absl::StatusCode::kUnavailable, "packing a key", status);
  BytePacker key;
  key.Put<uint64_t>(reinterpret_cast<uintptr_t>(begin));
  key.Put<uint64_t>(bytes);
  key.PutString({static_cast<const char*>(packed), packed_bytes});
  ucp_rkey_buffer_release(packed);
  return key.Take();
}

absl::StatusOr<TransportMemory> UcxWorker::Register(std::byte* device_memory, size_t bytes) {
  RETURN_IF_ERROR(UcxReadsDevices(UcxMemoryTypesOf(context_), has_));
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = device_memory;
  params.length = bytes;
  params.memory_type = UCS_MEMORY_TYPE_CUDA;
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucp_mem_map(context_, &params, &handle);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kFailedPrecondition,
                    absl::StrCat("registering ", bytes, " bytes of device memory"), status);
  }
  memory_.push_back(handle);
  ASSIGN_OR_RETURN(auto key, KeyOf(handle, device_memory, bytes));
  on_device_.push_back({device_memory, bytes, std::move(key), true});
  return on_device_.back();
}

ucs_memory_type_t UcxWorker::TypeOf(const std::byte* memory) const {
  for (const TransportMemory& one : on_device_) {
    if (memory >= one.data && memory < one.data + one.bytes) return UCS_MEMORY_TYPE_CUDA;
  }
  return UCS_MEMORY_TYPE_HOST;
}

bool UcxWorker::Wait(absl::Duration timeout, int also) {
  if (UcxMustProgress() || ucp_worker_arm(worker_) != UCS_OK) return false;
  const timespec limit = absl::ToTimespec(std::max(timeout, absl::ZeroDuration()));
  pollfd events[] = {{worker_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}, {also, POLLIN, 0}};
  if (ppoll(events, 3, &limit, nullptr) <= 0) return false;
  if ((events[1].revents & POLLIN) != 0) {
    uint64_t wakes = 0;
    (void)!read(wake_fd_, &wakes, sizeof(wakes));
  }
  return (events[2].revents & POLLIN) != 0;
}

void UcxWorker::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof(one));
}

}  // namespace baton
