"""Trains the demo model from scratch: its tokeniser, then its weights.

    python train.py --out .. --work /tmp/demo-model

Writes config.json, model.safetensors (bf16), tokenizer.json, tokenizer_config.json and
generation_config.json to --out, a folder that transformers can load. The checkpoints and the
log go to --work, which is not needed afterwards.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path
from typing import Callable, Iterator

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from compose import SEPARATOR, Composer, Document

VOCAB = 4096
BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
USER, ASSISTANT, END_OF_TURN = "<|user|>", "<|assistant|>", "<|end_of_turn|>"
SPECIAL = [BOS, EOS, USER, ASSISTANT, END_OF_TURN] + [f"<|reserved_{i}|>" for i in range(11)]

# The pattern of Llama 3's pre-tokeniser.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CONTEXT = 512  # tokens in the longest training row
ROW = 87  # approximate tokens in a training row
POOL = 1024  # number of rows that are sorted by length together
WARMUP = 60  # steps until the learning rate is at its highest
WHOLE = 0.83  # fraction of the steps that also learn the prompts; the others learn only answers


def make_tokenizer(seed: int) -> Tokenizer:
    """Returns a byte-level BPE of VOCAB tokens. The special tokens are at the end, as in Llama 3."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    texts = []
    for document in Composer(seed).documents(30000):
        if document.kind != "unknown":  # invented words would waste vocabulary entries
            texts += [document.prompt, document.answer]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL),
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A",
        pair=f"{BOS} $A {BOS} $B:1",
        special_tokens=[(BOS, tokenizer.token_to_id(BOS))],
    )
    assert tokenizer.get_vocab_size() == VOCAB, tokenizer.get_vocab_size()
    return tokenizer


def rows(tokenizer: Tokenizer, seed: int, begin: int, whole: Callable[[], bool]) -> Iterator[list[int]]:
    """Yields training rows of token ids, without end.

    Most rows hold one document: BOS, prompt, newline, answer, EOS. Prompt and answer are
    encoded separately, because a server gets only the prompt. Some rows use the chat tokens,
    and some hold several documents, so that the model also learns longer texts. begin is
    about the number of documents that earlier runs have used. As long as whole() is true,
    prompts are learned like the rest. Later their tokens are given as ~id, which the loss
    ignores.
    """
    rng = random.Random(seed + 1)
    special = {name: tokenizer.token_to_id(name) for name in SPECIAL}

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    def asked(ids: list[int]) -> list[int]:
        return ids if whole() else [~i for i in ids]

    def single(document: Document) -> list[int]:
        if not document.prompt:
            return [special[BOS], *encode(document.answer), special[EOS]]
        return [special[BOS], *asked(encode(document.prompt)), *encode(SEPARATOR + document.answer), special[EOS]]

    def turn(document: Document) -> list[int]:
        return [special[USER], *asked(encode(document.prompt)), special[END_OF_TURN],
                special[ASSISTANT], *encode(document.answer), special[END_OF_TURN]]

    source = Composer(seed + 2).documents(10**9, begin)
    while True:
        document, roll = next(source), rng.random()
        if roll < 0.05 and document.prompt:
            row = [special[BOS], *turn(document)]
            while rng.random() < 0.4:
                follow = next(source)
                if follow.prompt:
                    row += turn(follow)
        elif roll < 0.07:
            row = single(document)
            while len(row) < CONTEXT:
                row += single(next(source))
        else:
            row = single(document)
        yield row[:CONTEXT]


def batches(source: Iterator[list[int]], seed: int, tokens: int) -> Iterator[torch.Tensor]:
    """Yields batches of about `tokens` tokens, of shape (rows, length), without end.

    Rows are padded with -1, which is ~0: a token that the loss ignores.
    """
    rng = random.Random(seed)
    while True:
        pool = sorted((next(source) for _ in range(POOL)), key=lambda r: len(r) + rng.random())
        ready, batch = [], []
        for row in pool:
            if batch and len(row) * (len(batch) + 1) > tokens:
                ready.append(batch)
                batch = []
            batch.append(row)
        ready.append(batch)
        rng.shuffle(ready)
        for batch in ready:
            length = max(len(row) for row in batch)
            yield torch.tensor([row + [-1] * (length - len(row)) for row in batch])


