"""Puts estimates into text and dictionaries: of a kernel's tile, and of a mixed step."""
import collections
import dataclasses
import pathlib
import re

import build
import cubin
import disassembly
import occupancy
import scoreboard
import main_path
from disassembly import SassError

# Classes of opcodes, by their purpose in the computation of a tile.
CLASSES = (
    ("HMMA", ("HMMA",)),
    ("LDSM", ("LDSM",)),
    ("LDGSTS", ("LDGSTS", "LDGDEPBAR", "DEPBAR")),
    ("LDG", ("LDG",)),
    ("exponentials", ("MUFU",)),
    ("float and masks", ("FMUL", "FADD", "FFMA", "FSEL", "FSETP", "FMNMX", "F2FP", "FSET", "FCHK", "HADD2", "HMUL2")),
    ("shuffles", ("SHFL",)),
    ("shared words", ("LDS", "STS")),
    ("control", ("BRA", "BSSY", "BSYNC", "NOP", "WARPSYNC", "BAR", "CALL", "EXIT")),
)
OTHER = "integers and addresses"


def class_of(instruction):
    if instruction.name == "MUFU.RCP" or instruction.is_never_executed:
        return OTHER
    return next((name for name, opcodes in CLASSES if instruction.opcode in opcodes), OTHER)


