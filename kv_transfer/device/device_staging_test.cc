#include "kv_transfer/device/device_staging.h"

#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kv_transfer/device/staging_notes.h"
#include "kv_transfer/transport/ucx_transport.h"

namespace baton {
namespace {

#if !defined(__SANITIZE_THREAD__)  // UCX is not built for the thread sanitizer
TEST(DeviceStagingTest, AReaderWithoutSlotsIsToldWhyAlsoOverTcp) {
  const auto owner = CreateUcxTransport({.tls = "tcp"}).value();
  const auto reader = CreateUcxTransport({.tls = "tcp"}).value();
  std::optional<StagedNote> told;
  reader->SetNoteHandler([&told](absl::string_view note) { told = DecodeStaged(note); });
  DeviceStaging staging(/*runtime=*/nullptr, owner.get());
  StageNote nothing;  // a request for zero bytes of a pool that does not exist
  nothing.reader = 7;
  nothing.id = 3;
  nothing.address = reader->address();
  staging.Stage(nothing);
  const absl::Time until = absl::Now() + absl::Seconds(20);
  while (!told && absl::Now() < until) {
    if (!owner->Progress() && !reader->Progress()) owner->Wait(absl::Milliseconds(1));
  }
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->reader, 7u);
  EXPECT_EQ(told->id, 3u);
  EXPECT_EQ(told->code, absl::StatusCode::kInvalidArgument);
}
#endif

}  // namespace
}  // namespace baton
