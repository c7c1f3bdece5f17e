#pragma once

#include <string>

namespace baton::cpu {

// Instruction sets that this processor has and that the operating system lets this process use.
struct InstructionSets {
  bool avx2 = false;         // includes FMA and F16C
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_vnni = false;  // vpdpbusd; includes all of the above
  bool avx512_bf16 = false;  // vdpbf16ps; includes avx512
  bool amx_bf16 = false;     // tdpbf16ps; includes avx512_bf16
  bool amx_int8 = false;     // tdpbsud; includes avx512_vnni
  bool amd = false;
};
// Returns the instruction sets of this process; the result never changes. Any thread; cannot fail.
// The first call asks the operating system for the AMX tiles, which a process gets only on request.
// If it refuses, `amx_bf16` and `amx_int8` are false.
const InstructionSets& HostInstructionSets();

}  // namespace baton::cpu
