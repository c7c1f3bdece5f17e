"""Finds the main loop of an attention kernel, and the way that a warp takes through it in steady state.

The main loop is the innermost loop that has all of some opcodes: for a loop over tiles, tensor-core products (HMMA)
and the loads of their operands (LDSM). Its branches are decided by rules, which look at what lies on either side of a
branch until the two sides meet. README.md lists them. Where none applies, UndecidedBranch says what is on both sides,
and the caller decides (`choices`).
"""
import collections
import dataclasses

from disassembly import SassError

PLAIN, MERGE, IDLE = "plain", "merge", "idle"
KINDS = (PLAIN, MERGE, IDLE)

TILES = ("HMMA", "LDSM")  # opcodes of a loop over tiles
RANGES = ("MUFU", "LDG")  # opcodes of a loop that merges ranges


class UndecidedBranch(SassError):
    pass


@dataclasses.dataclass(frozen=True)
class Decision:
    address: int
    taken: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class Path:
    header: int  # index of the loop's first instruction in the function
    body: frozenset  # indices of all of the loop's instructions
    first_address: int  # address of the loop's first instruction
    last_address: int  # address of the branch back
    trace: list  # the Instructions of one pass, in the order in which a warp issues them
    decisions: list
    loads: frozenset  # indices into the trace that belong to the load of the next tile


class Flow:
    """Knows which instruction may follow which, and the loops that result."""

    def __init__(self, function):
        self.function = function
        self.instructions = function.instructions
        self.after = [self._after(index) for index in range(len(self.instructions))]
        self.before = [[] for _ in self.instructions]
        for index, following in enumerate(self.after):
            for other in following:
                self.before[other].append(index)

    def target(self, index):
        instruction = self.instructions[index]
        place = self.function.labels.get(instruction.target)
        if place is None or place >= len(self.instructions):
            raise SassError(f"{self.function.name}, address {instruction.address:#x}: no label for the branch "
                            f"'{instruction.text}'")
        return place

    def _after(self, index):
        instruction = self.instructions[index]
        following = [index + 1] if index + 1 < len(self.instructions) else []
        if instruction.opcode in ("EXIT", "RET"):
            return following if instruction.is_conditional else []
        if instruction.name == "BRA.DIV":  # leads to code for a warp whose lanes have diverged
            return following
        if instruction.opcode == "BRA":
            if instruction.predicate == "@!PT":
                return following
            target = self.target(index)
            return following + [target] if instruction.is_conditional and following != [target] else [target]
        if instruction.opcode in ("BRX", "BRXU", "JMP", "JMX"):
            raise SassError(f"{self.function.name}, address {instruction.address:#x}: '{instruction.text}' goes to an "
                            "address that only the device knows")
        return following

    def reachable(self, start, within, without=()):
        """Returns `start` and all indices that can follow it, inside of `within` and not through `without`."""
        if start not in within or start in without:
            return set()
        seen, left = {start}, [start]
        while left:
            for other in self.after[left.pop()]:
                if other in within and other not in seen and other not in without:
                    seen.add(other)
                    left.append(other)
        return seen

    def leading_to(self, goal, within):
        """Returns `goal` and all indices inside of `within` from which it can be reached."""
        seen, left = {goal}, [goal]
        while left:
            for other in self.before[left.pop()]:
                if other in within and other not in seen:
                    seen.add(other)
                    left.append(other)
        return seen

    def dominators(self):
        """Returns, for each index, the bit set of the indices that every way to it passes."""
        everything = (1 << len(self.instructions)) - 1
        over = [everything] * len(self.instructions)
        over[0] = 1
        order = sorted(self.reachable(0, range(len(self.instructions))))
        changed = True
        while changed:
            changed = False
            for index in order:
                if index == 0:
                    continue
                common = everything
                for other in self.before[index]:
                    common &= over[other]
                common |= 1 << index
                if common != over[index]:
                    over[index] = common
                    changed = True
        return over

    def loops(self):
        """Returns the natural loops as {index of the first instruction: indices of all instructions}."""
        over = self.dominators()
        loops = {}
        for index, following in enumerate(self.after):
            for header in following:
                if over[index] >> header & 1 and (index == 0 or over[index] != (1 << len(over)) - 1):
                    body = loops.setdefault(header, {header})
                    left = [index]
                    while left:
                        one = left.pop()
                        if one not in body:
                            body.add(one)
                            left.extend(self.before[one])
        return loops


