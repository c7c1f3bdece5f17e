#include "kernels/cpu/dispatch.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/cpu/instruction_sets.h"

namespace baton::cpu {
namespace {

using Isa = CpuBackendOptions::Isa;

absl::StatusOr<const IsaKernels*> ChooseF32(Isa isa) {
  const InstructionSets& host = HostInstructionSets();
  if (isa == Isa::kPortable) return &kPortableKernels;
  if (isa != Isa::kAvx2 && host.avx512) return &kAvx512Kernels;
  if (isa == Isa::kAvx512) {
    return absl::FailedPreconditionError("this processor has no AVX-512 (F, BW, DQ and VL)");
  }
  if (host.avx2) return &kAvx2Kernels;
  return absl::FailedPreconditionError(
      "the CPU backend needs AVX2, FMA and F16C (x86-64-v3: Intel Haswell, AMD Excavator or "
      "later), and this processor lacks at least one of them; run workers on a newer machine, or, "
      "in "
      "a virtual machine, let it see the host's processor (-cpu host). Routers and clients run "
      "here");
}

// Return true if this processor's tdpbf16ps and vdpbf16ps, respectively, sum in the documented
// order. Each answer is computed once and kept: the instructions do not depend on the
// floating-point control register, so the answer cannot change.
bool TilesSumAsSaid() {
  static const bool as_said = SumsAs(kAmxTiles, kAmxOrderPlain);
  return as_said;
}
bool PairDotSumsAsSaid() {
  static const bool as_said = SumsAs(kPairDotAvx512, kPairDotPlain);
  return as_said;
}

absl::StatusOr<const Bf16Kernels*> ChooseAmxOrder(Isa isa) {
  const InstructionSets& host = HostInstructionSets();
  if (isa == Isa::kPortable) return &kAmxOrderPlain;
  if (isa == Isa::kAvx2) return &kAmxOrderAvx2;
  // Tiles are used only if this processor's tile instructions sum in the order of numerics 'amx'.
  // Otherwise fused multiply-adds compute the sums in this order.
  const bool tiles = host.amx_bf16 && TilesSumAsSaid();
  if (isa == Isa::kAmx && !tiles) {
    return absl::FailedPreconditionError(
        host.amx_bf16
            ? "this processor's tdpbf16ps does not sum in the order of numerics 'amx'"
            : "this processor has no AMX bf16 tiles, or the operating system does not allow them");
  }
  if (isa != Isa::kAvx512 && tiles) return &kAmxTiles;
  return host.avx512 ? &kAmxOrderAvx512 : &kAmxOrderAvx2;
}

absl::StatusOr<const Bf16Kernels*> ChoosePairDot(Isa isa) {
  if (isa == Isa::kPortable) return &kPairDotPlain;
  if (isa != Isa::kAuto || !HostInstructionSets().avx512_bf16) {
    return absl::FailedPreconditionError(
        "this processor lacks AVX-512 or its BF16 extension, which numerics 'avx512-bf16' need");
  }
  if (!PairDotSumsAsSaid()) {
    return absl::FailedPreconditionError(
        "this processor's vdpbf16ps does not sum in the order of numerics 'avx512-bf16'");
  }
  return &kPairDotAvx512;
}

bool ByteTilesMultiplyAsSaid() {
  static const bool as_said = MultipliesAs(kQuantisedAmx, kQuantisedVnni);
  return as_said;
}

// The bits are those of plain code, whatever the instructions are.
absl::StatusOr<const QuantisedKernels*> ChooseQuantised(Isa isa) {
  const InstructionSets& host = HostInstructionSets();
  if (isa == Isa::kPortable) return nullptr;
  if (isa == Isa::kAvx2 || !host.avx512_vnni) {
    if (isa == Isa::kAvx2 || isa == Isa::kAuto) return &kQuantisedAvx2;
    return absl::FailedPreconditionError("this processor has no AVX-512 VNNI");
  }
  const bool tiles = host.amx_int8 && ByteTilesMultiplyAsSaid();
  if (isa == Isa::kAmx && !tiles) {
    return absl::FailedPreconditionError(
        host.amx_int8
            ? "this processor's tdpbsud does not multiply as vpdpbusd does"
            : "this processor has no AMX int8 tiles, or the operating system does not allow them");
  }
  return isa != Isa::kAvx512 && tiles ? &kQuantisedAmx : &kQuantisedVnni;
}

struct Free {
  void operator()(char* p) const { std::free(p); }
};
std::unique_ptr<char, Free> Aligned(size_t bytes) {
  std::unique_ptr<char, Free> memory(
      static_cast<char*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)));
  BATON_CHECK(memory != nullptr);
  return memory;
}

}  // namespace

