#!/usr/bin/env python3
"""Makes the small random Llama models of this folder and what transformers answers with them.

    python3 make_goldens.py        with torch 2.5.1, transformers 4.48.3, safetensors 0.4 or later

Each folder is an ordinary Hugging Face folder (config.json, generation_config.json, safetensors) with a
golden.json beside: the prompt, the logits of transformers in float32 with eager attention at some of its
positions, and how a greedy answer goes on, with the gap between the two best logits at each step. Weights
are rounded to the stored type first, so that both sides compute from the same numbers.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

HERE = pathlib.Path(__file__).parent
CONTINUATION = 24  # tokens

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}

# name, type of the matrices, type of norms and biases, files, prompt length, configuration
MODELS = [
    ("gqa_f32", torch.float32, torch.float32, 1, 41,
     dict(hidden_size=64, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
          num_key_value_heads=2, vocab_size=97, max_position_embeddings=128, rope_theta=10000.0)),
    ("mha_tied_f16", torch.float16, torch.float16, 1, 33,
     dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=3,
          num_key_value_heads=3, vocab_size=101, max_position_embeddings=96, rope_theta=10000.0,
          tie_word_embeddings=True, rms_norm_eps=1e-5)),
    ("mqa_llama3_f32", torch.float32, torch.float32, 1, 180,
     dict(hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=4,
          num_key_value_heads=1, head_dim=32, vocab_size=89, max_position_embeddings=512,
          rope_theta=500000.0, rope_scaling=LLAMA3, rms_norm_eps=1e-5)),
    ("gqa_bias_bf16", torch.bfloat16, torch.float32, 1, 57,
     dict(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8,
          num_key_value_heads=2, head_dim=16, vocab_size=120, max_position_embeddings=128,
          rope_theta=10000.0, attention_bias=True, mlp_bias=True)),
    ("llama3_sharded_bf16", torch.bfloat16, torch.bfloat16, 2, 150,
     dict(hidden_size=64, intermediate_size=104, num_hidden_layers=5, num_attention_heads=4,
          num_key_value_heads=2, vocab_size=111, max_position_embeddings=256, rope_theta=500000.0,
          rope_scaling=LLAMA3, tie_word_embeddings=True, rms_norm_eps=1e-5)),
]


def randomise(model, generator):
    """Weights that make attention look around and logits differ; what the default start does not."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.data = 1 + 0.2 * noise
        elif name.endswith("bias"):
            parameter.data = 0.3 * noise
        elif "embed_tokens" in name:
            # Small where it is the head too: else each token would answer itself.
            parameter.data = (0.1 if model.config.tie_word_embeddings else 0.5) * noise
        else:
            gain = 1.5 if "q_proj" in name or "k_proj" in name else 1.0
            parameter.data = gain * noise / parameter.shape[1] ** 0.5


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


@torch.no_grad()
def make(name, matrix_type, vector_type, files, prompt_tokens, sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    config = LlamaConfig(attn_implementation="eager", bos_token_id=1, eos_token_id=2, **sizes)
    model = LlamaForCausalLM(config).eval()
    randomise(model, generator)
    model.tie_weights()

    tensors = {}
    for key, parameter in model.named_parameters():
        stored = parameter.data.to(matrix_type if parameter.dim() == 2 else vector_type)
        parameter.data = stored.float()
        tensors[key] = stored.contiguous()

    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config.torch_dtype = matrix_type
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    (folder / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 1, "eos_token_id": [2, 3], "do_sample": True, "temperature": 0.6,
                    "top_p": 0.9}, indent=2) + "\n")
    save_weights(folder, tensors, files)

    prompt = torch.randint(0, config.vocab_size, (prompt_tokens,), generator=generator).tolist()
    ids, continuation, margins = list(prompt), [], []
    for _ in range(CONTINUATION):
        best = torch.topk(model(torch.tensor([ids])).logits[0, -1], 2)
        continuation.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        ids.append(continuation[-1])
    logits = model(torch.tensor([prompt])).logits[0]
    positions = sorted({0, 1, prompt_tokens // 2, prompt_tokens - 1})
    golden = {
        "torch": torch.__version__,
        "prompt": prompt,
        "logits": [{"position": p, "values": [float(f"{v:.9g}") for v in logits[p].tolist()]}
                   for p in positions],
        "continuation": continuation,
        "margins": [float(f"{m:.4g}") for m in margins],
    }
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    print(f"{name}: largest logit {logits.abs().max():.3f}, smallest margin {min(margins):.4f}, "
          f"{len(set(continuation))} different tokens")


def make_inverse_frequencies():
    """The rotary frequencies of models in wide use, and of a table that meets all three bands."""
    def llama3(factor, original):
        return {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": original}

    rows = [("Llama-2-7B", 128, 10000.0, None), ("Llama-3-8B", 128, 500000.0, None),
            ("Llama-3.1-8B", 128, 500000.0, llama3(8.0, 8192)),
            ("Llama-3.2-1B", 64, 500000.0, llama3(32.0, 8192)),
            ("short context", 32, 500000.0, LLAMA3)]
    goldens = []
    for name, head_dim, theta, scaling in rows:
        sizes = {"head_dim": head_dim, "rope_theta": theta, "max_position_embeddings": 131072}
        if scaling:
            sizes["rope_scaling"] = scaling
        rope = LlamaRotaryEmbedding(LlamaConfig(**sizes))
        goldens.append({"name": name, "config": sizes,
                        "inverse_frequency": [float(f"{v:.9g}") for v in rope.inv_freq.tolist()]})
    (HERE / "inverse_frequency.json").write_text(json.dumps(goldens) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for i, row in enumerate(MODELS):
        make(*row, seed=1000 + i)
    make_inverse_frequencies()