def make_model(seed: int) -> LlamaForCausalLM:
    """Returns the model with random float32 weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=192, intermediate_size=512, num_hidden_layers=6,
        num_attention_heads=6, num_key_value_heads=2, head_dim=32,
        max_position_embeddings=4096, rope_theta=10000.0, rms_norm_eps=1e-5,
        tie_word_embeddings=True, initializer_range=0.04, attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config)
    # Starts with smaller weights in projections that add to the residual stream.
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight /= math.sqrt(2 * config.num_hidden_layers)
    return model


def rate_at(step: int, steps: int) -> float:
    """Returns the learning rate as a part of the highest: a short rise, a plateau, a fall to zero.

    The plateau does not depend on `steps`. So a run may be resumed from there with another
    number of steps, and its earlier rates are still the right ones.
    """
    fall = 0.5 * steps
    return min(1.0, step / WARMUP, max(0.02, (steps - step) / fall))


def loss_of(model: LlamaForCausalLM, batch: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Returns the mean cross entropy in nats per token, and the number of tokens in the mean."""
    targets = batch[:, 1:]
    known = targets >= 0
    inputs = torch.where(batch < 0, ~batch, batch)[:, :-1]
    # Padding is on the right, so the causal mask is enough to hide it.
    hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[known])
    return F.cross_entropy(logits, targets[known]), int(known.sum())


def export(model: LlamaForCausalLM, tokenizer: Tokenizer, out: Path) -> None:
    """Writes the folder that transformers loads."""
    out.mkdir(parents=True, exist_ok=True)
    weights = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # the head is tied to the embedding
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(out / "tokenizer.json"))
    ids = {name: tokenizer.token_to_id(name) for name in SPECIAL}
    c = model.config
    write_json(out / "config.json", {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": ids[BOS],
        "eos_token_id": [ids[EOS], ids[END_OF_TURN]],
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "hidden_size": c.hidden_size,
        "initializer_range": c.initializer_range,
        "intermediate_size": c.intermediate_size,
        "max_position_embeddings": c.max_position_embeddings,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": c.num_attention_heads,
        "num_hidden_layers": c.num_hidden_layers,
        "num_key_value_heads": c.num_key_value_heads,
        "pretraining_tp": 1,
        "rms_norm_eps": c.rms_norm_eps,
        "rope_scaling": None,
        "rope_theta": c.rope_theta,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": c.vocab_size,
    })
    write_json(out / "generation_config.json", {
        "bos_token_id": ids[BOS],
        "do_sample": False,
        "eos_token_id": [ids[EOS], ids[END_OF_TURN]],
    })
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, model_max_length=c.max_position_embeddings,
        clean_up_tokenization_spaces=False, model_input_names=["input_ids", "attention_mask"],
    )
    fast.chat_template = (
        "{{ bos_token }}{% for message in messages %}"
        "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end_of_turn|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    fast.save_pretrained(out)
    # Removes a file whose content tokenizer_config.json has too.
    (out / "special_tokens_map.json").unlink(missing_ok=True)


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the finished model")
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--resume", action="store_true", help="continue from --work/state.pt")
    parser.add_argument("--steps", type=int, default=3500)
    parser.add_argument("--tokens", type=int, default=1280, help="tokens in a batch")
    parser.add_argument("--rate", type=float, default=2.5e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    args.work.mkdir(parents=True, exist_ok=True)

    if args.resume:
        tokenizer = Tokenizer.from_file(str(args.work / "checkpoint" / "tokenizer.json"))
    else:
        tokenizer = make_tokenizer(args.seed)
    model = make_model(args.seed)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count} parameters, {args.steps} steps of about {args.tokens} tokens", flush=True)

    flat = [p for p in model.parameters() if p.ndim < 2]
    square = [p for p in model.parameters() if p.ndim >= 2]
    optimizer = torch.optim.AdamW(
        [{"params": square, "weight_decay": 0.05}, {"params": flat, "weight_decay": 0.0}],
        lr=args.rate, betas=(0.9, 0.99), eps=1e-9, fused=True,
    )
    begin, spent, seen, smooth = 0, 0.0, 0, 0.0
    state = args.work / "state.pt"
    if args.resume:
        saved = torch.load(state, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin, spent, seen, smooth = (saved[k] for k in ("step", "seconds", "seen", "smooth"))
    # A resumed run uses new documents instead of those that the model has already seen.
    step, seed = begin, args.seed + begin
    documents = rows(tokenizer, seed, begin * args.tokens // ROW, lambda: step < WHOLE * args.steps)
    source = batches(documents, seed, args.tokens)
    start, log = time.time() - spent, open(args.work / "log.txt", "a")
    for step in range(begin + 1, args.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = args.rate * rate_at(step, args.steps)
        loss, known = loss_of(model, next(source))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += known
        smooth += (loss.item() - smooth) * max(1 / step, 0.02)
        if step % 50 == 0 or step == args.steps:
            seconds = time.time() - start
            line = f"step {step} loss {smooth:.4f} tokens {seen} seconds {seconds:.0f} tokens/s {seen / seconds:.0f}"
            print(line, flush=True)
            print(line, file=log, flush=True)
        if step % 100 == 0 and step < args.steps:
            export(model, tokenizer, args.work / "checkpoint")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
                        "seconds": time.time() - start, "seen": seen, "smooth": smooth}, state)
    export(model, tokenizer, args.out)


if __name__ == "__main__":
    main()
