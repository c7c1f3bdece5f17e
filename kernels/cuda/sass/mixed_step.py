"""Estimates attention in a mixed step, in which some sequences decode and another one's prompt is computed.

Before: all rows go through prefill attention in one launch. After: decode rows go through split attention and
merge_attention, prompt rows through prefill attention, in launches of their own. README.md says what is counted.
"""
import collections
import dataclasses
import heapq
import random

import scoreboard
from disassembly import SassError
from main_path import MERGE, PLAIN

MOST_HEADS_OF_KV_HEAD = 16  # max query heads per KV head in split and prefill attention
PLACEMENTS = 15  # number of random placements of a launch's blocks that are tried


@dataclasses.dataclass(frozen=True)
class Device:
    """The device. The defaults are an H200."""
    name: str = "H200"
    multiprocessors: int = 132
    clocks_ghz: tuple = (1.755, 1.98)
    bytes_per_second: float = 4.8e12
    launch_us: float = 1.3  # gap from the end of one kernel to the beginning of the next
    l2_cycles: int = scoreboard.L2_CYCLES
    memory_cycles: int = 480


@dataclasses.dataclass(frozen=True)
class Step:
    """The step. The defaults are Llama 3 8B, one stream of 8k tokens and 512 prompt tokens."""
    streams: int = 1
    context: int = 8192  # keys that each stream's row sees, its own included
    prompt: int = 512  # rows of the prompt
    prompt_start: int = 0  # position of the prompt's first row
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    element_bytes: int = 2

    def __post_init__(self):
        for field, least in (("streams", 1), ("context", 1), ("prompt", 0), ("prompt_start", 0), ("layers", 1),
                             ("heads", 1), ("kv_heads", 1), ("head_dim", 1)):
            if getattr(self, field) < least:
                raise SassError(f"{field} is {getattr(self, field)}; it must be at least {least}")
        if self.heads % self.kv_heads or self.heads // self.kv_heads > MOST_HEADS_OF_KV_HEAD:
            raise SassError(f"{self.heads} heads with {self.kv_heads} KV heads: each must have the same number of heads, at "
                            f"most {MOST_HEADS_OF_KV_HEAD}")