class Tile:
    """The estimate of one tile of a kernel."""

    def __init__(self, kernel, kind, path, machine):
        self.kernel, self.kind, self.path = kernel, kind, path
        self.tiles = kernel.tiles_of(path)
        self.alone = scoreboard.simulate(path.trace, machine)
        self.cycles = self.alone.cycles / self.tiles
        rest = [one for place, one in enumerate(path.trace) if place not in path.loads]
        self.cycles_without_load = scoreboard.simulate(rest, machine).cycles / self.tiles
        occupied = kernel.occupancy
        self.warps_of_scheduler = max(1, -(-occupied.warps // occupancy.SCHEDULERS))
        sharing = min(occupied.warps, occupancy.SCHEDULERS)
        full = scoreboard.simulate(path.trace, machine, warps=self.warps_of_scheduler, sharing=sharing)
        self.cycles_full = full.cycles / self.tiles
        cold = machine.with_look_up(scoreboard.L2_CYCLES)
        self.cycles_before, self.cycles_after = (
            scoreboard.simulate(trace, cold, passes=2).cycles for trace in kernel.outside(path))

    def by_class(self):
        """Returns {(part, class): (instructions, cycles)}; the parts are the load of the next tile, and the tile."""
        table = collections.defaultdict(lambda: [0, 0.0])
        for place, instruction in enumerate(self.path.trace):
            part = "load of the next tile" if place in self.path.loads else "the tile"
            entry = table[part, class_of(instruction)]
            entry[0] += 1
            entry[1] += self.alone.spent.get(place, 0)
        return table

    def as_dictionary(self):
        occupied = self.kernel.occupancy
        return {
            "kernel": self.kernel.name, "kind": self.kind,
            "loop": [self.path.first_address, self.path.last_address],
            "instructions": len(self.path.trace), "tiles": self.tiles, "cycles": self.cycles,
            "instructions_without_load": len(self.path.trace) - len(self.path.loads),
            "cycles_without_load": self.cycles_without_load,
            "cycles_before_loop": self.cycles_before, "cycles_after_loop": self.cycles_after,
            "blocks_of_multiprocessor": occupied.blocks, "warps_of_multiprocessor": occupied.warps,
            "limit": occupied.limit, "cycles_when_full": self.cycles_full,
            "registers": self.kernel.registers, "shared_bytes": self.kernel.shared_bytes,
            "branches": [{"address": one.address, "taken": one.taken, "reason": one.reason}
                         for one in self.path.decisions],
            "classes": [{"part": part, "class": name, "instructions": count, "cycles": cycles}
                        for (part, name), (count, cycles) in sorted(self.by_class().items())],
        }

    def text(self, trace=False):
        occupied, path = self.kernel.occupancy, self.path
        lines = [
            f"{self.kernel.name}, {self.kind} tile: {self.cycles:.0f} cycles, {len(path.trace)} instructions "
            f"({path.first_address:#x} to {path.last_address:#x})" + (f" of {self.tiles} tiles" if self.tiles > 1 else ""),
            f"  without the load of the next tile: {self.cycles_without_load:.0f} cycles, "
            f"{len(path.trace) - len(path.loads)} instructions",
            f"  before the loop {self.cycles_before:.0f} cycles and after it {self.cycles_after:.0f}, with look-ups from L2",
            f"  multiprocessor: {occupied.blocks} blocks, {occupied.warps} warps (limit: {occupied.limit}; "
            f"{self.kernel.registers} registers, {self.kernel.shared_bytes} bytes); when full {self.cycles_full:.0f} "
            f"cycles a tile with {self.warps_of_scheduler} warps on a scheduler",
            "  branches:"]
        lines += [f"    {one.address:#06x} {'taken' if one.taken else 'not taken':9} {one.reason}"
                  for one in path.decisions]
        lines += ["  cycles by what waits or is waited for:",
                  f"    {'part':22} {'class':24} {'instructions':>12} {'cycles':>8}"]
        rows = sorted(self.by_class().items(), key=lambda item: (item[0][0], -item[1][1]))
        for (part, name), (count, cycles) in rows:
            lines.append(f"    {part:22} {name:24} {count:12} {cycles:8.0f}")
        if trace:
            lines.append("  trace: address, stall, write and read barrier, wait mask, cycles")
            for place, one in enumerate(path.trace):
                barriers = [str(x) if x != disassembly.NO_BARRIER else "-"
                            for x in (one.write_barrier, one.read_barrier)]
                lines.append(f"    {one.address:#06x} {one.stall:2} w{barriers[0]} r{barriers[1]} {one.wait_mask:02x} "
                             f"{self.alone.spent.get(place, 0):6.0f}  {'+' if place in path.loads else ' '} "
                             f"{one.predicate:5} {one.text}")
        return "\n".join(lines) + "\n"


class Kernel:
    """One attention kernel of a folder that `attention_time build` made."""

    def __init__(self, folder, name, nvdisasm):
        self.name = name
        match = re.fullmatch(r"(split|prefill)_attention(?:_f16)?_(\d+)|merge_attention", name)
        if not match:
            raise SassError(f"'{name}' is not an attention kernel with tiles, such as split_attention_128 or prefill_attention_f16_64")
        file = f"{match[1]}_attention" if match[1] else name
        path = pathlib.Path(folder) / f"{file}.cubin"
        if not path.is_file():
            raise SassError(f"there is no {path}; make the folder with `attention_time build {folder}`")
        functions = disassembly.disassemble(path, nvdisasm)
        if name not in functions:
            raise SassError(f"{path} has no kernel {name}; it has {', '.join(sorted(functions))}")
        self.function = functions[name]
        self.head_dim = int(match[2] or 0)
        constants = build.constants(folder)
        use = cubin.resources(path)[name]
        self.warps = {"split": 1, "prefill": constants["prefill_warps"], None: constants["merge_warps"]}[match[1]]
        self.registers = use.registers
        self.shared_bytes = use.shared_bytes + (constants["shared_bytes"][match[2]][match[1]] if match[1] else 0)
        self.occupancy = occupancy.occupancy(use.registers, 32 * self.warps, self.shared_bytes)
        self.opcodes = main_path.TILES if match[1] else main_path.RANGES

    def tiles_of(self, path):
        """Returns how many tiles one pass of the main loop takes: the compiler may unroll it."""
        products = sum(one.opcode == "HMMA" for one in path.trace)
        # A tile takes head_dim / 4 mma instructions (m16n8k16) for q times the keys, head_dim / 4
        # for the weights times the values, and two for the sums of the weights.
        return max(1, products // (self.head_dim // 2)) if products else 1

    def path(self, kind=main_path.PLAIN, choices=None, loop=None):
        return main_path.find_main_path(self.function, kind, choices, loop, self.opcodes)

    def outside(self, path=None):
        """Returns the Instructions before the main loop, and those after it."""
        return main_path.outside(self.function, path or self.path())

    def tile(self, kind=main_path.PLAIN, choices=None, loop=None, machine=scoreboard.Machine()):
        return Tile(self, kind, self.path(kind, choices, loop), machine)


class Step:
    """Estimates of one mixed step, each made of launches."""

    def __init__(self, step, device):
        self.step, self.device = step, device
        self.estimates = {}

    def add(self, name, launches):
        self.estimates[name] = launches

    def _milliseconds(self, launches, clock):
        return sum(launch.microseconds(self.device, clock) * launch.times for launch in launches) / 1e3

    def as_dictionary(self):
        clocks = self.device.clocks_ghz
        return {
            "device": dataclasses.asdict(self.device), "step": dataclasses.asdict(self.step),
            "estimates": [{
                "name": name,
                "milliseconds": [self._milliseconds(launches, clock) for clock in clocks],
                "launches": [{
                    "name": launch.name, "cycles": launch.cycles, "placed_cycles": launch.placed_cycles,
                    "bytes": launch.bytes, "times": launch.times,
                    "microseconds": [launch.microseconds(self.device, clock) for clock in clocks]}
                    for launch in launches]} for name, launches in self.estimates.items()]}

    def text(self):
        step, device, clocks = self.step, self.device, self.device.clocks_ghz
        lines = [f"attention of a step with {step.streams} sequence(s) of {step.context} keys that decode and "
                 f"{step.prompt} prompt tokens: {step.layers} layers, {step.heads} heads, {step.kv_heads} KV heads of "
                 f"{step.head_dim}; {device.name}, at {' and '.join(f'{clock} GHz' for clock in clocks)}, +-25 %"]
        for name, launches in self.estimates.items():
            total = [self._milliseconds(launches, clock) for clock in clocks]
            lines.append(f"{name}: {' to '.join(f'{one:.2f}' for one in reversed(total))} ms a step")
            for launch in launches:
                took = [launch.microseconds(device, clock) for clock in clocks]
                least, most = launch.placed_cycles[0], launch.placed_cycles[-1]
                spread = f" ({least:.0f} to {most:.0f}, as blocks are placed)" if round(least) != round(most) else ""
                lines.append(f"  {launch.name}: {' to '.join(f'{one:.1f}' for one in reversed(took))} us a layer, "
                             f"{launch.cycles:.0f} cycles{spread}")
        return "\n".join(lines)
