#!/usr/bin/env python3
"""Trains the small tokenisers in this folder and writes down what the reference makes of texts.

Needs the PyPI package `tokenizers` (made with 0.21.4). Writes
    corpus.jsonl          the texts of corpus.py, one JSON value a line: a string, or [string, times]
    NAME.tokenizer.json   a tokeniser
    NAME.golden.json      for each text its ids in the four modes, see below, and where it is not the text
                          itself what decoding the first of them gives
    NAME.fuzz.txt         for each random string two hashes: of its ids in the four modes, and of the text
                          of random ids; the strings and ids come from a generator that tokenizer_testdata.cc has too

The modes are (parse_special, add_special) = (0,0) (1,0) (0,1) (1,1). A mode that gives what an earlier one
gave holds that one's number in its place.

    make_goldens.py [--train] [--fuzz N] [--out DIR]
Without --train the tokenisers that are here are kept. Other folders and more random strings are for checking
by hand: point BATON_TOKENIZER_TESTDATA at the folder and run tokenizer_test.
"""
import argparse
import copy
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from corpus import CORPUS

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = [(False, False), (True, False), (False, True), (True, True)]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def expand(entry):
    return entry if isinstance(entry, str) else entry[0] * entry[1]


def byte_level(use_regex, add_prefix_space=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated", invert=False), byte_level(False)])


def train(pre_tokenizer, vocab, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False, min_frequency=1)
    # Every third text stays unseen, so that its words are not all tokens.
    tokenizer.train_from_iterator([expand(entry) for i, entry in enumerate(CORPUS) if i % 3], trainer)
    return tokenizer


def special(content, **flags):
    return AddedToken(content, special=True, normalized=False, **flags)


def make_gpt2():
    tokenizer = train(byte_level(True), 2000)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    data = json.loads(tokenizer.to_str())
    data["model"]["merges"] = [" ".join(merge) for merge in data["model"]["merges"]]  # the older spelling
    return data


def make_llama3():
    tokenizer = train(split_then_bytes(LLAMA3), 2000)
    names = ["begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1", "start_header_id",
             "end_header_id", "eom_id", "eot_id", "python_tag"] + ["reserved_special_token_%d" % i for i in range(2, 12)]
    tokenizer.add_special_tokens([special("<|%s|>" % name) for name in names])
    bos = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="%s $A" % bos, pair="%s $A %s $B:1" % (bos, bos),
                                      special_tokens=[(bos, tokenizer.token_to_id(bos))])])
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    # Words that no merges lead to, as that flag is for; they take the ids of the last ones.
    vocab = data["model"]["vocab"]
    words = ["ĠHello", "Ġmachine", "supercalifragilisticexpialidocious", "äºº", "ĠĠĠĠĠĠĠĠĠĠĠ", "aaaaaaaaaa", "!!!!"]
    products = [left + right for left, right in data["model"]["merges"]]
    for word in words:
        if word in vocab:
            continue
        last = products.pop()
        data["model"]["merges"].pop()
        vocab[word] = vocab.pop(last)
    return data


def make_qwen2():
    tokenizer = train(split_then_bytes(QWEN2), 2000, normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.add_special_tokens([special(c) for c in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]])
    tokenizer.add_tokens([AddedToken(c, normalized=False) for c in ["<tool_call>", "</tool_call>", "<think>", "</think>"]])
    return json.loads(tokenizer.to_str())


def make_o200k():
    tokenizer = train(split_then_bytes(O200K), 900)
    tokenizer.add_special_tokens([special("<|endoftext|>"), special("<|endofprompt|>")])
    return json.loads(tokenizer.to_str())


