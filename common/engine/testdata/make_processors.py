#!/usr/bin/env python3
"""Makes processors.json: greedy answers of transformers when its logits processors are used.

    python3 make_processors.py             with torch 2.5.1 and transformers 4.57.1

The answers are those of random models of common/model/testdata, from `generate` in float32 with eager attention and
without a cache. Repetition penalty, sequence bias of single tokens, bad words and minimum length have random values,
alone and together. Words, biases and end tokens are taken from the answer without them, so that they have an effect.
"margins" is the gap between the two best scores after the processors, "largest" the largest absolute logit.
transformers has no presence penalty and no frequency penalty.

"rows" holds rows of logits, most of them with only negative values, which rarely occur in greedy answers. Each has
the token that is the best one after RepetitionPenaltyLogitsProcessor, given some earlier tokens.

"whole_context" holds the one case in which Baton bans a word and transformers does not: a word of L tokens, when prompt
and answer together have exactly L - 1 tokens before its last one.
"""

import json
import pathlib
import random

import torch
import transformers

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent.parent / "model" / "testdata"
NAMES = ["gqa_f32", "mha_tied_f16", "mqa_llama3_f32", "gqa_bias_bf16", "llama3_sharded_bf16", "llama_linear_mixed",
         "mistral_window_f32", "qwen2_window_f32", "qwen2_yarn_tied_bf16", "qwen3_f32", "phi3_window_f32"]
TOKENS = 24
CASES = 6  # number of cases per model


@torch.no_grad()
def answer(model, prompt, options, tokens=TOKENS):
    out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
                         max_new_tokens=tokens, use_cache=False, return_dict_in_generate=True, output_scores=True,
                         output_logits=True, pad_token_id=0, **options)
    best = [torch.topk(scores[0], 2).values for scores in out.scores]
    return {"answer": out.sequences[0, len(prompt):].tolist(), "margins": [float(f"{b[0] - b[1]:.4g}") for b in best],
            "largest": float(f"{max(logits.abs().max() for logits in out.logits):.6g}")}


def draw_options(draw, prompt, plain, vocab):
    options = {}
    while not options:
        if draw.random() < 0.6:
            options["repetition_penalty"] = draw.choice([1.1, 1.3, 2.0, 0.7])
        if draw.random() < 0.5:
            ids = draw.sample(range(vocab), 6) + draw.sample(plain, 4)
            options["sequence_bias"] = [[[i], draw.choice([-2.5, -0.75, 0.5, 1.25])] for i in sorted(set(ids)) if i > 0]
        if draw.random() < 0.7:
            before = prompt + plain
            words = [[draw.choice(plain)]]
            for length in (2, 2, 3, 4):
                end = draw.randrange(max(length, len(prompt)), len(before))
                words.append(before[end + 1 - length:end + 1])
            if len(prompt) > 3:
                words.append(prompt[-3:] + plain[:1])  # this word begins in the prompt
            options["bad_words_ids"] = words
        if draw.random() < 0.6:
            # Makes two tokens of the plain answer end tokens, so that the answer ends early.
            options["eos_token_id"] = sorted({draw.choice(plain[:6]), draw.choice(plain)})
            if draw.random() < 0.7:
                options["min_new_tokens"] = draw.randrange(2, 20)
    # Unlike Baton, transformers still allows an end token that is a bad word by itself. Such bad
    # words are left out.
    ends = options.get("eos_token_id", [])
    options["bad_words_ids"] = [word for word in options.get("bad_words_ids", []) if len(word) > 1 or word[0] not in ends]
    if not options["bad_words_ids"]:
        del options["bad_words_ids"]
    return options


def penalised_row(draw):
    mean = draw.choice([-4.0, -4.0, 0.5])
    logits = [round(draw.gauss(mean, 1.5), 3) for _ in range(12)]
    history = [draw.randrange(12) for _ in range(draw.randrange(1, 10))] + [logits.index(max(logits))]
    penalty = draw.choice([0.5, 0.8, 1.2, 1.5, 3.0])
    process = transformers.RepetitionPenaltyLogitsProcessor(penalty)
    best = int(process(torch.tensor([history]), torch.tensor([logits])).argmax())
    return {"logits": logits, "tokens": history, "penalty": penalty, "best": best}


def main():
    torch.set_num_threads(1)
    draw = random.Random(20261121)
    goldens = {"torch": torch.__version__, "transformers": transformers.__version__, "cases": []}
    for name in NAMES:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            MODELS / name, dtype=torch.float32, attn_implementation="eager").eval()
        vocab = model.config.vocab_size
        model.generation_config = transformers.GenerationConfig(eos_token_id=None, pad_token_id=0)
        for _ in range(CASES):
            prompt = [draw.randrange(vocab) for _ in range(draw.randrange(4, 30))]
            plain = answer(model, prompt, {})["answer"]
            options = draw_options(draw, prompt, plain, vocab)
            got = answer(model, prompt, options)
            goldens["cases"].append({"model": name, "prompt": prompt, "options": options, **got, "changed": got["answer"] != plain})
        prompt = [draw.randrange(vocab) for _ in range(3)]
        first = answer(model, prompt, {}, 1)["answer"][0]
        there = answer(model, prompt, {"bad_words_ids": [prompt + [first]]}, 1)["answer"][0]
        shorter = answer(model, prompt, {"bad_words_ids": [prompt[1:] + [first]]}, 1)["answer"][0]
        goldens.setdefault("whole_context", []).append(
            {"model": name, "prompt": prompt, "word": prompt + [first], "transformers": there, "with_a_word_less_long": shorter})
    goldens["rows"] = [penalised_row(draw) for _ in range(60)]
    (HERE / "processors.json").write_text(json.dumps(goldens) + "\n")
    print(len(goldens["cases"]), "cases,", sum(c["changed"] for c in goldens["cases"]), "changed by their processors, smallest margin",
          min(m / c["largest"] for c in goldens["cases"] for m in c["margins"]))
    print("whole context:", [(w["word"][-1], w["transformers"], w["with_a_word_less_long"]) for w in goldens["whole_context"]])


if __name__ == "__main__":
    main()
