#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kv_transfer/transport/socket_address.h"
#include "kv_transfer/transport/transport.h"
#include "kv_transfer/transport/ucx_transport.h"

namespace baton {

// UCX's context and worker of one transport: its settings, the memory that peers may read, the
// notes that arrive, and the wait for events. One thread, except Wake.
class UcxWorker {
 public:
  // `note` is called, from within ucp_worker_progress, with each note (short message) that a peer
  // has sent.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(
      const UcxOptions& options, std::function<void(absl::string_view note)> note);
  // Requires that all endpoints are closed. Unless the only transport is "shm", the UCX worker and
  // its sockets stay until the process ends: UCX 1.13 aborts in ucp_worker_destroy if an answer to
  // a peer that went away while connecting is still queued.
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  static constexpr unsigned kNoteId = 0xBA;  // id of the active messages that carry notes

  const std::string& transports() const { return transports_; }
  const std::string& net_devices() const { return net_devices_; }
  ucp_worker_h handle() const { return worker_; }
  // Address of the UCX worker, in UCX's format. Peers need it to create an endpoint.
  const std::string& address() const { return address_; }
  // Returns true if UCX has this transport on this machine. `transport` is UCX's name for it, such
  // as sysv.
  bool Has(absl::string_view transport) const;
  // Addresses at which UCX takes connections, one for each network interface. Empty without TCP.
  const std::vector<SocketAddress>& listens_at() const { return listens_at_; }

  // Works like Transport::Allocate.
  absl::StatusOr<TransportMemory> Allocate(size_t bytes);
  absl::StatusOr<TransportMemory> Register(std::byte* device_memory, size_t bytes);
  // Returns the type of `memory`, which ucp_get_nbx needs.
  ucs_memory_type_t TypeOf(const std::byte* memory) const;
  // Waits until something may have happened, Wake was called, `also` (if it is a file descriptor,
  // not -1) is readable, or `timeout` has passed. Returns true if `also` is readable.
  bool Wait(absl::Duration timeout, int also);
  void Wake();

 private:
  explicit UcxWorker(const UcxOptions& options)
      : transports_(options.tls), net_devices_(options.net_devices) {}
  absl::Status Start(const UcxOptions& options);
  absl::Status ReadAddress();
  absl::StatusOr<std::string> KeyOf(ucp_mem_h memory, const std::byte* begin, size_t bytes);
  static ucs_status_t OnNote(void* self, const void* header, size_t header_bytes, void* data,
                             size_t bytes, const ucp_am_recv_param_t* param);

  const std::string transports_;
  const std::string net_devices_;
  std::function<void(absl::string_view)> note_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int worker_fd_ = -1;
  int wake_fd_ = -1;
  std::string address_;
  std::vector<std::string> has_;
  std::vector<SocketAddress> listens_at_;
  std::vector<ucp_mem_h> memory_;
  std::vector<TransportMemory> on_device_;  // registered device memory
};

}  // namespace baton
