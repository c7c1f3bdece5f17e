"""Computes how many blocks of a kernel a Hopper multiprocessor holds. The limits are those of compute capability 9.0
(CUDA C++ Programming Guide, "Compute Capabilities")."""
import dataclasses

REGISTERS = 65536
REGISTERS_PER_WARP = 256  # granularity in which registers are allocated
SHARED_BYTES = 228 * 1024
WARPS = 64
BLOCKS = 32
SCHEDULERS = 4


@dataclasses.dataclass(frozen=True)
class Occupancy:
    blocks: int  # blocks resident on one multiprocessor at a time
    warps: int
    limit: str  # the resource that is not enough for one more block


def occupancy(registers, threads, shared_bytes):
    """Returns the Occupancy of a kernel. `registers` are those of a thread, `shared_bytes` those of a block, with what
    the system takes."""
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // REGISTERS_PER_WARP) * REGISTERS_PER_WARP
    # Warps are assigned to the schedulers in turn. Each scheduler has a quarter of the registers.
    by_registers = REGISTERS // SCHEDULERS // of_warp * SCHEDULERS // warps
    limits = {"registers": by_registers, "shared memory": SHARED_BYTES // shared_bytes if shared_bytes else BLOCKS,
              "warps": WARPS // warps, "blocks": BLOCKS}
    blocks = min(limits.values())
    return Occupancy(blocks, blocks * warps, next(name for name, most in limits.items() if most == blocks))
