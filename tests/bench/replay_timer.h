#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/device/runtime/device_runtime.h"

namespace baton {

// Forwards all calls to another runtime, and can repeat the latest replay of a graph. So a step can
// be timed without the host's part of the work. All calls must come from one thread.
class ReplayTimer : public DeviceRuntime {
 public:
  // `inner` must outlive this object.
  explicit ReplayTimer(DeviceRuntime* inner) : inner_(inner) {}

  // Returns the number of calls of Replay.
  int replays() const { return replays_; }
  // Replays the latest graph again, on the same stream. Returns FailedPrecondition before the first
  // Replay.
  absl::Status ReplayAgain();
  // Waits until all work on the stream of the latest Replay has run. Call it only after a Replay.
  absl::Status WaitForReplays();

  const DeviceInfo& info() const override { return inner_->info(); }
  void OnFailure(std::function<void(const absl::Status&)> handler) override {
    inner_->OnFailure(std::move(handler));
  }
  std::string LinkTo(absl::string_view device) override { return inner_->LinkTo(device); }
  absl::StatusOr<size_t> FreeBytes() override { return inner_->FreeBytes(); }
  absl::StatusOr<std::byte*> Allocate(size_t bytes, bool interprocess) override {
    return inner_->Allocate(bytes, interprocess);
  }
  size_t AllocationBytes(size_t bytes, bool interprocess) const override {
    return inner_->AllocationBytes(bytes, interprocess);
  }
  void Free(std::byte* memory) override { inner_->Free(memory); }
  absl::StatusOr<std::byte*> AllocatePinned(size_t bytes) override {
    return inner_->AllocatePinned(bytes);
  }
  void FreePinned(std::byte* memory) override { inner_->FreePinned(memory); }
  absl::Status PinHost(std::byte* memory, size_t bytes) override {
    return inner_->PinHost(memory, bytes);
  }
  void UnpinHost(std::byte* memory) override { inner_->UnpinHost(memory); }
  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream(StreamKind kind) override {
    return inner_->CreateStream(kind);
  }
  absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent(bool interprocess) override {
    return inner_->CreateEvent(interprocess);
  }
  absl::Status Copy(void* to, const void* from, size_t bytes, DeviceStream& stream) override {
    return inner_->Copy(to, from, bytes, stream);
  }
  absl::Status CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                        size_t row_bytes, size_t rows, DeviceStream& stream) override {
    return inner_->CopyRows(to, to_pitch, from, from_pitch, row_bytes, rows, stream);
  }
  absl::Status Fill(void* to, uint8_t value, size_t bytes, DeviceStream& stream) override {
    return inner_->Fill(to, value, bytes, stream);
  }
  using DeviceRuntime::Launch;
  absl::Status Launch(const Kernel& kernel, const LaunchShape& shape, const void* params,
                      DeviceStream& stream) override {
    return inner_->Launch(kernel, shape, params, stream);
  }
  absl::Status GemmStatus() override { return inner_->GemmStatus(); }
  absl::Status Gemm(const DenseGemm& gemm, DeviceStream& stream) override {
    return inner_->Gemm(gemm, stream);
  }
  absl::Status Record(DeviceEvent& event, DeviceStream& stream) override {
    return inner_->Record(event, stream);
  }
  absl::Status WaitFor(DeviceEvent& event, DeviceStream& stream) override {
    return inner_->WaitFor(event, stream);
  }
  absl::StatusOr<bool> Query(DeviceEvent& event) override { return inner_->Query(event); }
  absl::Status Synchronize(DeviceEvent& event) override { return inner_->Synchronize(event); }
  absl::Status Synchronize(DeviceStream& stream) override { return inner_->Synchronize(stream); }
  absl::Status BeginCapture(DeviceStream& stream) override { return inner_->BeginCapture(stream); }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture(DeviceStream& stream) override {
    return inner_->EndCapture(stream);
  }
  absl::Status Replay(DeviceGraph& graph, DeviceStream& stream) override;
  absl::StatusOr<std::string> ExportMemory(const std::byte* memory) override {
    return inner_->ExportMemory(memory);
  }
  absl::StatusOr<std::string> ExportEvent(DeviceEvent& event) override {
    return inner_->ExportEvent(event);
  }
  absl::StatusOr<std::byte*> ImportMemory(absl::string_view handle) override {
    return inner_->ImportMemory(handle);
  }
  void CloseMemory(std::byte* memory) override { inner_->CloseMemory(memory); }
  absl::StatusOr<std::unique_ptr<DeviceEvent>> ImportEvent(absl::string_view handle) override {
    return inner_->ImportEvent(handle);
  }

 private:
  DeviceRuntime* const inner_;
  int replays_ = 0;
  DeviceGraph* graph_ = nullptr;
  DeviceStream* stream_ = nullptr;
};

}  // namespace baton