class Contents:
    """Counts, in some instructions, the opcodes that tell what these instructions are there for."""

    def __init__(self, instructions):
        names = collections.Counter(one.opcode for one in instructions if not one.is_never_executed)
        self.instructions = len(instructions)
        self.products = names["HMMA"] + names["LDSM"]
        self.copies = names["LDGSTS"] + names["UBLKCP"] + names["UTMALDG"]
        self.look_ups = names["LDG"]
        self.divisions = names["I2F"]
        self.calls = names["CALL"] + sum(one.name == "WARPSYNC.COLLECTIVE" for one in instructions)
        self.merges = min(names["LDS"], names["STS"])
        functions = collections.Counter(one.name for one in instructions)
        self.caps = names["FCHK"] + functions["MUFU.TANH"] + max(functions["MUFU.RCP"] - self.divisions, 0)
        self.masks = sum(one.opcode == "FSEL" and "-INF" in one.text for one in instructions)

    def __str__(self):
        found = [f"{count} {what}" for what, count in (
            ("HMMA and LDSM", self.products), ("copies to shared memory", self.copies), ("LDG", self.look_ups),
            ("integer divisions", self.divisions), ("calls", self.calls), ("pairs of LDS and STS", self.merges),
            ("steps of tanh", self.caps), ("masks", self.masks)) if count]
        return f"{self.instructions} instructions" + (f" ({', '.join(found)})" if found else "")


def preferred(one, other, kind):
    """Returns which of two sides (Contents) of a branch is taken, 0 or 1, and why; (None, "") if no rule decides."""
    both = (one, other)

    def only(has):
        """Returns the side that alone has something, or None."""
        having = [bool(has(side)) for side in both]
        return having.index(True) if having.count(True) == 1 else None

    side = only(lambda x: x.caps and not (x.products or x.copies or x.look_ups or x.merges))
    if side is not None:
        return 1 - side, "a soft cap, which the model has none of"
    # A side of a branch with calls, but without mma instructions, copies or merges, is a slow path:
    # for rare operands of a division, or for lanes that have diverged.
    side = only(lambda x: x.calls and not (x.products or x.copies or x.merges))
    if side is not None:
        return 1 - side, "a slow path"
    side = only(lambda x: x.products)
    if side is not None:
        if kind == IDLE:
            return 1 - side, "products, of which a warp without rows has none"
        return side, "the products of the tile"
    if not one.products:
        side = only(lambda x: x.merges and not x.copies)
        if side is not None:
            if kind == MERGE:
                return side, "a range ends here"
            return 1 - side, "the merge of a range, which ends elsewhere"
    side = only(lambda x: x.copies)
    if side is not None:
        return side, "the load of the next tile, which there is"
    if one.copies and one.look_ups + one.divisions != other.look_ups + other.divisions:
        side = int(one.look_ups + one.divisions > other.look_ups + other.divisions)
        return side, "the way with fewer look-ups: a block has room for whole tiles"
    side = only(lambda x: x.look_ups or x.divisions)
    if side is not None:
        return side, "the address of a key that there is"
    if one.products and one.caps != other.caps:
        return int(one.caps > other.caps), "the way without a soft cap, which the model has none of"
    side = only(lambda x: x.masks)
    if side is not None:
        return 1 - side, "masks, which tiles inside of what a row sees do without"
    return None, ""


class _Walk:
    """Walks from the first instruction of a loop to its branch back."""

    def __init__(self, flow, header, body, kind, choices):
        self.flow, self.header, self.body, self.kind, self.choices = flow, header, body, kind, choices
        self.decisions = []
        self.load_regions = set()
        # Indices of the instructions from which the loop's first instruction can be reached again.
        self.returning = flow.leading_to(header, body)

    def path(self):
        indices = self._indices()
        instructions = self.flow.instructions
        return Path(
            header=self.header,
            body=frozenset(self.body),
            first_address=instructions[self.header].address,
            last_address=instructions[indices[-1]].address,
            trace=[instructions[index] for index in indices],
            decisions=self.decisions,
            loads=frozenset(place for place, index in enumerate(indices) if index in self.load_regions))

    def _indices(self):
        index, trace, seen = self.header, [], set()
        while True:
            if index in seen:
                raise SassError(f"{self.flow.function.name}: a loop inside of the main loop, at address "
                                f"{self.flow.instructions[index].address:#x}; how often it runs is not known")
            seen.add(index)
            trace.append(index)
            following = self._next(index)
            if following == self.header:
                return trace
            index = following

    def _next(self, index):
        following = self.flow.after[index]
        if len(following) == 1:
            return following[0]
        instruction = self.flow.instructions[index]
        through, target = following
        if instruction.address in self.choices:
            return self._decide(instruction, self.choices[instruction.address], "as given", following)
        staying = [other == self.header or other in self.returning for other in following]
        if staying.count(True) == 1:
            return self._decide(instruction, staying[1], "the other way leaves the loop", following)
        if target == self.header or through == self.header:
            # One of the branch's two sides goes straight back to the loop's beginning, like
            # `continue`.
            sides = [self._region(other, None) for other in following]
        else:
            sides = [self._region(through, target), self._region(target, through)]
        contents = [Contents([self.flow.instructions[one] for one in sorted(side)]) for side in sides]
        side, reason = preferred(*contents, self.kind)
        if side is None:
            raise UndecidedBranch(
                f"{self.flow.function.name}, address {instruction.address:#x}: no rule decides "
                f"'{instruction.predicate} {instruction.text}'. If it is not taken, {contents[0]} follow; if it is "
                f"taken, {contents[1]}. Say which way steady state takes: --take {instruction.address:#x} or "
                f"--skip {instruction.address:#x}")
        if contents[side].copies and not contents[1 - side].copies and not contents[side].products:
            self.load_regions |= sides[side]
        return self._decide(instruction, side == 1, reason, following)

    def _region(self, start, other):
        """Returns the indices from `start` to where the two sides of a branch meet."""
        own = self.flow.reachable(start, self.body, without=(self.header,))
        if other is None:
            return own
        return own - self.flow.reachable(other, self.body, without=(self.header,))

    def _decide(self, instruction, taken, reason, following):
        self.decisions.append(Decision(instruction.address, taken, reason))
        return following[1] if taken else following[0]


