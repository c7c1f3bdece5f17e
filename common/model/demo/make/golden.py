"""Writes golden.json: the greedy answers of transformers with the demo model.

    python golden.py

transformers computes in float32 (the bf16 weights are converted), with eager attention, one
prompt at a time and without a cache: every step reads the whole sequence again. Decoding
continues after an end token, so that every prompt has STEPS steps. "margins" holds, for each
step, the best logit minus the second best. A step with a small margin may have another result
in another precision. "prompt_logprobs" holds the log probability of each token of the prompt
except the first, given the tokens before it. "prompt_top" holds the TOP most likely tokens at
each of these positions, with their log probabilities.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

FOLDER = Path(__file__).resolve().parent.parent
STEPS = 48
TOP = 3

PROMPTS = [
    "Explain how a CPU works to a 5-year-old",
    "What is rain?",
    "Why is the sky blue?",
    "Tell me a story about a little fox.",
    "Explain how a fridge works to a 5-year-old.",
    "How does a bicycle work?",
    "What is the capital of Spain?",
    "Once upon a time",
    "Hello",
    "Explain how a tuba works to a 5-year-old",
    "Line one,\n  line two: caf\u00e9, 3 \u00d7 14 = 42 \u2014 \u4f60\u597d \U0001f98a",
    "",
]


def continuation(model: torch.nn.Module, ids: list[int]) -> tuple[list[int], list[float]]:
    """Returns the STEPS greedy ids that follow `ids`, and their margins in logits."""
    sequence, margins = list(ids), []
    for _ in range(STEPS):
        with torch.no_grad():
            logits = model(torch.tensor([sequence]), use_cache=False).logits[0, -1]
        best = torch.topk(logits, 2)
        sequence.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 4))
    return sequence[len(ids):], margins


def prompt_logprobs(model: torch.nn.Module, ids: list[int]) -> tuple[list[float], list[list[list[float]]]]:
    """Returns, for every id except the first, its logprob, and the TOP best ids as [id, logprob]."""
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    logprobs = torch.log_softmax(logits.double(), dim=-1)
    own, top = [], []
    for row, token in zip(logprobs, ids[1:]):
        own.append(round(float(row[token]), 5))
        best = torch.topk(row, TOP)
        top.append([[int(i), round(float(v), 5)] for i, v in zip(best.indices, best.values)])
    return own, top


def main() -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = AutoModelForCausalLM.from_pretrained(
        FOLDER, torch_dtype=torch.float32, attn_implementation="eager").eval()
    cases = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt).input_ids
        new, margins = continuation(model, ids)
        own, top = prompt_logprobs(model, ids)
        cases.append({
            "prompt": prompt,
            "ids": ids,
            "greedy": new,
            "margins": margins,
            "prompt_logprobs": own,
            "prompt_top": top,
            "text": tokenizer.decode(new, skip_special_tokens=False, clean_up_tokenization_spaces=False),
        })
    head = {
        "made_by": "make/golden.py",
        "transformers": transformers.__version__,
        "torch": torch.__version__.partition("+")[0],
        "dtype": "float32",
        "attention": "eager",
        "steps": STEPS,
    }
    # Writes each list of a case as one line of the file, so that people can read it.
    lines = ["{"] + [f" {json.dumps(k)}: {json.dumps(v)}," for k, v in head.items()] + [' "cases": [']
    for number, case in enumerate(cases):
        body = ",\n".join(f"   {json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in case.items())
        lines.append("  {\n" + body + "\n  }" + ("," if number + 1 < len(cases) else ""))
    lines += [" ]", "}"]
    (FOLDER / "golden.json").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
