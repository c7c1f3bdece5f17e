#!/usr/bin/env python3
"""Writes newer_characters.inc: the characters newer than Unicode 14 that the reference's regex engine knows.

Needs the `tokenizers` package, and a Python whose unicodedata is of Unicode 14 (3.11):
    python3 make_newer_characters.py > ../newer_characters.inc
"""
import sys
import unicodedata

from tokenizers import Regex, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co").split()
# Scripts that onig_pattern.cc supports.
SCRIPTS = ("Arabic Armenian Bengali Bopomofo Cyrillic Devanagari Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew "
           "Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Oriya Sinhala Tamil Telugu Thai "
           "Tibetan").split()
assert unicodedata.unidata_version.startswith("14.")
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def members(prop):
    """Returns all characters that the reference's \\p{prop} matches."""
    keep = pre_tokenizers.Split(Regex(r"\p{%s}" % prop), "removed", invert=True)
    found = set()
    for begin in range(0, len(CODES), 5000):
        text = "".join(map(chr, CODES[begin:begin + 5000]))
        for piece, _ in keep.pre_tokenize_str(text):
            found.update(map(ord, piece))
    return found


script_of = {code: script for script in SCRIPTS for code in members(script)}


def kind(category, code):
    return category, len(chr(code).encode()), script_of.get(code)


newer, stand_ins = {}, {}
for category in CATEGORIES:
    theirs = members(category)
    ours = {c for c in CODES if unicodedata.category(chr(c)) == category}
    for code in theirs - ours:
        newer[code] = category
    for code in sorted(ours & theirs):
        stand_ins.setdefault(kind(category, code), code)

ranges = []
for code in sorted(newer):
    category, size, script = kind(newer[code], code)
    # If no older character has the same script, any one of the same category and UTF-8 length is
    # taken.
    stand_in = stand_ins.get((category, size, script)) or stand_ins[category, size, None]
    if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == stand_in:
        ranges[-1][1] = code
    else:
        ranges.append([code, code, stand_in])
    if (category, size, script) not in stand_ins:
        print("no stand-in of its script: U+%04X %s %s" % (code, category, script), file=sys.stderr)
print("// Made by testdata/make_newer_characters.py: first, last, stand-in.")
for first, last, stand_in in ranges:
    print("{0x%X, 0x%X, 0x%X}," % (first, last, stand_in))
