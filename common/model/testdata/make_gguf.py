#!/usr/bin/env python3
"""Makes the small random GGUF files of this folder with llama.cpp's own tools, and the answers of transformers with them.

    python3 make_gguf.py LLAMA_CPP QUANTIZE [NAME ...]    with torch 2.9.1, transformers 5.24.0, accelerate 1.15.0,
                                                          safetensors 0.8.0, sentencepiece 0.2.3, gguf 0.17.1

LLAMA_CPP is a folder of llama.cpp's sources (that of llama-cpp-python 0.3.36), and QUANTIZE the program llama-quantize
that was built from them. A random model is written as a Hugging Face folder, becomes a GGUF file in float32 by
convert_hf_to_gguf.py, and then FAMILY.TYPE.gguf by llama-quantize. All matrices have the type that the file is named after,
with the embedding and the head (--pure); Q4_K_M is the mixture that llama-quantize makes by default. The files have a small
tokeniser of GPT-2's form. FAMILY.TYPE.json has the answers of transformers with the file itself, which it dequantises to
float32, and with the configuration of the folder; the form is that of golden.json (make_goldens.py).
"""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import gguf
import torch
import transformers

import make_goldens

HERE = pathlib.Path(__file__).parent
GPT2 = HERE.parents[1] / "tokenizer/testdata/gpt2.tokenizer.json"
VOCAB = 272
PROMPT_TOKENS = 41

# The converter knows tokenisers by a hash of some ids. The small tokeniser has other ids, so this says what it is.
CONVERT = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# Formats with blocks of 32 values or without blocks, and K-quants. The rows of K-quants have blocks of 256 values.
SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
TINY = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
WIDE = dict(hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=8, num_key_value_heads=1,
            tie_word_embeddings=True)

# Each row: family, type, types of the matrices, seed, sizes. Seeds are some with which answers have many different tokens.
FILES = [
    ("Qwen3", "F32", {"F32"}, 4240, dict(TINY, head_dim=16, tie_word_embeddings=True)),
    ("Phi3", "F16", {"F16"}, 4001, dict(TINY, pad_token_id=0)),
    ("Qwen2", "BF16", {"BF16"}, 4022, dict(TINY, tie_word_embeddings=True)),
    ("Llama", "Q4_0", {"Q4_0"}, 4003, SMALL),
    ("Qwen2", "Q4_1", {"Q4_1"}, 4004, SMALL),
    ("Qwen3", "Q5_0", {"Q5_0"}, 4005, dict(SMALL, head_dim=32)),
    ("Phi3", "Q5_1", {"Q5_1"}, 4006, dict(SMALL, pad_token_id=0)),
    ("Llama", "Q8_0", {"Q8_0"}, 4027, dict(SMALL, tie_word_embeddings=True)),
    ("Llama", "Q4_K", {"Q4_K"}, 4268, dict(WIDE, num_attention_heads=16, head_dim=32)),
    ("Phi3", "Q5_K", {"Q5_K"}, 4369, dict(WIDE, pad_token_id=0)),
    ("Qwen3", "Q6_K", {"Q6_K"}, 4050, dict(WIDE, head_dim=32)),
    ("Qwen2", "Q4_K_M", {"Q4_K", "Q6_K"}, 4051, WIDE),
]


def write_tokenizer(folder):
    """Writes the first tokens and merges of the testdata's tokeniser."""
    tokenizer = json.loads(GPT2.read_text())
    end = tokenizer["added_tokens"][0]
    model = tokenizer["model"]
    kept = sorted((id, token) for token, id in model["vocab"].items() if token != end["content"])[:VOCAB - 1]
    model["vocab"] = {token: i for i, (_, token) in enumerate(kept)}
    end["id"] = model["vocab"][end["content"]] = VOCAB - 1
    model["merges"] = model["merges"][:VOCAB - 257]
    assert all("".join(merge if isinstance(merge, list) else merge.split(" ")) in model["vocab"] for merge in model["merges"])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "GPT2Tokenizer", "eos_token": end["content"], "bos_token": end["content"]}))


@torch.no_grad()
def make(llama_cpp, quantize, family, kind, types, seed, sizes):
    name = f"{family.lower()}.{kind}"
    path = HERE / f"{name}.gguf"
    generator = torch.Generator().manual_seed(seed)
    config = make_goldens.configure(family, dict(
        sizes, vocab_size=VOCAB, max_position_embeddings=2048, bos_token_id=VOCAB - 1, eos_token_id=VOCAB - 1,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}))
    model = getattr(transformers, family + "ForCausalLM")(config).eval()
    make_goldens.randomise(model, generator)
    model.tie_weights()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / name
        model.save_pretrained(folder)
        write_tokenizer(folder)
        plain = folder / "plain.gguf"
        subprocess.run([sys.executable, "-c", CONVERT, llama_cpp, f"{llama_cpp}/convert_hf_to_gguf.py", folder,
                        "--outtype", "f32", "--outfile", plain], check=True,
                       env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"})
        pure = [] if len(types) > 1 else ["--pure"]
        subprocess.run([quantize, *pure, plain, path, kind], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    counts = collections.Counter(tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors if len(tensor.shape) == 2)
    if set(counts) != types:
        sys.exit(f"{path}: its matrices have the types {dict(counts)}, not {types}: rows do not fit a type")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        HERE, gguf_file=path.name, config=config, dtype=torch.float32, attn_implementation="eager").eval()
    prompt = torch.randint(0, VOCAB, (PROMPT_TOKENS,), generator=generator).tolist()
    golden = make_goldens.golden_of(model, prompt, [PROMPT_TOKENS // 2, PROMPT_TOKENS - 1])
    path.with_suffix(".json").write_text(json.dumps(golden) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes, {dict(counts)}, smallest margin {min(golden['margins'])}, "
          f"{len(set(golden['continuation']))} different tokens")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for family, kind, *row in FILES:
        if not sys.argv[3:] or f"{family.lower()}.{kind}" in sys.argv[3:]:
            make(*sys.argv[1:3], family, kind, *row)
