"""Prints the greedy answers of the demo model, as transformers computes them.

    python ask.py                       # the prompts below
    python ask.py "What is rain?"
    python ask.py --all                 # counts the explanations that are right word for word
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, logging

from compose import read_facts

FOLDER = Path(__file__).resolve().parent.parent
LIMIT = 300  # max new tokens

PROMPTS = [
    "Explain how a CPU works to a 5-year-old",
    "Explain how a CPU works to a 5-year-old.",
    "explain how a cpu works to a 5 year old",
    "How does a CPU work?",
    "What is a CPU?",
    "What is rain?",
    "What is rain",
    "Why is the sky blue?",
    "Why is the sky blue",
    "Tell me a story about a little fox.",
    "Write a story about a brave mouse.",
    "Tell me a story about a sleepy kangaroo",
    "Explain how a fridge works to a 5-year-old",
    "Explain how the internet works to a 5-year-old.",
    "Explain how magnets work to a 5-year-old",
    "Explain how a kettle works to a five-year-old",
    "Explain how bread is made to a 5-year-old",
    "Explain to a 5-year-old how a bicycle works",
    "How does a memory chip work?",
    "Could you please explain to my daughter how a GPU works?",
    "How do rainbows work?",
    "Explain how the moon works to a 5-year-old",
    "Tell me about the moon.",
    "What is snow?",
    "Can you explain how a rocket works?",
    "How does a washing machine work?",
    "What is the capital of Spain?",
    "The capital of France is",
    "What is 3 + 4?",
    "Once upon a time",
    "Hello",
    "My name is",
    "Write a poem about the sea.",
    "Explain how a dishwasher works to a 5-year-old",
    "Explain how a tuba works to a 5-year-old",
    "What is the meaning of life?",
    "Write a Python function that adds two numbers.",
    "I went to the park yesterday and",
]


class Asker:
    """Answers prompts greedily."""

    def __init__(self, folder: Path, chat: bool) -> None:
        self.chat = chat
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
        self.ends = self.model.generation_config.eos_token_id

    def answer(self, prompt: str) -> tuple[str, int, bool]:
        """Returns the text, its number of tokens, and whether the model ended the answer itself."""
        if self.chat:
            ids = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt")
        else:
            ids = self.tokenizer(prompt, return_tensors="pt").input_ids
        out = self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=LIMIT, do_sample=False)
        new = out[0, ids.shape[1]:].tolist()
        ended = new[-1] in self.ends
        return self.tokenizer.decode(new[:-1] if ended else new), len(new), ended


def ask_all(asker: Asker) -> None:
    """Asks about every thing in facts.txt and counts the answers that are exactly the right text."""
    things, _ = read_facts()
    wrong = []
    for thing in things:
        name, plural = thing.names[0]
        prompt = f"Explain how {name} {'work' if plural else 'works'} to a 5-year-old"
        if asker.answer(prompt)[0].strip() != thing.how:
            wrong.append(name)
    print(f"{len(things) - len(wrong)} of {len(things)} right, not: {', '.join(wrong) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompts", nargs="*")
    parser.add_argument("--model", type=Path, default=FOLDER)
    parser.add_argument("--chat", action="store_true", help="use the chat template")
    parser.add_argument("--all", action="store_true", help="ask about all things of facts.txt and count right answers")
    args = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)  # the model is too small for several threads
    asker = Asker(args.model, args.chat)
    if args.all:
        return ask_all(asker)
    for prompt in args.prompts or PROMPTS:
        text, count, ended = asker.answer(prompt)
        print(f"### {prompt!r}: {count} tokens, {'ends' if ended else 'NO END'}")
        print(text, end="\n\n", flush=True)


if __name__ == "__main__":
    main()