class _OutsideWalk:
    """Walks through what lies outside of the main loop. It passes each inner loop once, and takes the longer side where
    no rule decides."""

    def __init__(self, flow, within):
        self.flow, self.within = flow, within
        over = flow.dominators()
        self.after = [[other for other in following if not over[index] >> other & 1]
                      for index, following in enumerate(flow.after)]

    def trace(self, start, goals):
        """Returns the Instructions from `start` to the first of `goals` on the way, without that one."""
        leading = self._leading_to(goals)
        index, trace = start, []
        while index not in goals:
            trace.append(index)
            following = [other for other in self.after[index] if other in leading]
            if not following:
                raise SassError(f"{self.flow.function.name}, address {self.flow.instructions[index].address:#x}: no "
                                "path from here passes each loop once")
            if len(following) == 2:
                sides = [self._reachable(one, leading) for one in following]
                sides = [sides[0] - sides[1], sides[1] - sides[0]]
                contents = [Contents([self.flow.instructions[one] for one in sorted(side)]) for side in sides]
                side, _ = preferred(*contents, PLAIN)
                if side is None:
                    side = int(contents[1].instructions > contents[0].instructions)
                following = [following[side]]
            index = following[0]
        return [self.flow.instructions[one] for one in trace]

    def _reachable(self, start, within):
        seen, left = {start}, [start]
        while left:
            for other in self.after[left.pop()]:
                if other in within and other not in seen:
                    seen.add(other)
                    left.append(other)
        return seen

    def _leading_to(self, goals):
        before = [[] for _ in self.after]
        for index, following in enumerate(self.after):
            for other in following:
                before[other].append(index)
        seen, left = set(goals), list(goals)
        while left:
            for other in before[left.pop()]:
                if other in self.within and other not in seen:
                    seen.add(other)
                    left.append(other)
        return seen


def outside(function, path):
    """Returns two lists: the Instructions before a kernel's main loop, and those from there to its end."""
    flow = Flow(function)
    everything = set(range(len(flow.instructions)))
    ends = {index for index in everything
            if flow.instructions[index].opcode == "EXIT" and not flow.instructions[index].is_conditional}
    before = _OutsideWalk(flow, everything).trace(0, {path.header})
    exits = [other for index in sorted(path.body, reverse=True) for other in flow.after[index]
             if other not in path.body]
    if not exits:
        raise SassError(f"{function.name}: no instruction leaves its main loop")
    after = _OutsideWalk(flow, everything - path.body).trace(exits[0], ends)
    return before, after


def main_loops(flow, opcodes):
    """Returns the innermost loops that have all of `opcodes`, as {index of the first instruction: all indices}."""
    loops = {header: body for header, body in flow.loops().items()
             if {flow.instructions[index].opcode for index in body}.issuperset(opcodes)}
    return {header: body for header, body in loops.items()
            if not any(other < body for other in loops.values())}


def find_main_path(function, kind=PLAIN, choices=None, loop=None, opcodes=TILES):
    """Returns the Path of a kernel. `choices` is {address of a branch: whether it is taken}. `loop` is the address of the
    main loop's first instruction, where several loops qualify."""
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r}: one of {KINDS}")
    flow = Flow(function)
    loops, what = main_loops(flow, opcodes), " and ".join(opcodes)
    if not loops:
        raise SassError(f"{function.name} has no loop with {what} in it")
    addresses = {flow.instructions[header].address: header for header in loops}
    known = ", ".join(map(hex, sorted(addresses)))
    if loop is not None:
        if loop not in addresses:
            raise SassError(f"{function.name}: no loop with {what} begins at {loop:#x}; the loops begin at {known}")
        loops = {addresses[loop]: loops[addresses[loop]]}
    walks = [_Walk(flow, header, body, kind, choices or {}) for header, body in sorted(loops.items())]
    paths = [walk.path() for walk in walks]
    best = paths[0]
    for path in paths[1:]:
        side, reason = preferred(Contents(best.trace), Contents(path.trace), kind)
        if side is None:
            raise UndecidedBranch(f"{function.name} has {len(loops)} loops with {what}, at {known}, and no rule decides "
                                  "between them; say which one steady state takes: --loop ADDRESS")
        chosen = (best, path)[side]
        best = dataclasses.replace(chosen, decisions=[Decision(chosen.first_address, True, f"this loop: {reason}"),
                                                      *chosen.decisions])
    return best