def make_flags():
    """What real files rarely have: every flag of added tokens, prefix spaces, BOS and EOS, Removed, String."""
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "removed", invert=True), pre_tokenizers.Split(Regex(r"(?<=[a-z])(?=[A-Z])|\p{Han}{2,3}+"), "isolated"),
        pre_tokenizers.Split("ing", "isolated"), pre_tokenizers.Split(Regex("^_"), "removed"),
        byte_level(True, add_prefix_space=True)])
    tokenizer = train(pre, 700, normalizers.Sequence([normalizers.NFC()]))
    tokenizer.add_special_tokens([special("<s>"), special("</s>"), AddedToken("[MASK]", special=True, lstrip=True, rstrip=True),
                                  special("[L]", lstrip=True), special("<abc>")])
    tokenizer.add_tokens([AddedToken("[R]", rstrip=True, normalized=False), AddedToken("word", single_word=True),
                          AddedToken("cafe\u0301"), AddedToken("<ab>"), AddedToken("<abcd>", normalized=False), AddedToken("é")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> <s> $A </s>", special_tokens=[
        (token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")])
    return json.loads(tokenizer.to_str())


MAKERS = {"gpt2": make_gpt2, "llama3": make_llama3, "qwen2": make_qwen2, "o200k": make_o200k, "flags": make_flags}


class Lcg:
    """Knuth's MMIX generator."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        return (self.state >> 33) % n


SNIPPETS = ["'s", "'T", "'re", "'LL", "'d", " the", "Hello", "ing", " word", "word", "<|endoftext|>", "<|im_start|>", "<|eot_id|>", "<think>", "<|",
            "|>", "<ab>", "<abc>", "[MASK]", "[L]", "[R]", "<s>", "\r\n", "\n\n", "    ", "...", "e\u0301", "\u1100\u1161", "\u0627\u0654", "\U0001f468\u200d\U0001f469",
            "\U0001f1e9\U0001f1ea", "\ufe0f", "123", "don't", "CamelCase", "\u4eba\u5de5", "\uac00\u11a7", "cafe\u0301"]
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


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--train", action="store_true")
    args.add_argument("--fuzz", type=int, default=1500)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--out", default=HERE)
    args = args.parse_args()
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "corpus.jsonl"), "w") as out:
        for entry in CORPUS:
            out.write(json.dumps(entry) + "\n")
    for name, make in MAKERS.items():
        path = os.path.join(args.out, name + ".tokenizer.json")
        if args.train:
            with open(path, "w") as out:
                json.dump(make(), out, ensure_ascii=False, separators=(",", ":"))
                out.write("\n")
        elif args.out != HERE:
            with open(os.path.join(HERE, name + ".tokenizer.json")) as kept, open(path, "w") as out:
                out.write(kept.read())
        tokenizer = Tokenizer.from_file(path)
        for token in json.load(open(path))["added_tokens"]:
            assert tokenizer.token_to_id(token["content"]) == token["id"], token
        golden = []
        for entry in CORPUS:
            modes = []
            for mode in MODES:
                ids = encode(tokenizer, expand(entry), mode)
                same = next((i for i, earlier in enumerate(modes) if earlier == ids), None)
                modes.append(ids if same is None else same)
            decoded = tokenizer.decode(modes[0], skip_special_tokens=False)
            golden.append({"ids": modes} if decoded == expand(entry) else {"ids": modes, "text": decoded})
        with open(os.path.join(args.out, name + ".golden.json"), "w") as out:
            out.write("[" + ",\n".join(json.dumps(g, separators=(",", ":")) for g in golden) + "]\n")
        vocab = max(tokenizer.get_vocab().values()) + 1
        rng = Lcg(args.seed)
        with open(os.path.join(args.out, name + ".fuzz.txt"), "w") as out:
            out.write("%d %d\n" % (args.seed, args.fuzz))
            for _ in range(args.fuzz):
                text = random_text(rng)
                ids_hash = FNV_START
                for mode in MODES:
                    for token in encode(tokenizer, text, mode) + [0xFFFFFFFF]:
                        ids_hash = fnv(ids_hash, token.to_bytes(4, "little"))
                ids = [rng.below(vocab + 3) for _ in range(rng.below(30))]
                text_hash = FNV_START
                for skip in (False, True):
                    text_hash = fnv(text_hash, tokenizer.decode(ids, skip_special_tokens=skip).encode() + b"\xff")
                out.write("%08x %08x\n" % (ids_hash >> 32, text_hash >> 32))


if __name__ == "__main__":
    main()
