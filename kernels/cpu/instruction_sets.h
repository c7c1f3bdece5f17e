#pragma once

#include <string>

namespace baton::cpu {

// What this processor has and the operating system lets this process use. The first call asks the
// kernel for the AMX tiles, which it hands out to a process on demand.
struct InstructionSets {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_bf16 = false;  // vdpbf16ps; with all of the above
  bool amx_bf16 = false;     // tdpbf16ps; with all of the above
  bool amd = false;
};
const InstructionSets& HostInstructionSets();

}  // namespace baton::cpu
