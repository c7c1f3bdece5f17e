#!/usr/bin/env python3
"""Makes the small random models of this folder, and the answers of transformers with them.

    python3 make_goldens.py [NAME ...]     with torch 2.5.1, safetensors 0.4 or later, and
                                           transformers 4.57.1 for most, 5.2.0 for those marked `five`

Each folder is an ordinary Hugging Face folder (config.json, generation_config.json, safetensors) with a
golden.json beside it. That file has the prompt, the logits at some of its positions (transformers in float32
with eager attention), and a greedy answer: each token is computed by one forward pass without a cache, with the
gap between the two best logits of each step. Weights are first rounded to the stored type, so that both sides
compute from the same numbers. A run makes only the folders that belong to its version of transformers. Version 5
also writes config.transformers5.json into the other folders: the same configuration as version 5 spells it.
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

HERE = pathlib.Path(__file__).parent
CONTINUATION = 24  # number of tokens generated after each prompt
FIVE = transformers.__version__.startswith("5.")
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def longrope(pairs, key="rope_type"):
    return {key: "longrope", "short_factor": [1.0 + 0.07 * i for i in range(pairs)],
            "long_factor": [1.3 + 0.9 * i for i in range(pairs)]}


# Each row: name, family, types of (matrices, norms and biases, embeddings), files, prompt length,
# sizes
MODELS = [
    ("gqa_f32", "Llama", (F32, F32, F32), 1, 41,
     dict(hidden_size=64, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
          num_key_value_heads=2, vocab_size=97, max_position_embeddings=128, rope_theta=10000.0)),
    ("mha_tied_f16", "Llama", (F16, F16, F16), 1, 33,
     dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=3,
          num_key_value_heads=3, vocab_size=101, max_position_embeddings=96, rope_theta=10000.0,
          tie_word_embeddings=True, rms_norm_eps=1e-5)),
    ("mqa_llama3_f32", "Llama", (F32, F32, F32), 1, 180,
     dict(hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=4,
          num_key_value_heads=1, head_dim=32, vocab_size=89, max_position_embeddings=512,
          rope_theta=500000.0, rope_scaling=LLAMA3, rms_norm_eps=1e-5)),
    ("gqa_bias_bf16", "Llama", (BF16, F32, BF16), 1, 57,
     dict(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8,
          num_key_value_heads=2, head_dim=16, vocab_size=120, max_position_embeddings=128,
          rope_theta=10000.0, attention_bias=True, mlp_bias=True)),
    ("llama3_sharded_bf16", "Llama", (BF16, BF16, BF16), 2, 150,
     dict(hidden_size=64, intermediate_size=104, num_hidden_layers=5, num_attention_heads=4,
          num_key_value_heads=2, vocab_size=111, max_position_embeddings=256, rope_theta=500000.0,
          rope_scaling=LLAMA3, tie_word_embeddings=True, rms_norm_eps=1e-5)),

    ("llama_linear_mixed", "Llama", (BF16, F32, F16), 1, 70,
     dict(seed=2007, hidden_size=40, intermediate_size=54, num_hidden_layers=3, num_attention_heads=5,
          num_key_value_heads=5, head_dim=10, vocab_size=271, max_position_embeddings=32,
          rope_theta=10000.0, rope_scaling={"type": "linear", "factor": 4.0}, attention_bias=True)),
    ("llama_five_dynamic_f32", "Llama", (F32, F32, F32), 1, 47,
     dict(seed=2006, five=True,
          hidden_size=36, intermediate_size=50, num_hidden_layers=3, num_attention_heads=4,
          num_key_value_heads=2, head_dim=14, vocab_size=273, max_position_embeddings=32, mlp_bias=True,
          rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 3.0})),
    ("mistral_window_f32", "Mistral", (F32, F32, F32), 1, 90,
     dict(hidden_size=36, intermediate_size=58, num_hidden_layers=3, num_attention_heads=6,
          num_key_value_heads=2, head_dim=10, vocab_size=267, max_position_embeddings=256,
          rope_theta=1000000.0, sliding_window=7)),
    ("mistral_five_mqa_bf16", "Mistral", (BF16, BF16, BF16), 2, 140,
     dict(seed=2007, five=True,
          hidden_size=48, intermediate_size=70, num_hidden_layers=5, num_attention_heads=3,
          num_key_value_heads=1, vocab_size=283, max_position_embeddings=256, sliding_window=65,
          rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, rms_norm_eps=1e-5)),
    ("mistral_dynamic_f16", "Mistral", (F16, F16, F16), 1, 52,
     dict(seed=2000, hidden_size=32, intermediate_size=44, num_hidden_layers=3, num_attention_heads=2,
          num_key_value_heads=1, head_dim=18, vocab_size=259, max_position_embeddings=64,
          rope_theta=10000.0, rope_scaling={"rope_type": "dynamic", "factor": 4.0},
          sliding_window=None)),
    ("qwen2_window_f32", "Qwen2", (F32, F32, F32), 1, 80,
     dict(seed=2007, hidden_size=40, intermediate_size=60, num_hidden_layers=3, num_attention_heads=4,
          num_key_value_heads=2, vocab_size=279, max_position_embeddings=256, rope_theta=1000000.0,
          use_sliding_window=True, sliding_window=9, max_window_layers=1)),
    ("qwen2_yarn_tied_bf16", "Qwen2", (BF16, BF16, BF16), 1, 100,
     dict(seed=2005, hidden_size=48, intermediate_size=66, num_hidden_layers=3, num_attention_heads=4,
          num_key_value_heads=1, vocab_size=291, max_position_embeddings=48, rope_theta=10000.0,
          rope_scaling=YARN, tie_word_embeddings=True)),
    ("qwen2_five_yarn_f32", "Qwen2", (F32, F32, F32), 1, 70,
     dict(seed=2000, five=True,
          hidden_size=30, intermediate_size=42, num_hidden_layers=3, num_attention_heads=3,
          num_key_value_heads=3, vocab_size=261, max_position_embeddings=128,
          rope_parameters={"rope_theta": 5000.0, "beta_fast": 16.0, "beta_slow": 2.0, "mscale": 1.0,
                           "mscale_all_dim": 0.7, **YARN})),
    ("qwen3_f32", "Qwen3", (F32, F32, F32), 1, 60,
     dict(seed=2004, hidden_size=36, intermediate_size=52, num_hidden_layers=3, num_attention_heads=4,
          num_key_value_heads=2, head_dim=14, vocab_size=277, max_position_embeddings=128,
          rope_theta=1000000.0)),
    ("qwen3_five_layers_bf16", "Qwen3", (BF16, F32, BF16), 1, 75,
     dict(seed=2003, five=True,
          hidden_size=40, intermediate_size=56, num_hidden_layers=5, num_attention_heads=5,
          num_key_value_heads=1, head_dim=12, vocab_size=269, max_position_embeddings=128,
          rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, attention_bias=True,
          use_sliding_window=True, sliding_window=11,
          layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention",
                       "sliding_attention"])),
    ("phi3_window_f32", "Phi3", (F32, F32, F32), 1, 55,
     dict(hidden_size=48, intermediate_size=50, num_hidden_layers=3, num_attention_heads=4,
          num_key_value_heads=2, vocab_size=281, max_position_embeddings=128, pad_token_id=0,
          rope_theta=10000.0, sliding_window=13, partial_rotary_factor=0.5)),
    ("phi3_long_bf16", "Phi3", (BF16, BF16, BF16), 1, 70,
     dict(seed=2008, hidden_size=40, intermediate_size=46, num_hidden_layers=3, num_attention_heads=4,
          num_key_value_heads=4, vocab_size=287, max_position_embeddings=256, pad_token_id=0,
          original_max_position_embeddings=32, rope_theta=10000.0,
          rope_scaling=longrope(5, "type"), sliding_window=60)),
    # The answer of this model becomes longer than original_max_position_embeddings, so longrope
    # changes its frequencies.
    ("phi3_five_crossing_f32", "Phi3", (F32, F32, F32), 2, 24,
     dict(seed=2005, five=True,
          hidden_size=48, intermediate_size=40, num_hidden_layers=3, num_attention_heads=3,
          num_key_value_heads=1, vocab_size=257, max_position_embeddings=128, pad_token_id=0,
          original_max_position_embeddings=32, partial_rotary_factor=0.75,
          rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.75, **longrope(6)})),
]


def randomise(model, generator):
    """Sets random weights with which attention reads many positions and logits differ. The default weights do not."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.data = 1 + 0.2 * noise
        elif name.endswith("bias"):
            parameter.data = 0.3 * noise
        elif "embed_tokens" in name:
            # If the embedding is also the head, large values would make each token predict itself.
            # So the values are small in this case.
            parameter.data = (0.1 if model.config.tie_word_embeddings else 0.5) * noise
        else:
            sharp = "q_proj" in name or "k_proj" in name or "qkv_proj" in name
            parameter.data = (1.5 if sharp else 1.0) * noise / parameter.shape[1] ** 0.5