bool SumsAs(const Bf16Kernels& kernels, const Bf16Kernels& plain) {
  constexpr int kRows = 3, kCols = 33, kInputs = 200;
  std::mt19937 random(1);
  // Sign and fraction are random. The exponents cover the whole range that can affect one sum. With
  // `small`, the exponent is so low that a product of two such values lies near the smallest normal
  // number.
  const auto sample = [&](bool small) {
    const uint32_t exponent = small ? 127 - 63 + random() % 12 - 8 : 127 + random() % 24 - 12;
    return static_cast<uint16_t>((random() & 0x807f) | exponent << 7);
  };
  std::vector<float> x(kRows * kInputs);
  std::vector<Bf16> w(kCols * kInputs);
  for (int i = 0; i < kRows * kInputs; ++i) {
    const uint32_t bits = static_cast<uint32_t>(sample(i >= 2 * kInputs)) << 16;
    std::memcpy(&x[i], &bits, sizeof(bits));
  }
  for (int i = 0; i < kCols * kInputs; ++i) w[i].bits = sample(i >= 16 * kInputs);
  const auto run = [&](const Bf16Kernels& k) {
    std::vector<float> out(kRows * kCols);
    const auto packed = Aligned(k.packed_bytes(kRows, kInputs)),
               scratch = Aligned(k.scratch_bytes(kRows, kInputs));
    k.pack(x.data(), kInputs, kRows, kInputs, 0, packed.get());
    k.gemm({.x = packed.get(),
            .m = kRows,
            .k = kInputs,
            .w = w.data(),
            .bias = nullptr,
            .out = out.data(),
            .out_stride = kCols,
            .accumulate = false},
           0, kRows, 0, kCols, scratch.get());
    return out;
  };
  const auto a = run(kernels), b = run(plain);
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool MultipliesAs(const QuantisedKernels& a, const QuantisedKernels& b) {
  // Two tiles of rows: a whole one and a part.
  constexpr int kRows = 20, kCols = 16, kInputs = 256, kGroups = kInputs / kGroupValues;
  constexpr uint16_t kScale = 0x2c00;
  struct Format {
    Blocks blocks;
    ptrdiff_t block_bytes, row_bytes, scale_at;
  };
  std::mt19937 random(2);
  std::vector<float> in(kRows * kInputs);
  for (float& value : in) value = static_cast<float>(random() % 2001) - 1000;
  const auto run = [&](const QuantisedKernels& kernels, const Format& format,
                       const std::vector<char>& w) {
    std::vector<int8_t> x(kRows * kInputs);
    std::vector<float> scales(kRows * kGroups), out(kRows * kCols);
    std::vector<int32_t> sums(2 * kRows * kGroups);
    for (int m = 0; m < kRows; ++m) {
      kernels.quantise(&in[m * kInputs], kInputs, &x[m * kInputs], &scales[m * kGroups],
                       &sums[2 * m * kGroups]);
    }
    const auto scratch = Aligned(kernels.scratch_bytes);
    kernels.gemm[static_cast<int>(format.blocks)]({.x = x.data(),
                                                   .x_scale = scales.data(),
                                                   .x_sums = sums.data(),
                                                   .k = kInputs,
                                                   .w = w.data(),
                                                   .row_bytes = format.row_bytes,
                                                   .bias = nullptr,
                                                   .out = out.data(),
                                                   .out_stride = kCols,
                                                   .accumulate = false},
                                                  0, kRows, 0, kCols, scratch.get());
    return out;
  };
  // Groups with one integer sum and bytes of all sizes, and groups with two sums.
  for (const Format& format :
       {Format{Blocks::kQ8_0, 34, 8 * 34, 0}, Format{Blocks::kQ6_K, 210, 210, 208}}) {
    std::vector<char> w(kCols * format.row_bytes);
    for (char& byte : w) byte = static_cast<char>(random());
    for (size_t block = 0; block < w.size(); block += format.block_bytes) {
      std::memcpy(&w[block + format.scale_at], &kScale, sizeof(kScale));
    }
    const auto of_a = run(a, format, w), of_b = run(b, format, w);
    if (std::memcmp(of_a.data(), of_b.data(), of_a.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

absl::StatusOr<Dispatch> Choose(const CpuBackendOptions& options) {
  Dispatch chosen;
  ASSIGN_OR_RETURN(const auto f32, ChooseF32(options.isa));
  chosen.f32 = f32;
  if (options.numerics == CpuNumerics::kAmx || options.numerics == CpuNumerics::kAvx512Bf16) {
    ASSIGN_OR_RETURN(const auto bf16, options.numerics == CpuNumerics::kAmx
                                          ? ChooseAmxOrder(options.isa)
                                          : ChoosePairDot(options.isa));
    chosen.bf16 = bf16;
  }
  if (options.numerics == CpuNumerics::kQ8) {
    ASSIGN_OR_RETURN(chosen.quantised, ChooseQuantised(options.isa));
  }
  return chosen;
}

}  // namespace baton::cpu

namespace baton {

absl::string_view CpuNumericsName(CpuNumerics numerics) {
  switch (numerics) {
    case CpuNumerics::kF32:
      return "f32";
    case CpuNumerics::kAmx:
      return "amx";
    case CpuNumerics::kAvx512Bf16:
      return "avx512-bf16";
    case CpuNumerics::kQ8:
      return "q8";
  }
  return "?";
}

absl::StatusOr<CpuNumerics> ParseCpuNumerics(absl::string_view name, WeightFormat weights) {
  using cpu::HostInstructionSets;
  const bool bf16 = weights == WeightFormat::kBF16, quantised = IsQuantised(weights);
  if (name == "f32") return CpuNumerics::kF32;
  if (quantised && (name == "auto" || name == "portable" || name == "q8")) return CpuNumerics::kQ8;
  if (name == "portable") return bf16 ? CpuNumerics::kAmx : CpuNumerics::kF32;
  if (name == "auto") {
    if (!bf16) return CpuNumerics::kF32;
    if (HostInstructionSets().amx_bf16 && cpu::TilesSumAsSaid()) return CpuNumerics::kAmx;
    // vdpbf16ps has half the rate of fused multiply-adds on Intel's processors, but twice their
    // rate on AMD's.
    if (HostInstructionSets().amd && HostInstructionSets().avx512_bf16 &&
        cpu::PairDotSumsAsSaid()) {
      return CpuNumerics::kAvx512Bf16;
    }
    return CpuNumerics::kF32;
  }
  for (const CpuNumerics numerics : {CpuNumerics::kAmx, CpuNumerics::kAvx512Bf16}) {
    if (name != CpuNumericsName(numerics)) continue;
    if (bf16) return numerics;
    return absl::InvalidArgumentError(absl::StrCat(
        "'", name,
        "' rounds activations to bf16, so it needs bf16 weights; this model's weights are ",
        WeightFormatName(weights)));
  }
  if (name == CpuNumericsName(CpuNumerics::kQ8)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", name,
        "' rounds activations to 8 bits, so it needs quantised weights; this model's weights are ",
        WeightFormatName(weights)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is not one of auto, portable, f32, amx, avx512-bf16 and q8"));
}

}  // namespace baton
