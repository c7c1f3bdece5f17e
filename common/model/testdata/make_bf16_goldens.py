#!/usr/bin/env python3
"""Makes bf16_goldens.json: how far the logits of transformers in bfloat16 are from those in float32.

    python3 make_bf16_goldens.py           with torch 2.5.1 and transformers 5.2.0

The models are the shapes of make_goldens.py whose matrices are bf16, with weights from all seeds in SEEDS; no seed was
left out because of its result. The limits of the test were set with seeds 1 to 10, before these seeds were chosen.
Weights and prompts come from a counter (see noise), so that the test can make the same folders and the repository
does not hold them. The file has, for each seed, the logits of float32 at some positions, and the largest absolute
difference between them and the logits of the same model with `dtype=bfloat16`. Both use eager attention.

"trained" holds the same for common/model/demo, for prompts with their greedy answers from its golden.json. Of the
logits of a position, it holds every EVERY-th.
"""

import json
import math
import pathlib

import numpy
import torch
import transformers

import make_goldens

HERE = pathlib.Path(__file__).parent
SEEDS = list(range(11, 21))
EVERY = 16
MASK = (1 << 64) - 1
TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def hash_of(text):
    """Returns the 64-bit FNV-1a hash."""
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 & MASK
    return value


def draws(stream, count):
    """Returns numbers of SplitMix64, whose state begins as the hash of the stream's name."""
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(hash_of(stream)) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
        return z ^ (z >> numpy.uint64(31))


def noise(stream, count):
    """Returns nearly normal values of variance 1: each is the sum of the four 16-bit parts of a number."""
    z, total = draws(stream, count), numpy.zeros(count, dtype=numpy.int64)
    for shift in (0, 16, 32, 48):
        total += (z >> numpy.uint64(shift) & numpy.uint64(0xffff)).astype(numpy.int64)
    return (total - 131070).astype(numpy.float32) * numpy.float32(1 / 37837)


def table_of(model, types, tied):
    """Returns [name, type, shape, offset, scale] of every tensor, with the values of make_goldens.randomise."""
    rows = []
    for name, parameter in model.named_parameters():
        shape = list(parameter.shape)
        stored = types[2] if "embed_tokens" in name else types[0 if parameter.dim() == 2 else 1]
        offset, scale = 0.0, 1.0
        if "norm" in name:
            offset, scale = 1.0, 0.2
        elif name.endswith("bias"):
            scale = 0.3
        elif "embed_tokens" in name:
            scale = 0.1 if tied else 0.5
        else:
            sharp = "q_proj" in name or "k_proj" in name or "qkv_proj" in name
            scale = (1.5 if sharp else 1.0) / math.sqrt(shape[1])
        rows.append([name, TYPES[stored], shape, offset, float(numpy.float32(scale))])
    return rows


def fill(model, table, seed):
    parameters = dict(model.named_parameters())
    for name, stored, shape, offset, scale in table:
        values = noise(f"{seed}/{name}", math.prod(shape)) * numpy.float32(scale) + numpy.float32(offset)
        tensor = torch.from_numpy(values).reshape(shape)
        parameters[name].data = tensor.to(torch.bfloat16).float() if stored == "BF16" else tensor
    model.tie_weights()


def short(values):
    return [float(f"{v:.5g}") for v in values.tolist()]


def distance(narrow, exact):
    return {"bfloat16_error": float(f"{(narrow - exact).abs().max():.6g}")}


@torch.no_grad()
def random_model(name, family, types, prompt_tokens, sizes):
    config = make_goldens.configure(family, sizes)
    new = getattr(transformers, family + "ForCausalLM")
    table = table_of(new(config), types, config.tie_word_embeddings)
    positions = [prompt_tokens // 4, prompt_tokens // 2, prompt_tokens * 3 // 4, prompt_tokens - 1]
    entry = {"shape_of": name, "config": json.loads(config.to_json_string()), "tensors": table, "prompt_tokens": prompt_tokens,
             "positions": positions, "runs": []}
    for seed in SEEDS:
        prompt = (draws(f"{seed}/prompt", prompt_tokens) % numpy.uint64(config.vocab_size)).astype(numpy.int64)
        logits = {}
        for dtype in (torch.float32, torch.bfloat16):
            model = new(config).eval()
            fill(model, table, seed)
            # Buffers stay in float32, because from_pretrained leaves rotary frequencies in float32
            # too.
            for parameter in model.parameters():
                parameter.data = parameter.data.to(dtype)
            logits[dtype] = model(torch.from_numpy(prompt)[None], use_cache=False).logits[0, positions].float()
        exact = logits[torch.float32]
        entry["runs"].append({"seed": seed, **distance(logits[torch.bfloat16], exact), "logits": [short(row) for row in exact]})
        print(f"{name}, seed {seed}: largest {exact.abs().max():.3f}, bfloat16 off by {entry['runs'][-1]['bfloat16_error']}")
    return entry


@torch.no_grad()
def trained_model(folder):
    golden = json.loads((folder / "golden.json").read_text())
    load = transformers.AutoModelForCausalLM.from_pretrained
    models = {dtype: load(folder, dtype=dtype, attn_implementation="eager").eval() for dtype in (torch.float32, torch.bfloat16)}
    runs = []
    for case in golden["cases"]:
        ids = case["ids"] + case["greedy"]
        positions = [len(case["ids"]) - 1, len(case["ids"]) + 15, len(ids) - 1]
        exact, narrow = (models[dtype](torch.tensor([ids]), use_cache=False).logits[0, positions].float()
                         for dtype in (torch.float32, torch.bfloat16))
        runs.append({"ids": ids, "positions": positions, "largest": float(f"{exact.abs().max():.6g}"),
                     **distance(narrow[:, ::EVERY], exact[:, ::EVERY]), "logits": [short(row[::EVERY]) for row in exact]})
        print(f"{folder.name}: largest {exact.abs().max():.3f}, bfloat16 off by {runs[-1]['bfloat16_error']}")
    return {"folder": "common/model/" + folder.name, "every": EVERY, "runs": runs}


if __name__ == "__main__":
    torch.set_num_threads(1)
    goldens = {"torch": torch.__version__, "transformers": transformers.__version__, "models": []}
    for name, family, types, _, prompt_tokens, sizes in make_goldens.MODELS:
        if types[0] == torch.bfloat16 and types[2] == torch.bfloat16:
            goldens["models"].append(random_model(name, family, types, prompt_tokens, sizes))
    goldens["trained"] = trained_model(HERE.parent / "demo")
    (HERE / "bf16_goldens.json").write_text(json.dumps(goldens) + "\n")
