"""Makes the small tokenisers of this folder, in every form that the supported families publish.

    gpt2            GPT-2: ByteLevel alone, merges as "a b"
    llama3          Llama 3: Split and ByteLevel, ignore_merges, template
    qwen2           Qwen 2, 2.5 and 3: the same with NFC
    o200k           o200k (GPT-4o)
    tekken          Mistral Nemo
    deepseek        DeepSeek V2 and later: three Splits
    deepseek_coder  DeepSeek LLM and Coder: six Splits and Digits
    smollm          SmolLM and SmolLM2: Digits before ByteLevel's own pattern; 21 bytes have no token
    falcon          Falcon: Punctuation, and steps after ByteLevel
    llama2          Llama 2, Mistral 0.1: Prepend and Replace, byte fallback, decoder chain; and a merge across a space
    phi3            Phi-3: the same with added tokens that include the space after them
    mistral3        Mistral 0.3: Metaspace only before the first word, no splitting
    gemma           Gemma: Replace, Split of " " merged with what is before it
    metaspace       older files: Metaspace that splits, NFKC, no byte fallback, unknown tokens one by one
    flags           byte level with what real files rarely have: every flag of added tokens, Removed, String
    flags_text      the same without byte level: Replace of a Regex, NFD, Strip, some byte tokens, Fuse missing
"""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from corpus import CORPUS, expand

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"]
DEEPSEEK_CODER = [r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͷ-ώА-ҁ]+", r"\s?\p{P}+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+"]
TEKKEN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


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
    # Every third text is left out of the training, so that not all of its words are tokens.
    tokenizer.train_from_iterator([expand(entry) for i, entry in enumerate(CORPUS) if i % 3], trainer)
    return tokenizer


def special(content, **flags):
    return AddedToken(content, special=True, normalized=False, **flags)


def make_gpt2():
    tokenizer = train(byte_level(True), 2000)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    data = json.loads(tokenizer.to_str())
    # Writes each merge as one string, "left right", as older tokenizer.json files do.
    data["model"]["merges"] = [" ".join(merge) for merge in data["model"]["merges"]]
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
    # Adds words that no merges lead to: only ignore_merges makes them tokens. They take the ids of
    # the last merged tokens.
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
    """Returns a tokeniser with features that are rare in real files: every flag of added tokens, prefix spaces,
    BOS and EOS, Removed, String."""
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


def make_tekken():
    tokenizer = train(split_then_bytes(TEKKEN), 900)
    tokenizer.add_special_tokens([special(c) for c in ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]"]])
    tokenizer.post_processor = template(tokenizer, "<s> $A")
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    return data


def splits(patterns):
    return [pre_tokenizers.Split(Regex(pattern), "isolated", invert=False) for pattern in patterns]


def make_deepseek():
    pre = pre_tokenizers.Sequence(splits(DEEPSEEK) + [byte_level(False)])
    tokenizer = train(pre, 900, normalizers.Sequence([]))
    tokenizer.add_special_tokens([special("<｜begin▁of▁sentence｜>"), special("<｜end▁of▁sentence｜>"), AddedToken("<｜EOT｜>", normalized=True, special=True)])
    tokenizer.add_tokens([AddedToken("<｜User｜>", normalized=False), AddedToken("<think>", normalized=True)])
    tokenizer.post_processor = template(tokenizer, "<｜begin▁of▁sentence｜> $A")
    return json.loads(tokenizer.to_str())


def make_deepseek_coder():
    pre = pre_tokenizers.Sequence(splits(DEEPSEEK_CODER) + [pre_tokenizers.Digits(individual_digits=True), byte_level(False)])
    tokenizer = train(pre, 700, normalizers.Sequence([]))
    tokenizer.add_special_tokens([special("<｜begin▁of▁sentence｜>"), special("<|EOT|>")])
    tokenizer.post_processor = template(tokenizer, "<｜begin▁of▁sentence｜> $A")
    return json.loads(tokenizer.to_str())


# The bytes that the vocabularies of SmolLM and SmolLM2 lack.
SMOLLM_LACKS = [0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)]


def make_smollm():
    tokenizer = train(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]), 700)
    data = json.loads(tokenizer.to_str())
    # ByteLevel's alphabet has a letter for each byte: the byte's own, or U+0100 and up for those that have none.
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    lacking = {chr(byte if byte in own else 0x100 + others.index(byte)) for byte in SMOLLM_LACKS}
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
    kept = [token for token in data["model"]["vocab"] if not lacking & set(token)]
    data["model"]["vocab"] = {token: i for i, token in enumerate(names + kept)}
    data["model"]["merges"] = [" ".join(merge) for merge in data["model"]["merges"] if not lacking & set("".join(merge))]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens([special(name) for name in names])
    # The published files write each merge as one string.
    return {**json.loads(tokenizer.to_str()), "model": data["model"]}


def make_falcon():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), byte_level(True), pre_tokenizers.Digits(individual_digits=False),
                                   pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated", invert=False)])
    tokenizer = train(pre, 700)
    tokenizer.add_special_tokens([special("<|endoftext|>"), special(">>TITLE<<")])
    return json.loads(tokenizer.to_str())


def template(tokenizer, single):
    names = {name for name in single.split() if name != "$A"}
    return processors.TemplateProcessing(single=single, special_tokens=[(name, tokenizer.token_to_id(name)) for name in sorted(names)])


