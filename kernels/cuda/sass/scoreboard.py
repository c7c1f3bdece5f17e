"""Simulates warps that issue instructions in order, as far as the control words tell when each may issue.

An instruction issues when the stall count of the one before it has passed, the scoreboards of its wait mask are free,
and the unit that executes it is free. One scheduler (a quarter of a multiprocessor) issues one instruction a cycle, of
the warp that has been ready longest. README.md says where the figures come from and what is left out.
"""
import collections
import dataclasses

from disassembly import NO_BARRIER


# Latencies of a load from global memory, in cycles, if the L1 or the L2 cache has the data.
L1_CYCLES = 40
L2_CYCLES = 270


@dataclasses.dataclass(frozen=True)
class Machine:
    """What the simulation knows of a Hopper multiprocessor, in cycles."""
    # Cycles from the issue of an instruction to the release of its write barrier, by opcode.
    latency: dict = dataclasses.field(default_factory=lambda: {
        "LDSM": 33, "LDS": 29, "STS": 20, "LDG": L1_CYCLES, "LDC": 30, "SHFL": 24, "MUFU": 23, "I2F": 16, "F2I": 16,
        "S2UR": 22, "R2UR": 12, "ATOM": 60,
        # 0, because asynchronous copies to shared memory arrive in time; their bandwidth is counted
        # elsewhere
        "LDGDEPBAR": 0,
    })
    other_latency: int = 20
    # Cycles from the issue of an instruction to the release of its read barrier.
    read_latency: int = 15
    # Cycles from one mma (m16n8k16) to the next on a scheduler's tensor core.
    tensor_interval: int = 6
    # Cycles from one instruction to the next in the multi-function unit, which has four lanes.
    multifunction_interval: int = 8

    def with_look_up(self, cycles):
        """Returns the same machine with another latency of loads from global memory."""
        return dataclasses.replace(self, latency={**self.latency, "LDG": cycles})

    def slower(self, factor):
        """Returns the same machine with all latencies and intervals times `factor`. Stall counts are the compiler's and
        stay."""
        return Machine({opcode: cycles * factor for opcode, cycles in self.latency.items()}, self.other_latency * factor,
                       self.read_latency * factor, self.tensor_interval * factor, self.multifunction_interval * factor)

    def unit(self, instruction):
        """Returns the unit that executes an instruction, and for how many cycles it then takes no other one. Returns
        (None, 0) for units that take one every cycle, or whose interval the stall counts already hold."""
        opcode = instruction.opcode
        if opcode == "HMMA":
            return "tensor core", self.tensor_interval
        if opcode in ("MUFU", "I2F", "F2I"):
            return "multi-function unit", self.multifunction_interval
        if opcode in ("LDG", "STG", "SHFL"):
            return "load and store", 2
        if self.shared_memory_cycles(instruction):
            return "load and store", self.shared_memory_cycles(instruction)
        return None, 0

    @staticmethod
    def shared_memory_cycles(instruction):
        """Returns how many cycles of the multiprocessor's shared memory it takes: 128 bytes move in each."""
        if instruction.opcode in ("LDSM", "LDGSTS"):
            return 4  # 32 lanes of 16 bytes
        if instruction.opcode in ("LDS", "STS"):
            return 4 if ".128" in instruction.name else 2 if ".64" in instruction.name else 1
        return 0


@dataclasses.dataclass
class Result:
    cycles: float  # per pass over the trace; all warps run their passes at the same time
    # {index into the trace: cycles} for one pass of the first warp. The cycles of an instruction
    # are the sum of its stall count, the time for which other instructions waited for its
    # scoreboard, and the time for which it waited for its unit.
    spent: dict


def simulate(trace, machine=Machine(), passes=6, warps=1, sharing=1):
    """Returns the Result for a `trace` of Instructions that each of `warps` warps of one scheduler repeats. `sharing`
    schedulers of the multiprocessor do the same, so that shared memory serves each of them at that fraction of its
    rate. The first pass is not counted."""
    if not trace:
        raise ValueError("an empty trace")
    if passes < 2:
        raise ValueError(f"{passes} passes: the first one is not counted, so there must be two")
    steps = []
    for instruction in trace:
        unit, busy = machine.unit(instruction)
        if machine.shared_memory_cycles(instruction):
            busy *= sharing
        if instruction.is_never_executed:
            unit = None
        steps.append((instruction, unit, busy))

    position, done, may_issue = [0] * warps, [0] * warps, [0.0] * warps
    # For each scoreboard of each warp: the time when it becomes free, and the step that holds it
    # until then.
    free = [[(0.0, None)] * 6 for _ in range(warps)]
    unit_free = collections.defaultdict(float)
    spent = collections.Counter()
    before = None  # the step of warp 0 that issued last
    now, last, begin = 0.0, 0, None
    while sum(done) < warps * passes:
        choices = []
        for warp in range(warps):
            instruction, unit, _ = steps[position[warp]]
            ready, cause = may_issue[warp], before
            for number in instruction.waits():
                if free[warp][number][0] > ready:
                    ready, cause = free[warp][number]
            if unit and unit_free[unit] > ready:
                ready, cause = unit_free[unit], position[warp]
            choices.append((ready, warp != last, warp, cause))
        ready, _, warp, cause = min(choices, key=lambda one: one[:3])
        step = position[warp]
        instruction, unit, busy = steps[step]
        issued = max(now, ready)
        counted = begin is not None
        if warp == 0 and counted:
            # Counts only the wait after the stall count of the previous instruction has passed.
            spent[cause] += issued - may_issue[0]
        if unit:
            unit_free[unit] = issued + busy
        if instruction.write_barrier != NO_BARRIER:
            until = issued + machine.latency.get(instruction.opcode, machine.other_latency)
            _hold(free[warp], instruction.write_barrier, until, step)
        if instruction.read_barrier != NO_BARRIER:
            _hold(free[warp], instruction.read_barrier, issued + machine.read_latency, step)
        may_issue[warp] = issued + max(1, instruction.stall)
        if warp == 0:
            if counted:
                spent[step] += max(1, instruction.stall)
            before = step
        now, last = issued + 1, warp
        position[warp] += 1
        if position[warp] == len(steps):
            position[warp] = 0
            done[warp] += 1
            if begin is None and sum(done) >= warps:
                begin = now
    return Result((now - begin) / (passes - 1), {step: total / (passes - 1) for step, total in spent.items()})


def _hold(free, number, until, step):
    """Holds a scoreboard until the last of the instructions that use it releases it."""
    if until >= free[number][0]:
        free[number] = until, step
