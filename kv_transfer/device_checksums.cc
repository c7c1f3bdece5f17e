#include "kv_transfer/device_checksums.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/kernels/kv_checksum.h"

namespace baton {
namespace {

constexpr int kLaunches = 16;  // max launches on the stream; further slices wait

class DeviceKvChecksums : public KvChecksums {
 public:
  DeviceKvChecksums(DeviceRuntime* runtime, const Kernel& kernel, const std::byte* pool,
                    const KvLayout& layout)
      : runtime_(runtime),
        kernel_(kernel),
        pool_(pool),
        layout_(layout),
        parts_(KvChecksumParts(static_cast<int64_t>(layout.LayerBytes()))) {}
  ~DeviceKvChecksums() override {
    if (stream_ != nullptr) (void)runtime_->Synchronize(*stream_);
    stream_.reset();
    runtime_->FreePinned(sums_);
  }

  absl::Status Start();
  void Take(std::vector<KvSlice> slices, std::shared_ptr<DeviceEvent> written, Done done) override;
  bool Progress() override;
  bool busy() const override { return !requests_.empty(); }
  void Finish() override;

 private:
  struct Request {
    std::vector<KvSlice> slices;
    // The event after which the slices are written. Reset once the stream has been told to wait for
    // it.
    std::shared_ptr<DeviceEvent> written;
    Done done;
    // `launched`: slices for which the kernel was launched; `summed`: slices whose checksums have
    // arrived.
    size_t launched = 0, summed = 0;
    absl::Status status;  // The first error; once set, no more slices of the request are launched.

    bool finished() const {
      return launched == summed && (summed == slices.size() || !status.ok());
    }
  };
  struct Launched {
    Request* request;
    size_t first, count;  // the launch covers `count` slices of the request, from index `first` on
    int place;
  };
  // Pinned memory that receives the checksums of one kernel launch, and the event recorded after
  // it.
  struct Place {
    uint64_t* sums = nullptr;  // [kKvChecksumSlices, parts_]
    std::unique_ptr<DeviceEvent> event;
  };

  void LaunchMore();
  absl::Status Launch(Request* request, int place, size_t count);
  void Sum(const absl::Status& status);
  bool Report();

  DeviceRuntime* const runtime_;
  const Kernel kernel_;
  const std::byte* const pool_;
  const KvLayout layout_;
  const int64_t parts_;  // parts per slice, each summed by one thread block
  std::unique_ptr<DeviceStream> stream_;
  std::byte* sums_ = nullptr;  // pinned memory, shared by all `places_`
  std::vector<Place> places_;
  std::vector<int> free_places_;
  std::deque<std::unique_ptr<Request>> requests_;  // in the order of the calls of Take
  std::deque<Launched> launched_;                  // oldest launch first
};

absl::Status DeviceKvChecksums::Start() {
  ASSIGN_OR_RETURN(auto stream, runtime_->CreateStream(StreamKind::kCopy));
  stream_ = std::move(stream);
  const size_t place_bytes = kKvChecksumSlices * parts_ * sizeof(uint64_t);
  ASSIGN_OR_RETURN(auto sums, runtime_->AllocatePinned(kLaunches * place_bytes));
  sums_ = sums;
  for (int i = 0; i < kLaunches; ++i) {
    ASSIGN_OR_RETURN(auto event, runtime_->CreateEvent());
    places_.push_back({reinterpret_cast<uint64_t*>(sums_ + i * place_bytes), std::move(event)});
    free_places_.push_back(i);
  }
  return absl::OkStatus();
}

void DeviceKvChecksums::Take(std::vector<KvSlice> slices, std::shared_ptr<DeviceEvent> written,
                             Done done) {
  auto request = std::make_unique<Request>();
  request->slices = std::move(slices);
  request->written = std::move(written);
  request->done = std::move(done);
  requests_.push_back(std::move(request));
  LaunchMore();
}

absl::Status DeviceKvChecksums::Launch(Request* request, int place, size_t count) {
  if (request->written != nullptr) {
    RETURN_IF_ERROR(runtime_->WaitFor(*request->written, *stream_));
    request->written = nullptr;
  }
  KvChecksumParams params{};
  params.sums = places_[place].sums;
  params.slice_bytes = static_cast<int64_t>(layout_.LayerBytes());
  params.parts = static_cast<int32_t>(parts_);
  for (size_t i = 0; i < count; ++i) {
    const KvSlice& slice = request->slices[request->launched + i];
    params.slices[i] = {pool_ + layout_.LayerOffset(slice.block, slice.layer), slice.seed};
  }
  LaunchShape shape;
  shape.grid_x = static_cast<int>(count);
  shape.grid_y = static_cast<int>(parts_);
  shape.threads = kKvChecksumThreads;
  RETURN_IF_ERROR(runtime_->Launch(kernel_, shape, params, *stream_));
  return runtime_->Record(*places_[place].event, *stream_);
}

void DeviceKvChecksums::LaunchMore() {
  for (const auto& request : requests_) {
    while (request->status.ok() && request->launched < request->slices.size()) {
      if (free_places_.empty()) return;
      const size_t count =
          std::min<size_t>(kKvChecksumSlices, request->slices.size() - request->launched);
      request->status = Launch(request.get(), free_places_.back(), count);
      if (!request->status.ok()) break;
      launched_.push_back({request.get(), request->launched, count, free_places_.back()});
      free_places_.pop_back();
      request->launched += count;
    }
  }
}

// Handles the result of the oldest kernel launch. The kernel has finished or, if `status` is an
// error, will never finish.
void DeviceKvChecksums::Sum(const absl::Status& status) {
  const Launched launched = launched_.front();
  launched_.pop_front();
  const uint64_t* part = places_[launched.place].sums;
  for (size_t i = 0; i < launched.count && status.ok(); ++i) {
    uint64_t sum = 0;
    for (int64_t k = 0; k < parts_; ++k) sum += *part++;
    launched.request->slices[launched.first + i].checksum = sum;
  }
  launched.request->summed += launched.count;
  launched.request->status.Update(status);
  free_places_.push_back(launched.place);
}

bool DeviceKvChecksums::Report() {
  bool any = false;
  while (!requests_.empty() && requests_.front()->finished()) {
    const std::unique_ptr<Request> request = std::move(requests_.front());
    requests_.pop_front();
    any = true;
    request->done(request->status, request->slices);
  }
  return any;
}

bool DeviceKvChecksums::Progress() {
  while (!launched_.empty()) {
    const absl::StatusOr<bool> ran = runtime_->Query(*places_[launched_.front().place].event);
    if (ran.ok() && !*ran) break;
    Sum(ran.status());
  }
  LaunchMore();
  return Report();
}

void DeviceKvChecksums::Finish() {
  while (!requests_.empty()) {
    LaunchMore();
    if (!launched_.empty()) {
      Sum(runtime_->Synchronize(*places_[launched_.front().place].event));
    }
    Report();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvChecksums>> CreateDeviceKvChecksums(DeviceRuntime* runtime,
                                                                     const Kernel& kernel,
                                                                     const std::byte* pool,
                                                                     const KvLayout& layout) {
  if (layout.LayerBytes() % 16 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("KV slices of ", layout.LayerBytes(),
                                                   " bytes: on a device they are summed 16 bytes "
                                                   "at a time"));
  }
  auto checksums = std::make_unique<DeviceKvChecksums>(runtime, kernel, pool, layout);
  RETURN_IF_ERROR(checksums->Start());
  return std::unique_ptr<KvChecksums>(std::move(checksums));
}

}  // namespace baton
