#!/usr/bin/env python3
"""Writes format_goldens.txt: blocks of random bytes, and the values that the package gguf gives them. For development only.

    pip install gguf==0.17.1 numpy
    python make_format_goldens.py

Each line has the name of a format, the bytes of two blocks in hex, and the bits of their values as float32 in hex. Scales are
finite, and many integers are at the ends of their ranges.
"""
import pathlib

import gguf
import numpy

HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
BLOCKS = 2
LINES = 3


def main():
    random = numpy.random.default_rng(20261129)
    lines = []
    for name, halves in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        values, size = gguf.GGML_QUANT_SIZES[kind]
        for line in range(LINES):
            blocks = random.integers(0, 256, (BLOCKS, size), dtype=numpy.uint8)
            if line == 1:  # Ends of the ranges, and values of 0.
                blocks = random.choice(numpy.array([0, 0x0F, 0xF0, 0x80, 0x7F, 0x88, 0xFF], numpy.uint8), (BLOCKS, size))
            for at in halves:
                scales = random.normal(0, 0.05, BLOCKS).astype(numpy.float16)
                if line == 2:  # Subnormal ones, and negative zero.
                    scales = numpy.array([3e-7, -0.0], numpy.float16)
                blocks[:, at:at + 2] = scales.view(numpy.uint8).reshape(BLOCKS, 2)
            out = gguf.quants.dequantize(blocks.reshape(1, -1), kind).astype(numpy.float32).reshape(-1)
            assert out.size == BLOCKS * values
            lines.append(f"{name.lower()} {blocks.tobytes().hex()} {out.tobytes().hex()}\n")
    (pathlib.Path(__file__).parent / "format_goldens.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
