#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace baton {

// Element types of weights and of the KV cache.
enum class DType : uint8_t { kF32, kF16, kBF16 };

constexpr size_t DTypeBytes(DType type) { return type == DType::kF32 ? 4 : 2; }

// Returns the name used in logs, flags and fingerprints: f32, f16 or bf16.
constexpr absl::string_view DTypeName(DType type) {
  return type == DType::kF32 ? "f32" : type == DType::kF16 ? "f16" : "bf16";
}

}  // namespace baton
