#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "kernels/device/runtime/device_runtime.h"
#include "kv_transfer/transport/ended_reads.h"
#include "kv_transfer/transport/transport.h"

namespace baton {

// Wraps a transport of one process and also reads registered device memory, as UCX does over RDMA.
// For tests of the direct path of DeviceTransport. The bytes of such a read go through host memory
// of the wrapper.
class DeviceReadingTransport : public Transport {
 public:
  // The device memory that the transports of one fabric have registered, shared by them.
  class Registry {
   public:
    struct Memory {
      DeviceRuntime* device;
      std::byte* data;
      size_t bytes;
    };

   private:
    friend class DeviceReadingTransport;
    Mutex mutex_;
    int last_ ABSL_GUARDED_BY(mutex_) = 0;
    std::map<std::string, Memory, std::less<>> memory_ ABSL_GUARDED_BY(mutex_);
  };
  struct Options {
    absl::Status registering;  // result of every call of RegisterDeviceMemory
    // Result of every read of device memory. If it is not OK, nothing is read.
    absl::Status reading;
  };
  // `device` is the one whose memory is registered. It must outlive the transport.
  DeviceReadingTransport(std::unique_ptr<Transport> inner, DeviceRuntime* device,
                         std::shared_ptr<Registry> registry, Options options)
      : inner_(std::move(inner)),
        device_(device),
        registry_(std::move(registry)),
        options_(std::move(options)) {}
  ~DeviceReadingTransport() override;

  std::string name() const override { return "device reader over " + inner_->name(); }
  absl::StatusOr<TransportMemory> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  absl::StatusOr<TransportMemory> RegisterDeviceMemory(std::byte* data, size_t bytes) override;
  std::string address() const override { return inner_->address(); }
  absl::StatusOr<PeerId> Connect(absl::string_view address) override {
    return inner_->Connect(address);
  }
  void Disconnect(PeerId peer) override;
  absl::Status Reachable(PeerId peer) override { return inner_->Reachable(peer); }
  absl::StatusOr<std::string> Link(PeerId peer) override;
  void Read(ReadOperation operation) override;
  absl::Status SendNote(PeerId peer, absl::string_view note) override {
    return inner_->SendNote(peer, note);
  }
  void SetNoteHandler(std::function<void(absl::string_view note)> handler) override {
    inner_->SetNoteHandler(std::move(handler));
  }
  bool Progress() override;
  void Wait(absl::Duration timeout) override {
    if (ended_.empty()) inner_->Wait(timeout);
  }
  void Wake() override { inner_->Wake(); }

  int device_reads() const { return device_reads_; }

 private:
  absl::Status ReadDevice(const ReadOperation& operation);

  const std::unique_ptr<Transport> inner_;
  DeviceRuntime* const device_;
  const std::shared_ptr<Registry> registry_;
  const Options options_;
  std::map<std::string, Registry::Memory, std::less<>> own_;
  EndedReads ended_;
  int device_reads_ = 0;
};

}  // namespace baton