BYTES = ["<0x%02X>" % byte for byte in range(256)]
SPACE_TO_MARK = normalizers.Replace(" ", "▁")
LLAMA2_DECODER = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def sentencepiece(vocab, alphabet, special_tokens, byte_tokens=BYTES, across=()):
    """Returns a tokeniser whose vocabulary has the order of SentencePiece files: control tokens, bytes, results of
    merges, characters.
    `across` has merges that join the results of other merges across a space; training gives no such merges."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator([expand(entry) for i, entry in enumerate(CORPUS) if i % 3], trainers.BpeTrainer(
        vocab_size=vocab, limit_alphabet=alphabet, initial_alphabet=["▁", "f", "h"], show_progress=False))
    model = json.loads(trained.to_str())["model"]
    merges = model["merges"] + [list(pair) for pair in across]
    made = [left + right for left, right in merges]
    characters = [token for token in model["vocab"] if token not in made]
    tokens = special_tokens + byte_tokens + made + characters
    return Tokenizer(models.BPE({token: i for i, token in enumerate(dict.fromkeys(tokens))}, [tuple(pair) for pair in merges],
                                unk_token=special_tokens[0], fuse_unk=True, byte_fallback=True))


def make_llama2():
    tokenizer = sentencepiece(600, 90, ["<unk>", "<s>", "</s>"], across=[("▁of", "▁the"), ("▁of▁the", "▁"), ("e", "▁")])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), SPACE_TO_MARK])
    tokenizer.decoder = decoders.Sequence(LLAMA2_DECODER)
    tokenizer.add_special_tokens([special(c) for c in ["<unk>", "<s>", "</s>"]])
    tokenizer.post_processor = template(tokenizer, "<s> $A")
    data = json.loads(tokenizer.to_str())
    # Writes each merge as one string, "left right", as older tokenizer.json files do.
    data["model"]["merges"] = [" ".join(merge) for merge in data["model"]["merges"]]
    return data


def make_phi3():
    tokenizer = sentencepiece(500, 90, ["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), SPACE_TO_MARK])
    tokenizer.decoder = decoders.Sequence(LLAMA2_DECODER)
    tokenizer.add_special_tokens([special("<unk>"), special("<s>"), AddedToken("</s>", rstrip=True, normalized=False, special=False)])
    tokenizer.add_special_tokens([special(c, rstrip=True) for c in ["<|assistant|>", "<|user|>", "<|end|>"]] + [special("<|endoftext|>")])
    tokenizer.add_tokens([AddedToken("word", normalized=True), AddedToken("the end", normalized=True, single_word=True)])
    tokenizer.post_processor = template(tokenizer, "<s> $A")
    return json.loads(tokenizer.to_str())


def make_mistral3():
    tokenizer = sentencepiece(500, 90, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], across=[("e", "▁"), ("▁of", "▁the")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(LLAMA2_DECODER)
    tokenizer.add_special_tokens([special(c) for c in ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]])
    tokenizer.add_tokens([AddedToken("cafe", normalized=True)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), template(tokenizer, "<s> $A")])
    return json.loads(tokenizer.to_str())


def make_gemma():
    tokenizer = sentencepiece(500, 90, ["<pad>", "<eos>", "<bos>", "<unk>"], across=[("e", "▁"), ("▁", "▁")])
    data = json.loads(tokenizer.to_str())
    data["model"]["unk_token"] = "<unk>"
    data["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    data["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoders.Sequence(LLAMA2_DECODER[:3])
    tokenizer.add_special_tokens([special(c) for c in ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]])
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=True)])
    tokenizer.post_processor = template(tokenizer, "<bos> $A")
    return json.loads(tokenizer.to_str())


def make_metaspace():
    tokenizer = sentencepiece(500, 90, ["<unk>", "<s>", "</s>"], byte_tokens=[])
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([special(c) for c in ["<unk>", "<s>", "</s>"]])
    tokenizer.post_processor = template(tokenizer, "$A </s>")
    data = json.loads(tokenizer.to_str())
    data["model"].update(fuse_unk=False, byte_fallback=False)
    for step in "pre_tokenizer", "decoder":  # the form of older files
        data[step] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    return data


def make_flags_text():
    # Leaves out the tokens of some bytes. So byte fallback works for some characters and not for
    # others.
    some = [token for i, token in enumerate(BYTES) if i < 0xE3 or i % 5 == 0]
    tokenizer = sentencepiece(500, 60, ["?", "<s>", "</s>"], byte_tokens=some, across=[("?", "?"), ("<0xC3>", "<0xA9>"), ("e", "▁")])
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Strip(left=True, right=False), normalizers.NFD(), normalizers.Replace(Regex(r"(\d)(?=\d)|'"), "."),
        normalizers.Replace("...", ""), normalizers.Prepend("x ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[.!?]+|x*"), "merged_with_next"), pre_tokenizers.Split("-", "contiguous"),
        pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Metaspace(prepend_scheme="always", split=True),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[A-Z]"), "merged_with_next", invert=True),
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("ing|q"), "removed")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Metaspace(), decoders.Strip("e", 1, 0), decoders.ByteFallback(), decoders.Replace("the", "(the)"),
        decoders.Metaspace(replacement="o", prepend_scheme="first")])
    tokenizer.add_special_tokens([special("<s>", lstrip=True), special("</s>", single_word=True)])
    tokenizer.add_tokens([AddedToken("word", normalized=True), AddedToken("<ab>", rstrip=True, normalized=False)])
    tokenizer.post_processor = template(tokenizer, "$A <s> </s>")
    return json.loads(tokenizer.to_str())


MAKERS = {"gpt2": make_gpt2, "llama3": make_llama3, "qwen2": make_qwen2, "o200k": make_o200k, "tekken": make_tekken,
          "deepseek": make_deepseek, "deepseek_coder": make_deepseek_coder, "smollm": make_smollm, "falcon": make_falcon,
          "llama2": make_llama2, "phi3": make_phi3, "mistral3": make_mistral3, "gemma": make_gemma, "metaspace": make_metaspace,
          "flags": make_flags, "flags_text": make_flags_text}