class Timing:
    """Cycles of a kernel's tiles, which depend on how many of its blocks a multiprocessor runs, and of what surrounds
    the tiles."""

    def __init__(self, kernel, device, trace, tiles_of_trace):
        self.kernel, self.device = kernel, device
        self.trace, self.tiles_of_trace = trace, tiles_of_trace
        self.machine = scoreboard.Machine()
        self.cold = self.machine.with_look_up(device.l2_cycles)
        before, after = kernel.outside()
        # Includes the latency of device memory, from which the first keys come.
        self.fixed_cycles = (scoreboard.simulate(before, self.cold, passes=2).cycles + device.memory_cycles +
                             scoreboard.simulate(after, self.cold, passes=2).cycles)
        self._tile_cycles = {}

    @property
    def blocks(self):
        return self.kernel.occupancy.blocks

    def tile_cycles(self, blocks):
        """Returns the cycles of one tile when so many blocks run on a multiprocessor."""
        if blocks not in self._tile_cycles:
            warps = blocks * self.kernel.warps
            result = scoreboard.simulate(self.trace, self.machine, warps=-(-warps // 4), sharing=min(warps, 4))
            self._tile_cycles[blocks] = result.cycles / self.tiles_of_trace
        return self._tile_cycles[blocks]


def launch_cycles(tiles_of_blocks, timing, seed=0):
    """Returns the cycles from the first block's begin to the last one's end. Blocks start in order: one on each
    multiprocessor, then a second one on each, and so on; later ones start as others end. On which multiprocessor each
    goes is drawn from `seed`, because the device's order is not published."""
    waiting = collections.deque(tiles_of_blocks)
    # For each multiprocessor: the number of tiles that each of its blocks has still to compute
    # (`running`), as of a point in time (`counted`).
    running = [[] for _ in range(timing.device.multiprocessors)]
    counted = [0.0] * len(running)
    # (time at which the next block ends, index of its multiprocessor), one for each busy
    # multiprocessor
    events = []

    def work(tiles):
        # The fixed cycles of a block, before and after its tiles, count as extra tiles.
        return tiles + timing.fixed_cycles / timing.tile_cycles(1)

    def plan(index):
        if running[index]:
            end = counted[index] + min(running[index]) * timing.tile_cycles(len(running[index]))
            heapq.heappush(events, (end, index))

    draw = random.Random(seed)
    for _ in range(timing.blocks):
        for index in draw.sample(range(len(running)), len(running)):
            if waiting:
                running[index].append(work(waiting.popleft()))
    for index in range(len(running)):
        plan(index)
    end = 0.0
    while events:
        end, index = heapq.heappop(events)
        passed = min(running[index])
        running[index] = [left - passed for left in running[index] if left - passed > 1e-9]
        counted[index] = end
        while waiting and len(running[index]) < timing.blocks:
            running[index].append(work(waiting.popleft()))
        plan(index)
    return end


def placed(tiles_of_blocks, timing):
    """Returns the cycles of a launch for several ways to place its blocks, in ascending order."""
    return sorted(launch_cycles(tiles_of_blocks, timing, seed) for seed in range(PLACEMENTS))


@dataclasses.dataclass
class Launch:
    name: str
    placed_cycles: list  # cycles of one layer, for several ways to place blocks, in ascending order
    bytes: int  # keys and values that one layer reads from memory
    times: int  # launches of the kernel in a step

    @property
    def cycles(self):
        """The median over the ways to place blocks."""
        return self.placed_cycles[len(self.placed_cycles) // 2]

    def microseconds(self, device, clock_ghz):
        """Returns the time of one layer: what the instructions or the memory take, whichever is longer."""
        busy = max(self.cycles / (clock_ghz * 1e3), self.bytes / device.bytes_per_second * 1e6)
        return busy + device.launch_us


def _tiles(constants, keys):
    return -(-keys // constants["tile_keys"])


def prompt_blocks(step, constants):
    """Returns how many tiles each of prefill attention's blocks takes for one KV head, the last rows first."""
    rows = constants["tile_lines"] // (step.heads // step.kv_heads) * constants["prefill_warps"]
    ends = [min(first + rows, step.prompt) for first in range(0, step.prompt, rows)]
    return [_tiles(constants, step.prompt_start + end) for end in reversed(ends)]


def key_bytes(step, keys):
    """Returns the bytes of keys and values of one layer."""
    return keys * step.kv_heads * step.head_dim * 2 * step.element_bytes


def prefill_timing(kernel, constants, device):
    """Returns the Timing of prefill attention, from the tiles of one range. The last of them merges the range."""
    of_range = constants["range_keys"] // constants["tile_keys"]
    return Timing(kernel, device, kernel.path(PLAIN).trace * (of_range - 1) + kernel.path(MERGE).trace, of_range)


def one_launch(step, device, prefill, constants):
    """Returns the launch that takes all rows through prefill attention. A decode row is a block of its own for each KV
    head."""
    of_head = [_tiles(constants, step.context)] * step.streams + prompt_blocks(step, constants)
    cycles = placed(of_head * step.kv_heads, prefill_timing(prefill, constants, device))
    total = key_bytes(step, step.streams * step.context + step.prompt_start + step.prompt)
    return [Launch("prefill_attention, all rows", cycles, total, step.layers)]


def two_launches(step, device, split, merge, prefill, constants):
    """Returns the launches that take decode rows through split attention and the merge of their ranges, and prompt rows
    through prefill attention."""
    of_range = constants["range_keys"] // constants["tile_keys"]
    ranges = -(-step.context // constants["range_keys"])
    last = _tiles(constants, step.context - (ranges - 1) * constants["range_keys"])
    units = ([of_range] * (ranges - 1) + [last]) * step.streams * step.kv_heads
    split_cycles = placed(units, Timing(split, device, split.path(PLAIN).trace, split.tiles_of(split.path(PLAIN))))

    machine = scoreboard.Machine().with_look_up(device.l2_cycles)
    path = merge.path(PLAIN)
    # merge_attention computes two exponentials for each range of keys: one scales the sums of all
    # earlier ranges, the other the sums of this range.
    of_pass = sum(one.name == "MUFU.EX2" for one in path.trace) / 2
    before, after = merge.outside()
    blocks = step.streams * -(-step.heads // constants["merge_warps"])
    waves = -(-blocks // (merge.occupancy.blocks * device.multiprocessors))
    merge_cycles = waves * (scoreboard.simulate(before, machine, passes=2).cycles +
                            ranges / of_pass * scoreboard.simulate(path.trace, machine).cycles +
                            scoreboard.simulate(after, machine, passes=2).cycles)

    prompt = prompt_blocks(step, constants) * step.kv_heads
    launches = [
        Launch("split_attention, decode rows", split_cycles, key_bytes(step, step.streams * step.context), step.layers),
        Launch("merge_attention, decode rows", [merge_cycles], 0, step.layers)]
    if prompt:
        prefill_cycles = placed(prompt, prefill_timing(prefill, constants, device))
        launches.append(Launch("prefill_attention, prompt rows", prefill_cycles,
                               key_bytes(step, step.prompt_start + step.prompt), step.layers))
    return launches
