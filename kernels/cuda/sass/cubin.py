"""Reads registers and static shared memory of the kernels in a cubin, which is an ELF file."""
import dataclasses
import struct

from disassembly import SassError, kernel_name

_REGISTER_COUNT = 0x2f  # EIATTR_REGCOUNT; its value is a symbol and the number of its registers
_VALUE_OF_SIZE = 0x04  # format of attributes where two bytes of size come before the value


@dataclasses.dataclass(frozen=True)
class Use:
    registers: int  # per thread
    # Static shared memory of a thread block, including the 1,024 bytes that the system takes on
    # sm_90.
    shared_bytes: int


def resources(path):
    """Returns {kernel name: Use}."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return _resources(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise SassError(f"{path} is not a cubin: {error}") from error


def _resources(data):
    if data[:5] != b"\x7fELF\x02":
        raise struct.error("no 64-bit ELF file")
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3a)
    # A header holds name, type, flags, address, offset, size, link, info, alignment and entry size.
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + size * index) for index in range(count)]

    def string(table, at):
        begin = headers[table][4] + at
        return data[begin:data.index(b"\0", begin)].decode()

    symbols, registers, shared = [], {}, {}
    for header in headers:
        name, begin, length = string(names_index, header[0]), header[4], header[5]
        if header[1] == 2:  # this section is the symbol table
            symbols = [string(header[6], struct.unpack_from("<I", data, at)[0])
                       for at in range(begin, begin + length, 24)]
        elif name == ".nv.info":
            at = begin
            while at < begin + length:
                form, attribute, value_bytes = struct.unpack_from("<BBH", data, at)
                if form == _VALUE_OF_SIZE and attribute == _REGISTER_COUNT:
                    symbol, value = struct.unpack_from("<II", data, at + 4)
                    registers[symbol] = value
                at += 4 + (value_bytes if form == _VALUE_OF_SIZE else 0)
        elif name.startswith(".nv.shared."):
            shared[name[len(".nv.shared."):]] = length
    return {kernel_name(symbols[symbol]): Use(value, shared.get(symbols[symbol], 0))
            for symbol, value in registers.items()}
