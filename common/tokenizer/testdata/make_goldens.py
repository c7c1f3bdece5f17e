#!/usr/bin/env python3
"""Trains the small tokenisers in this folder, and writes the ids that the reference gives for texts.

Needs the PyPI package `tokenizers` (made with 0.22.2). Writes
    corpus.jsonl          the texts of corpus.py, one JSON value a line: a string, or [string, times]
    NAME.tokenizer.json   a tokeniser, see forms.py
    NAME.golden.json      for each text: its ids in the four modes (see below), and the text that decoding the
                          ids of the first mode gives, if it differs from the text itself
    NAME.fuzz.txt         seed, number of random strings, and strings per line; then two hashes for each line of
                          strings: one of their ids in the four modes, and one of the texts of ids that are random,
                          or taken from those ids and changed. The strings and random ids come from a generator
                          that tokenizer_testdata.cc has too
    characters.txt        for each normaliser and class of characters, a hash for every 4096 characters

The modes are (parse_special, add_special) = (0,0) (1,0) (0,1) (1,1). If a mode gives the ids of an
earlier mode with other ids before and after them, it is written as [number of that mode, [before], [after]].

    make_goldens.py [--train] [--fuzz N] [--strings-a-line N] [--seed N] [--out DIR] [--only NAME,NAME]
                    [--add NAME=TOKENIZER.JSON]
Without --train, the existing tokenisers are kept. Other folders and seeds, and more random strings, are for
checks by hand. So is --add, for files of real size: point BATON_TOKENIZER_TESTDATA at the folder and
BATON_TOKENIZERS at the names, and run tokenizer_test --gtest_filter='*/GoldenTest.*'.
"""
import argparse
import json
import os
import shutil

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from corpus import CORPUS, expand
from forms import MAKERS

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = [(False, False), (True, False), (False, True), (True, True)]


