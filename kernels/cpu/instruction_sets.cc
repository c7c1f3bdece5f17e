#include "kernels/cpu/instruction_sets.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace baton::cpu {
namespace {

struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Cpuid Leaf(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

// Asks Linux for the AMX tiles, and returns true if this process may use them. Since version 5.16
// Linux gives them to a process that asks; from then on, all threads of the process have them.
// Linux refuses if some thread's alternate signal stack is too small to hold the tiles.
bool TilesAllowed() {
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

InstructionSets Detect() {
  __builtin_cpu_init();
  InstructionSets sets;
  sets.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("f16c");
  sets.avx512 = sets.avx2 && __builtin_cpu_supports("avx512f") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vl");
  sets.avx512_vnni = sets.avx512 && (Leaf(7, 0).ecx & 1u << 11) != 0;
  sets.avx512_bf16 = sets.avx512 && (Leaf(7, 1).eax & 1u << 5) != 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;
  const unsigned amx = Leaf(7, 0).edx;
  const bool tiles = (amx & kAmxTile) != 0 && TilesAllowed();
  sets.amx_bf16 = tiles && sets.avx512_bf16 && (amx & kAmxBf16) != 0;
  sets.amx_int8 = tiles && sets.avx512_vnni && (amx & kAmxInt8) != 0;
  sets.amd = __builtin_cpu_is("amd");
  return sets;
}

}  // namespace

const InstructionSets& HostInstructionSets() {
  static const InstructionSets sets = Detect();
  return sets;
}

}  // namespace baton::cpu
