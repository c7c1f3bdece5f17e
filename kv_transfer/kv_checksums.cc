#include "kv_transfer/kv_checksums.h"

#include <utility>

#include "common/base/check.h"
#include "kv_transfer/kv_meta.h"

namespace baton {
namespace {

class HostKvChecksums : public KvChecksums {
 public:
  HostKvChecksums(const std::byte* pool, const KvLayout& layout) : pool_(pool), layout_(layout) {}

  void Take(std::vector<KvSlice> slices, std::shared_ptr<DeviceEvent> written, Done done) override {
    BATON_CHECK(written == nullptr) << "a device's event for a pool in host memory";
    for (KvSlice& slice : slices) {
      slice.checksum =
          KvChecksum(layout_, slice.seed, pool_ + layout_.LayerOffset(slice.block, slice.layer));
    }
    done(absl::OkStatus(), slices);
  }
  bool Progress() override { return false; }
  bool busy() const override { return false; }
  void Finish() override {}

 private:
  const std::byte* const pool_;
  const KvLayout layout_;
};

}  // namespace

std::unique_ptr<KvChecksums> CreateHostKvChecksums(const std::byte* pool, const KvLayout& layout) {
  return std::make_unique<HostKvChecksums>(pool, layout);
}

}  // namespace baton