class Lcg:
    """A generator of random numbers: Knuth's MMIX."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        return (self.state >> 33) % n


SNIPPETS = ["'s", "'T", "'re", "'LL", "'d", " the", "Hello", "ing", " word", "word", "<|endoftext|>", "<|im_start|>", "<|eot_id|>", "<think>", "<|",
            "|>", "<ab>", "<abc>", "[MASK]", "[L]", "[R]", "<s>", "\r\n", "\n\n", "    ", "...", "e\u0301", "\u1100\u1161", "\u0627\u0654", "\U0001f468\u200d\U0001f469",
            "\U0001f1e9\U0001f1ea", "\ufe0f", "123", "don't", "CamelCase", "\u4eba\u5de5", "\uac00\u11a7", "cafe\u0301",
            "\u2581", "\u2581the", "<0x41>", "<unk>", "</s>", "[INST]", "<|end|>", "<\uff5cEOT\uff5c>", " of the", "  ", "\u3000", "\ufb01", "\u2460"]
SPACES = [0x20, 0x20, 0x20, 0x0A, 0x0A, 0x0D, 0x09, 0x0B, 0x0C, 0x85, 0xA0, 0x1680, 0x180E, 0x2003, 0x200A, 0x200B, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
RANGES = [(0x80, 0x2FF), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x2BFF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0x1100, 0x11FF), (0xAC00, 0xD7A3),
          (0xE000, 0xFFFF), (0x800, 0xD7FF), (0x10000, 0x1FFFF), (0x1F300, 0x1FAFF), (0x20000, 0x323AF), (0x10000, 0x10FFFF), (0x1AB0, 0x1AFF), (0x590, 0x8FF)]


def random_text(rng):
    text = ""
    for _ in range(rng.below(40)):
        kind = rng.below(10)
        if kind < 3:
            text += chr(0x20 + rng.below(0x5F))
        elif kind == 3:
            text += chr(SPACES[rng.below(len(SPACES))])
        elif kind == 4:
            text += SNIPPETS[rng.below(len(SNIPPETS))]
        elif kind == 5:
            text += chr(0x30 + rng.below(10))
        elif kind == 6:
            text += chr(rng.below(0x80))
        elif kind == 7 and text:
            text += text[-1] * (1 + rng.below(8))
        else:
            first, last = RANGES[rng.below(len(RANGES))]
            text += chr(first + rng.below(last - first + 1))
    return text


def fnv(hash_value, data):
    for byte in data:
        hash_value = ((hash_value ^ byte) * 0x100000001B3) & (2**64 - 1)
    return hash_value


FNV_START = 0xCBF29CE484222325


def encode(tokenizer, text, mode):
    parse_special, add_special = mode
    tokenizer.encode_special_tokens = not parse_special
    return tokenizer.encode(text, add_special_tokens=add_special).ids


def hash_texts(hash_value, texts):
    for text in texts:
        hash_value = fnv(hash_value, text.encode() + b"\xff")
    return hash_value


def changed(rng, ids, vocab):
    """Returns `ids` with a few of them left out or replaced, or with a few others added."""
    for _ in range(rng.below(4)):
        at = rng.below(len(ids) + 1)
        kind = rng.below(3)
        other = [rng.below(vocab + 3)]
        ids = ids[:at] + (other if kind else []) + ids[at + (kind < 2):]
    return ids


def write_fuzz(tokenizer, vocab, path, args):
    rng = Lcg(args.seed)
    with open(path, "w") as out:
        out.write("%d %d %d\n" % (args.seed, args.fuzz, args.strings_a_line))
        ids_hash = text_hash = FNV_START
        for i in range(args.fuzz):
            text = random_text(rng)
            for mode in MODES:
                ids = encode(tokenizer, text, mode)
                for token in ids + [0xFFFFFFFF]:
                    ids_hash = fnv(ids_hash, token.to_bytes(4, "little"))
            drawn = [rng.below(vocab + 3) for _ in range(rng.below(30))]
            for answer in drawn, changed(rng, ids, vocab):
                text_hash = hash_texts(text_hash, [tokenizer.decode(answer, skip_special_tokens=skip) for skip in (False, True)])
            if (i + 1) % args.strings_a_line == 0 or i + 1 == args.fuzz:
                out.write("%08x %08x\n" % (ids_hash >> 32, text_hash >> 32))
                ids_hash = text_hash = FNV_START


def within(earlier, number, ids):
    for at in range(min(4, len(ids) - len(earlier) + 1)):
        if ids[at:at + len(earlier)] == earlier and len(ids) - len(earlier) < 5:
            return [number, ids[:at], ids[at + len(earlier):]]
    return None


def write_golden(tokenizer, path):
    golden = []
    for entry in CORPUS:
        modes = []
        for mode in MODES:
            ids = encode(tokenizer, expand(entry), mode)
            modes.append(ids)
        written = [next((short for j, earlier in enumerate(modes[:i]) if (short := within(earlier, j, ids))), ids) for i, ids in enumerate(modes)]
        decoded = tokenizer.decode(modes[0], skip_special_tokens=False)
        golden.append({"ids": written} if decoded == expand(entry) else {"ids": written, "text": decoded})
    with open(path, "w") as out:
        out.write("[" + ",\n".join(json.dumps(g, separators=(",", ":")) for g in golden) + "]\n")


CHARACTER_FUNCTIONS = {
    "NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD(),
    "Strip": normalizers.Strip(), "Digits": pre_tokenizers.Digits(individual_digits=True),
    "Punctuation": pre_tokenizers.Punctuation(behavior="isolated"), "WhitespaceSplit": pre_tokenizers.WhitespaceSplit()}


def write_characters(path):
    """Writes hashes of the results of each function for every character, in the planes that have characters."""
    with open(path, "w") as out:
        for name, function in CHARACTER_FUNCTIONS.items():
            for first in [*range(0, 0x40000, 0x1000), *range(0xE0000, 0xF0000, 0x1000)]:
                value = FNV_START
                for code in range(first, first + 0x1000):
                    if 0xD800 <= code < 0xE000:
                        continue
                    c = chr(code)
                    if hasattr(function, "normalize_str"):
                        value = hash_texts(value, [function.normalize_str("%sa%s\u0301\u0323%s" % (c, c, c))])
                    else:
                        value = hash_texts(value, [piece for piece, _ in function.pre_tokenize_str("a%sa%s" % (c, c))])
                out.write("%s %x %08x\n" % (name, first, value >> 32))


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--train", action="store_true")
    args.add_argument("--fuzz", type=int, default=10000)
    args.add_argument("--strings-a-line", type=int, default=50)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--out", default=HERE)
    args.add_argument("--only", default="")
    args.add_argument("--add", action="append", default=[])
    args = args.parse_args()
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "corpus.jsonl"), "w") as out:
        for entry in CORPUS:
            out.write(json.dumps(entry) + "\n")
    added = dict(pair.split("=", 1) for pair in args.add)
    names = args.only.split(",") if args.only else list(added) or list(MAKERS)
    if not args.only and not added:
        write_characters(os.path.join(args.out, "characters.txt"))
    for name in names:
        path = os.path.join(args.out, name + ".tokenizer.json")
        if args.train:
            with open(path, "w") as out:
                json.dump(MAKERS[name](), out, ensure_ascii=False, separators=(",", ":"))
                out.write("\n")
        elif args.out != HERE:
            shutil.copyfile(added.get(name, os.path.join(HERE, name + ".tokenizer.json")), path)
        tokenizer = Tokenizer.from_file(path)
        for token in json.load(open(path))["added_tokens"]:
            assert tokenizer.token_to_id(token["content"]) == token["id"], token
        write_golden(tokenizer, os.path.join(args.out, name + ".golden.json"))
        vocab = max(tokenizer.get_vocab().values()) + 1
        write_fuzz(tokenizer, vocab, os.path.join(args.out, name + ".fuzz.txt"), args)


if __name__ == "__main__":
    main()