def save_weights(folder, tensors, files):
    if files == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    weight_map = {}
    for i in range(files):
        shard = f"model-{i + 1:05}-of-{files:05}.safetensors"
        part = names[i * len(names) // files:(i + 1) * len(names) // files]
        save_file({name: tensors[name] for name in part}, folder / shard, metadata={"format": "pt"})
        weight_map.update({name: shard for name in part})
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def use_rope_of(model, prompt_tokens, tokens):
    """Fixes the frequencies of dynamic scaling for a sequence of that prompt and length.

    transformers uses the length of the sequences that it ran before; here it is the smallest
    max(max_position_embeddings, prompt) * 2^k that holds the tokens. Everything else is left alone.
    """
    rope = model.model.rotary_emb
    if rope.rope_type != "dynamic":
        return
    reach = max(model.config.max_position_embeddings, prompt_tokens)
    while reach < tokens:
        reach *= 2
    init = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["dynamic"]
    rope.inv_freq, _ = init(model.config, torch.device("cpu"), seq_len=reach)
    rope.max_seq_len_cached = reach


def configure(family, sizes):
    config_class = getattr(transformers, family + "Config")
    sizes = {"bos_token_id": 1, "eos_token_id": 2, **sizes}
    for key in ("five", "seed"):
        sizes.pop(key, None)
    return config_class(attn_implementation="eager", architectures=[family + "ForCausalLM"], **sizes)


def save_config(config, path, dtype):
    """Does what save_pretrained does, with another file name and with the type as that version spells it."""
    values = config.to_diff_dict()
    values.pop("dtype", None)
    values["dtype" if FIVE else "torch_dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


@torch.no_grad()
def golden_of(model, prompt, positions):
    """Returns the logits of these positions of a prompt, and a greedy answer, in the form of golden.json."""
    def run(ids):
        use_rope_of(model, len(prompt), len(ids))
        return model(torch.tensor([ids]), use_cache=False).logits[0]

    ids, continuation, margins, chosen = list(prompt), [], [], []
    for _ in range(CONTINUATION):
        last = run(ids)[-1]
        best = torch.topk(last, 2)
        continuation.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        chosen.append(float(torch.log_softmax(last, -1)[continuation[-1]]))
        ids.append(continuation[-1])
    logits = run(prompt)
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "prompt": prompt,
        "logits": [{"position": p, "values": [float(f"{v:.9g}") for v in logits[p].tolist()]}
                   for p in positions],
        "continuation": continuation,
        "margins": [float(f"{m:.4g}") for m in margins],
        "logprobs": [float(f"{c:.6g}") for c in chosen],
    }


@torch.no_grad()
def make(name, family, types, files, prompt_tokens, sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    config = configure(family, sizes)
    model = getattr(transformers, family + "ForCausalLM")(config).eval()
    randomise(model, generator)
    model.tie_weights()

    tensors = {}
    for key, parameter in model.named_parameters():
        stored_type = types[2] if "embed_tokens" in key else types[0 if parameter.dim() == 2 else 1]
        stored = parameter.data.to(stored_type)
        parameter.data = stored.float()
        tensors[key] = stored.contiguous()

    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    save_config(config, folder / "config.json", types[0])
    (folder / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 1, "eos_token_id": [2, 3], "do_sample": True, "temperature": 0.6,
                    "top_p": 0.9}, indent=2) + "\n")
    save_weights(folder, tensors, files)

    prompt = torch.randint(0, config.vocab_size, (prompt_tokens,), generator=generator).tolist()
    golden = golden_of(model, prompt, sorted({0, 1, prompt_tokens // 2, prompt_tokens - 1}))
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    print(f"{name}: smallest margin {min(golden['margins'])}, {len(set(golden['continuation']))} different tokens")


def make_inverse_frequencies():
    """Writes the rotary frequencies of widely used models, and of tables that reach every band of a scaling."""
    def llama3(factor, original):
        return {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": original}

    def yarn(factor, original, **others):
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original,
                **others}

    # Each row: name, head_dim, theta, scaling, max_position_embeddings, tokens of the sequence
    rows = [("Llama-2-7B", 128, 10000.0, None, 131072, 1),
            ("Llama-3-8B", 128, 500000.0, None, 131072, 1),
            ("Llama-3.1-8B", 128, 500000.0, llama3(8.0, 8192), 131072, 1),
            ("Llama-3.2-1B", 64, 500000.0, llama3(32.0, 8192), 131072, 1),
            ("short context", 32, 500000.0, LLAMA3, 131072, 1),
            ("linear", 128, 10000.0, {"rope_type": "linear", "factor": 8.0}, 4096, 1),
            ("dynamic, short", 128, 10000.0, {"rope_type": "dynamic", "factor": 2.0}, 4096, 17),
            ("dynamic, long", 128, 10000.0, {"rope_type": "dynamic", "factor": 2.0}, 4096, 7000),
            ("Qwen2.5 with YaRN", 128, 1000000.0, yarn(4.0, 32768), 32768, 1),
            ("Qwen3 with YaRN", 128, 1000000.0, yarn(4.0, 32768), 40960, 1),
            ("YaRN with every option", 64, 10000.0,
             yarn(40.0, 4096, beta_fast=48.0, beta_slow=2.0, mscale=0.707, mscale_all_dim=1.0,
                  truncate=False), 163840, 1),
            ("YaRN with a factor of attention", 64, 10000.0,
             yarn(16.0, 2048, attention_factor=1.25), 32768, 1),
            ("longrope, short", 12, 10000.0,
             {**longrope(6), "original_max_position_embeddings": 4096}, 131072, 4096),
            ("longrope, long", 12, 10000.0,
             {**longrope(6), "original_max_position_embeddings": 4096}, 131072, 4097)]
    goldens = []
    for name, head_dim, theta, scaling, context, tokens in rows:
        sizes = {"head_dim": head_dim, "rope_theta": theta, "max_position_embeddings": context}
        if scaling:
            sizes["rope_scaling"] = scaling
            if scaling["rope_type"] == "longrope":
                sizes["original_max_position_embeddings"] = 4096
        config = transformers.LlamaConfig(**sizes)
        kind = scaling["rope_type"] if scaling else "default"
        if kind == "default":
            rope = LlamaRotaryEmbedding(config)
            frequencies, attention = rope.inv_freq, rope.attention_scaling
        else:
            init = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind]
            frequencies, attention = init(config, torch.device("cpu"), seq_len=tokens)
        goldens.append({"name": name, "config": sizes, "tokens": tokens, "attention_factor": attention,
                        "inverse_frequency": [float(f"{v:.9g}") for v in frequencies.tolist()]})
    (HERE / "inverse_frequency.json").write_text(json.dumps(goldens) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for i, row in enumerate(MODELS):
        name, family, types, _, _, sizes = row
        wanted = not sys.argv[1:] or name in sys.argv[1:]
        if wanted and sizes.get("five", False) == FIVE:
            make(*row, seed=sizes.get("seed", 1000 + i))
        elif wanted and FIVE and not sizes.get("five"):
            save_config(configure(family, sizes), HERE / name / "config.transformers5.json", types[0])
    if not FIVE and not sys.argv[1:] or "inverse_frequency" in sys.argv[1:]:
        make_inverse_frequencies()
