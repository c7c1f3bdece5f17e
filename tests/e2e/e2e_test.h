#pragma once

#include <cstdint>

#include "absl/time/time.h"

// Constants that several sources of e2e_test use. Any thread.
namespace baton {

// Folder of the model that lies in the repository.
inline constexpr char kDemoModel[] = BATON_SOURCE_DIR "/common/model/demo";
inline constexpr uint32_t kE2eSeed = 20261121;  // Seed of random prompts and options.
// Time limit for what happens at once. It only ends a hang.
inline constexpr absl::Duration kSoon = absl::Seconds(60);

}  // namespace baton
