"""Reads the machine code (SASS) of a cubin: runs nvdisasm and parses what `nvdisasm -hex` prints.

Every instruction of sm_70 and newer has 128 bits. The upper 64 hold, from bit 41 on, what the compiler tells the
scheduler of warps:

    bits      field
    41 - 44   stall: cycles until the next instruction of this warp may issue
    45        yield: 0 asks the scheduler to prefer another warp
    46 - 48   write barrier: scoreboard released when the result is written; 7 means none
    49 - 51   read barrier: scoreboard released when the operands have been read; 7 means none
    52 - 57   wait mask: scoreboards that must be free before this instruction issues
"""
import dataclasses
import os
import re
import shutil
import subprocess

NO_BARRIER = 7

_SECTION = re.compile(r"^\s*\.section\s+(\S+?),")
_LABEL = re.compile(r"^\s*([.$\w]+):\s*$")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_UPPER_HALF = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/\s*$")
_TARGET = re.compile(r"`\((.+?)\)")


class SassError(Exception):
    """An error that a user can correct, such as a missing program or machine code that no rule describes."""


@dataclasses.dataclass(frozen=True)
class Instruction:
    address: int
    text: str  # opcode and operands, without the predicate
    predicate: str  # "@P0", "@!UP1", or "" for none
    stall: int
    yields: bool
    write_barrier: int
    read_barrier: int
    wait_mask: int

    @property
    def name(self):
        """The opcode with its modifiers, such as LDSM.16.M88.4."""
        return self.text.split(None, 1)[0]

    @property
    def opcode(self):
        """The opcode without modifiers, such as LDSM."""
        return self.name.split(".", 1)[0]

    @property
    def target(self):
        """The label that a branch or call names, or None."""
        match = _TARGET.search(self.text)
        return match[1] if match else None

    @property
    def is_never_executed(self):
        return self.predicate in ("@!PT", "@!UPT")

    @property
    def is_conditional(self):
        """Whether it has a predicate: before the opcode, or among the operands, as in `BRA P1, target`."""
        operands = self.text.split(None, 1)[1:]
        return (self.predicate not in ("", "@PT", "@UPT")
                or bool(operands and re.match(r"!?U?P\d\b", operands[0])))

    def waits(self):
        """Returns the numbers of the scoreboards that the instruction waits for."""
        return [number for number in range(6) if self.wait_mask >> number & 1]


@dataclasses.dataclass(frozen=True)
class Function:
    symbol: str
    instructions: list
    labels: dict  # from a label to the index of the instruction after it

    @property
    def name(self):
        """The kernel's name in the source, or the symbol where it is none of our kernels."""
        return kernel_name(self.symbol)


def kernel_name(symbol):
    """Returns split_attention_64 for _ZN5baton12cuda_kernels25split_attention_64_deviceENS_...E."""
    for match in re.finditer(r"\d+(?=[A-Za-z_])", symbol):
        word = symbol[match.end():match.end() + int(match[0])]
        if len(word) == int(match[0]) and word.endswith("_device"):
            return word[:-len("_device")]
    return symbol


def decode(address, text, upper):
    """Returns the Instruction of this text and of the upper 64 of its 128 bits."""
    predicate = ""
    if text.startswith("@"):
        predicate, text = text.split(None, 1)
    control = upper >> 41
    return Instruction(
        address=address,
        text=text,
        predicate=predicate,
        stall=control & 0xf,
        yields=not control >> 4 & 1,
        write_barrier=control >> 5 & 7,
        read_barrier=control >> 8 & 7,
        wait_mask=control >> 11 & 0x3f)


def parse(listing):
    """Returns {kernel name: Function} for what `nvdisasm -hex` printed."""
    functions = {}
    function = None
    pending = None  # address and text of the instruction whose upper half is on the next line
    for line in listing.splitlines():
        section = _SECTION.match(line)
        if section:
            function = None
            if section[1].startswith(".text."):
                function = Function(section[1][len(".text."):], [], {})
                functions[function.name] = function
            continue
        if function is None:
            continue
        if pending:
            upper = _UPPER_HALF.match(line)
            if not upper:
                raise SassError(f"address {pending[0]:#x} of {function.name}: the upper half of the instruction is "
                                "missing; the listing must be of `nvdisasm -hex`")
            function.instructions.append(decode(*pending, int(upper[1], 16)))
            pending = None
            continue
        instruction = _INSTRUCTION.match(line)
        if instruction:
            pending = int(instruction[1], 16), instruction[2]
            continue
        label = _LABEL.match(line)
        if label:
            function.labels[label[1]] = len(function.instructions)
    if not any(function.instructions for function in functions.values()):
        raise SassError("the listing has no instructions with their encoding; it must be of `nvdisasm -hex`")
    return functions


def find_nvdisasm(given=None):
    """Returns the path of nvdisasm: the given one, else the one on PATH, else the one in CUDA's folder. Where there is
    none it raises SassError, which says how to get one."""
    if given:
        if os.access(given, os.X_OK) and os.path.isfile(given):
            return given
        raise SassError(f"--nvdisasm {given}: no such program")
    cuda = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = shutil.which("nvdisasm") or shutil.which("nvdisasm", path=os.path.join(cuda, "bin"))
    if found:
        return found
    raise SassError(f"there is no nvdisasm on PATH or in {cuda}/bin: install CUDA's nvdisasm package, or unpack "
                    "`pip download --no-deps triton` and give --nvdisasm .../triton/backends/nvidia/bin/nvdisasm")


def disassemble(cubin, nvdisasm):
    """Returns {kernel name: Function} for a cubin."""
    result = subprocess.run([nvdisasm, "-hex", os.fspath(cubin)], capture_output=True, text=True, check=False)
    if result.returncode:
        raise SassError(f"{nvdisasm} -hex {cubin}: {result.stderr.strip() or f'exit status {result.returncode}'}")
    return parse(result.stdout)
