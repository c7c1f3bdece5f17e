"""Puts estimates into text and dictionaries."""
import collections
import pathlib
import re

import build
import cubin
import disassembly
import occupancy
import scoreboard
import main_path
from disassembly import SassError

# Classes of opcodes, by what they are for in a tile.
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
        match = re.fullmatch(r"(split|prefill)_attention(?:_f16)?_(\d+)", name)
        if not match:
            raise SassError(f"'{name}' is no attention kernel with tiles: split_attention_128, prefill_attention_f16_64")
        path = pathlib.Path(folder) / f"{match[1]}_attention.cubin"
        if not path.is_file():
            raise SassError(f"there is no {path}; make the folder with `attention_time build {folder}`")
        functions = disassembly.disassemble(path, nvdisasm)
        if name not in functions:
            raise SassError(f"{path} has no kernel {name}; it has {', '.join(sorted(functions))}")
        self.function = functions[name]
        self.head_dim = int(match[2])
        constants = build.constants(folder)
        use = cubin.resources(path)[name]
        self.warps = constants["prefill_warps"] if match[1] == "prefill" else 1
        self.registers = use.registers
        self.shared_bytes = use.shared_bytes + constants["shared_bytes"][match[2]][match[1]]
        self.occupancy = occupancy.occupancy(use.registers, 32 * self.warps, self.shared_bytes)

    def tiles_of(self, path):
        """Returns how many tiles one pass of the main loop takes: the compiler may unroll it."""
        products = sum(one.opcode == "HMMA" for one in path.trace)
        # A tile takes head_dim / 4 products (m16n8k16) of q with the keys, as many of the weights with the values, and
        # two of the weights with ones.
        return max(1, products // (self.head_dim // 2)) if products else 1

    def path(self, kind=main_path.PLAIN, choices=None, loop=None):
        return main_path.find_main_path(self.function, kind, choices, loop)

    def tile(self, kind=main_path.PLAIN, choices=None, loop=None, machine=scoreboard.Machine()):
        return Tile(self, kind, self.path(kind, choices, loop), machine)
