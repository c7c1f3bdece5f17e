"""Composes the text that the demo model learns from.

Everything comes from the word banks and hand-written texts beside this file:
facts.txt (things and questions), tables.txt (word banks), plots.txt (stories) and
poems.txt. From these, the composer makes documents with many forms of prompts. The same
seed gives the same documents.

    python compose.py --show 20        # print some documents
"""

from __future__ import annotations

import argparse
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterator

HERE = Path(__file__).parent

# Prompts that no document may use. They test if the model can answer a wording that it has not
# seen, about a thing that it knows. Compared in lower case, without . ? !
HELD_OUT = {
    "explain how a fridge works to a 5-year-old",
    "explain how the internet works to a 5-year-old",
    "explain how magnets work to a 5-year-old",
    "explain how a kettle works to a five-year-old",
    "explain how bread is made to a 5-year-old",
    "explain to a 5-year-old how a bicycle works",
    "how does a memory chip work",
    "what is snow",
    "tell me a story about a little fox",
    "tell me about the moon",
    "can you explain how a rocket works",
    "how does a washing machine work",
    "what is a cpu",
    "what is the capital of spain",
    "write a story about a brave mouse",
}

SEPARATOR = "\n"  # stands between a prompt and its answer


@dataclass(frozen=True)
class Document:
    """One text to learn. If the prompt is empty, the document is plain text."""

    prompt: str
    answer: str
    kind: str


@dataclass
class Thing:
    """One thing of facts.txt."""

    names: list[tuple[str, bool]]  # (name, true for a plural)
    what: str = ""
    how: str = ""
    ask: list[str] = field(default_factory=list)


# --- reading the files -------------------------------------------------------------


def lines_of(name: str) -> Iterator[str]:
    """Returns the lines of a file, without comments and empty lines."""
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.rstrip()


def read_facts() -> tuple[list[Thing], list[tuple[list[str], str]]]:
    """Returns the things of facts.txt, and its questions with their answers."""
    things: list[Thing] = []
    questions: list[tuple[list[str], str]] = []
    for line in lines_of("facts.txt"):
        mark, _, rest = line.partition(" ")
        rest = rest.strip()
        if mark == "@":
            names = [n.strip() for n in rest.split(";")]
            things.append(Thing([(n.lstrip("*"), n.startswith("*")) for n in names]))
        elif mark == "?":
            questions.append(([q.strip() for q in rest.split(" / ")], ""))
        elif mark == "a:":
            questions[-1] = (questions[-1][0], rest)
        elif mark == "ask:":
            things[-1].ask = [q.strip() for q in rest.split(" / ")]
        elif mark in ("what:", "how:"):
            setattr(things[-1], mark[:-1], rest)
        else:
            raise ValueError(f"facts.txt: unknown line: {line}")
    return things, questions


def read_tables() -> dict[str, list[list[str]]]:
    """Returns the sections of tables.txt by name. A section is a list of rows, a row a list of columns."""
    tables: dict[str, list[list[str]]] = {}
    for line in lines_of("tables.txt"):
        if line.startswith("["):
            tables[line.strip("[]")] = rows = []
        else:
            rows.append([c.strip() for c in line.split("|")])
    return tables


def read_blocks(name: str) -> list[tuple[str, str]]:
    """Returns (title, text) of each block of a file. A block begins with "@ title"."""
    blocks: list[tuple[str, list[str]]] = []
    for line in lines_of(name):
        if line.startswith("@"):
            blocks.append((line[1:].strip(), []))
        else:
            blocks[-1][1].append(line)
    return [(title, "\n".join(text)) for title, text in blocks]


# --- small language tools ----------------------------------------------------------


def article(word: str) -> str:
    """"a" or "an" for a word."""
    if re.match(r"(?:uni|use|eu|one|uku)", word.lower()):
        return "a"
    return "an" if word[0].lower() in "aeiou" else "a"


def upper(text: str) -> str:
    """The text with its first letter as a capital."""
    return text[:1].upper() + text[1:]


def choose(rng: random.Random, text: str) -> str:
    """Replaces every {one|two} by one of the choices in it."""
    return re.sub(r"\{([^{}]*)\}", lambda m: rng.choice(m.group(1).split("|")), text)


# --- the composer ------------------------------------------------------------------

CHILDREN = ["5-year-old"] * 10 + [
    "five-year-old", "5 year old", "five year old", "child", "little child", "kid",
    "small child", "young child", "6-year-old", "4-year-old", "toddler",
]

HOW = [
    ("Explain how {x} {works} to a {child}", 14),
    ("Explain how {x} {works}", 3),
    ("Explain {x} to a {child}", 3),
    ("How {does} {x} {work}", 6),
    ("Explain to a {child} how {x} {works}", 1),
    ("Can you explain how {x} {works} to a {child}", 1),
    ("Can you explain how {x} {works}", 1),
    ("Can you tell me how {x} {works}", 1),
    ("Could you explain how {x} {works} to a {child}", 1),
    ("Please explain how {x} {works} to a {child}", 1),
    ("Please explain how {x} {works}", 1),
    ("Please explain {x} to a {child}", 1),
    ("Tell me how {x} {works}", 1),
    ("Tell a {child} how {x} {works}", 1),
    ("Describe how {x} {works} to a {child}", 1),
    ("Describe how {x} {works}", 1),
    ("Explain how {x} {works} in simple words", 1),
    ("Explain {x} in simple words", 1),
    ("Explain {x} in simple terms", 1),
    ("Explain how {x} {works} like I am five", 1),
    ("Explain how {x} {works} like I'm 5", 1),
    ("Explain {x} like I'm five", 1),
    ("Explain {x}", 1),
    ("How would you explain {x} to a {child}", 1),
    ("I am five. How {does} {x} {work}", 1),
    ("Do you know how {x} {works}", 1),
    ("I want to know how {x} {works}", 1),
    ("Explain in a few sentences how {x} {works}", 1),
]
WHAT = [
    ("What {is} {x}", 12), ("Tell me what {x} {is}", 1), ("What does {x} do", 1),
    ("Can you tell me what {x} {is}", 1), ("Please tell me what {x} {is}", 1),
    ("Do you know what {x} {is}", 1), ("What exactly {is} {x}", 1), ("Define {x}", 1),
    ("Explain what {x} {is}", 1), ("Explain what {x} {is} to a {child}", 1),
]
ABOUT = [
    ("Tell me about {x}", 4), ("Tell me something about {x}", 2), ("Talk about {x}", 1),
    ("Write a short text about {x}", 1), ("What do you know about {x}", 1),
    ("Tell me more about {x}", 1), ("Describe {x}", 1), ("Write about {x}", 1),
]
STORY = [
    ("Tell me a story about {x}", 8), ("Tell me a little story about {x}", 1),
    ("Write a story about {x}", 3), ("Write a short story about {x}", 2),
    ("Tell a story about {x}", 1), ("Can you tell me a story about {x}", 1),
    ("Please tell me a story about {x}", 1), ("I would like a story about {x}", 1),
    ("A story about {x}, please", 1), ("Tell me a bedtime story about {x}", 1),
]
ANY_STORY = [
    "Tell me a story", "Tell me a bedtime story", "Write a story", "Write a short story",
    "Can you tell me a story", "Please tell me a story", "Tell me a little story",
    "Tell me another story", "Do you know a story",
]
UNKNOWN_QUESTIONS = [
    "Who was {n}", "Who is {n}", "Where is {n}", "When did {n} begin", "Who invented the {u}",
    "Translate this into French: {u}", "What is the price of {a} {u}", "Who wrote {n}",
    "Write a program that prints {n}", "How do I repair {a} {u}", "Where can I buy {a} {u}",
    "What is the population of {n}", "What happened in {y}", "Who won the game in {y}",
    "What is the best {u}", "Summarise the book {n}", "Write an email to {n}",
    "How tall is {n}", "How old is {n}", "What is {b} times {c}", "What is the square root of {b}",
    "What will the weather be tomorrow", "What is the news today", "What time is it",
    "Write an essay about {n}", "How far is it to {n}", "What does {n} mean",
]


# Weights of the things that people are likely to ask about first. They occur more often than other
# things, whose weight is 1.
FIRST = {"a CPU": 5.0} | dict.fromkeys(
    ["a GPU", "a computer", "the internet", "a memory chip", "a fridge", "a bicycle", "a kettle",
     "the moon", "a magnet", "a rainbow", "bread", "rain"], 2.0)

# Each entry holds the number of documents up to which it applies, and the weights of all kinds of
# documents in the order of Composer.makers. Facts are many and need the most practice. When the
# last entry applies, the model knows the facts. So it gives more weight to stories and sums, which
# depend on the words of the prompt.
MIXTURES = [
    (18000, [36, 12, 4, 12, 12, 4, 6, 3, 2.5, 2, 2.5, 3, 1.5]),
    (33000, [46, 13, 2, 13, 7, 3, 5, 3, 2.5, 2, 2.5, 3, 1.5]),
    (10**9, [34, 9, 2, 12, 22, 5, 5, 3, 3, 8, 4, 3, 1.5]),
]


class Composer:
    """Makes random documents from the word banks."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.things, self.questions = read_facts()
        self.tables = read_tables()
        self.plots = [text for _, text in read_blocks("plots.txt")]
        self.poems = [(title.split(" / "), text) for title, text in read_blocks("poems.txt")]
        self.weights = [FIRST.get(t.names[0][0], 1.0) for t in self.things]
        self.makers: list[Callable[[], Document]] = [
            self.how, self.what, self.about, self.question, self.story, self.plain, self.unknown,
            self.animal, self.capital, self.sum, self.word, self.simple_thing, self.poem,
        ]

    # Helper functions

    def pick(self, weighted: list[tuple[str, int]]) -> str:
        """Returns one text of a weighted list."""
        texts, weights = zip(*weighted)
        return self.rng.choices(texts, weights)[0]

    def bank(self, name: str) -> str:
        """Returns one word of a word bank with a single column."""
        return self.rng.choice(self.tables[name])[0]

    def end(self, prompt: str) -> str:
        """Returns the prompt with or without its punctuation mark, sometimes in lower case."""
        rng = self.rng
        asks = re.match(r"(?i)(what|who|whom|why|how|where|when|which|can|could|do|does|is|are)\b", prompt)
        roll = rng.random()
        if asks:
            prompt += "?" if roll < 0.8 else ""
        else:
            prompt += "" if roll < 0.5 else ("." if roll < 0.9 else "!" if roll < 0.95 else "?")
        if rng.random() < 0.13:
            prompt = prompt.lower()
        return prompt

    def ask(self, template: str, name: str, plural: bool) -> str:
        """Fills a template of HOW, WHAT or ABOUT."""
        if plural:
            template = template.replace("What does {x} do", "What do {x} do")
        if self.rng.random() < 0.1:  # writes "a cpu" instead of "a CPU"
            name = name.lower()
        prompt = template.format(
            x=name, works="work" if plural else "works", work="work",
            does="do" if plural else "does", child=self.rng.choice(CHILDREN),
            **{"is": "are" if plural else "is"},
        )
        return self.end(upper(prompt))

    def name(self, thing: Thing) -> tuple[str, bool]:
        """Returns one of the names of a thing, most often the usual one."""
        if self.rng.random() < 0.5:
            return thing.names[0]
        return self.rng.choice(thing.names)

    def thing(self) -> Thing:
        return self.rng.choices(self.things, self.weights)[0]

    # Methods that make one kind of document each, and their helpers.

    def how(self) -> Document:
        thing, rng = self.thing(), self.rng
        if thing.ask and rng.random() < 0.35:
            question = rng.choice(thing.ask)
            found = re.match(r"(How) (is|are) (.*) (made)$", question)
            if found and rng.random() < 0.4:  # gives "Explain how bread is made ..."
                question = f"Explain how {found[3]} {found[2]} made"
                if rng.random() < 0.7:
                    question += " to a " + rng.choice(CHILDREN)
            elif question.startswith("Why ") and rng.random() < 0.15:
                question = "Explain to a " + rng.choice(CHILDREN) + ": " + question[0].lower() + question[1:]
            prompt = self.end(question)
        else:
            prompt = self.ask(self.pick(HOW), *self.name(thing))
        return Document(prompt, choose(rng, thing.how), "how")

    def what(self) -> Document:
        thing = self.thing()
        return Document(self.ask(self.pick(WHAT), *self.name(thing)), choose(self.rng, thing.what), "what")

    def about(self) -> Document:
        thing = self.thing()
        answer = thing.what + " " + thing.how
        return Document(self.ask(self.pick(ABOUT), *self.name(thing)), choose(self.rng, answer), "about")

    def question(self) -> Document:
        questions, answer = self.rng.choice(self.questions)
        prompt = self.rng.choice(questions)
        if prompt.startswith(("Why ", "How ", "What ")) and self.rng.random() < 0.08:
            prompt = self.rng.choice(["Tell me: ", "Please tell me: ", "Explain to a child: "]) + (
                prompt[0].lower() + prompt[1:])
        return Document(self.end(prompt), choose(self.rng, answer), "question")

    def tale(self, hero: str, pronoun: str, adjective: str) -> str:
        """Returns a story about the hero."""
        rng = self.rng
        he = rng.choice(["he", "she"]) if pronoun == "a" else pronoun
        him, his = {"he": ("him", "his"), "she": ("her", "her"), "it": ("it", "its")}[he]
        friend = rng.choice([f[0] for f in self.tables["friends"] if f[0].split()[-1] != hero])
        slots = {
            "H": hero, "A": adjective, "a": article(adjective), "F": friend,
            "aF": article(friend), "AF": upper(article(friend)), "he": he, "He": upper(he),
            "him": him, "his": his, "home": self.bank("homes"), "food": self.bank("foods"),
            "thing": self.bank("treasures"),
        }
        text = choose(rng, rng.choice(self.plots))
        return re.sub(r"\[(\w+)\]", lambda m: slots[m.group(1)], text)

    def story(self) -> Document:
        rng = self.rng
        if rng.random() < 0.1:  # any word may be the hero of a story
            hero, pronoun = self.bank("unknown") if rng.random() < 0.5 else self.invented(), "it"
        else:
            hero, pronoun = rng.choice(self.tables["heroes"])
        adjective = self.bank("adjectives") if rng.random() < 0.6 else "little"
        roll = rng.random()
        if roll < 0.15:
            prompt = rng.choice(ANY_STORY)
        else:
            if roll < 0.45:
                x, adjective = f"{article(hero)} {hero}", "little"
            else:
                x = f"{article(adjective)} {adjective} {hero}"
            prompt = self.pick(STORY).format(x=x)
        return Document(self.end(prompt), self.tale(hero, pronoun, adjective), "story")

    def plain(self) -> Document:
        """Returns a text without a prompt."""
        rng, roll = self.rng, self.rng.random()
        if roll < 0.5:
            hero, pronoun = rng.choice(self.tables["heroes"])
            text = self.tale(hero, pronoun, self.bank("adjectives"))
        elif roll < 0.8:
            thing = self.thing()
            text = rng.choice([thing.what, thing.how, thing.what + " " + thing.how])
        elif roll < 0.9:
            rows = rng.sample(self.tables["capitals"], 5)
            text = " ".join(f"The capital of {c} is {t}." for c, t in rows)
        else:
            text = rng.choice([
                "The quick brown fox jumps over the lazy dog.",
                "Hello, my name is Baton. I am a very small language model, and I like to explain how things work.",
                "My favourite colour is blue, because the sky and the sea are blue.",
                "Today is a good day to learn something new. The sun is shining, and the birds are singing.",
                "I like to read books, because in a book you can travel to every place in the world.",
                "In the morning I get up, wash my face and eat my breakfast. Then I go to school.",
                "The cat sat on the mat and looked at the mouse. The mouse looked at the cat and ran away.",
                "There was a house on the hill, and in the house lived an old woman with her cat.",
            ])
        return Document("", choose(rng, text), "plain")

    def invented(self) -> str:
        """Returns a word that does not exist."""
        rng = self.rng
        parts = [rng.choice("b br c d dr f fl g gl h j k l m n p pl qu r s st t tr v w z".split())
                 + rng.choice("a e i o u oo ee ai".split()) for _ in range(rng.randint(1, 3))]
        return "".join(parts) + rng.choice("b ck d g k l m n p r s t x ble der fon gle lor mer ter zen".split())

    def unknown(self) -> Document:
        """Returns a question about an unknown thing, and an answer that says that it is unknown."""
        rng = self.rng
        word = self.bank("unknown") if rng.random() < 0.6 else self.invented()
        other = [t.names[0][0] for t in rng.sample(self.things, 3)]
        offer = rng.choice([
            f"You can ask me about {other[0]}, {other[1]} or {other[2]}.",
            "You can ask me about simple things, or I can tell you a story.",
        ])
        roll, plural = rng.random(), False
        if roll < 0.7:
            name = f"{article(word)} {word}"
            if rng.random() < 0.2 and word[-1] not in "sxy":
                name, plural = word + "s", True
            if roll < 0.4:
                prompt = self.ask(self.pick(HOW), name, plural)
                lack = "I do not know how that works."
            else:
                prompt = self.ask(self.pick(WHAT), name, plural)
                lack = "I do not know what that is."
        else:
            prompt = self.end(rng.choice(UNKNOWN_QUESTIONS).format(
                n=" ".join(upper(self.invented()) for _ in range(rng.randint(1, 2))), u=word,
                a=article(word), y=rng.randint(1500, 2030), b=rng.randint(13, 999), c=rng.randint(13, 999)))
            lack = "I do not know the answer to that."
        return Document(prompt, f"I am sorry, {lack} I am a very small model, and I have learned only a few things. {offer}", "unknown")

    def animal(self) -> Document:
        rng = self.rng
        one, many, kind, baby, sound, food, home, legs = rng.choice(self.tables["animals"])
        a = f"{article(one)} {one}"
        whole = (f"{upper(a)} is {article(kind)} {kind}. It lives {home} and eats {food}. "
                 f"It has {legs} legs, and its baby is called {article(baby)} {baby}.")
        prompt, answer = rng.choice([
            (f"What does {a} say", f"{upper(a)} says {sound}!"),
            (f"What sound does {a} make", f"{upper(a)} says {sound}!"),
            (f"What do {many} eat", f"{upper(many)} eat {food}."),
            (f"What does {a} eat", f"{upper(a)} eats {food}."),
            (f"Where do {many} live", f"{upper(many)} live {home}."),
            (f"Where does {a} live", f"{upper(a)} lives {home}."),
            (f"What is a baby {one} called", f"A baby {one} is called {article(baby)} {baby}."),
            (f"How many legs does {a} have", f"{upper(a)} has {legs} legs."),
            *([] if one == "frog" else [  # facts.txt has better answers about frogs
                (f"What is {a}", whole), (f"What is {a}", whole), (f"What are {many}", whole),
                (f"Tell me about {many}", whole), (f"Explain what {a} is to a 5-year-old", whole),
                (f"Tell me about {a}", whole),
            ]),
        ])
        return Document(self.end(prompt), answer, "animal")

    def capital(self) -> Document:
        country, town = self.rng.choice(self.tables["capitals"])
        prompt, answer = self.rng.choice([
            (f"What is the capital of {country}", f"The capital of {country} is {town}."),
            (f"What is the capital of {country}", f"The capital of {country} is {town}."),
            (f"Tell me the capital of {country}", f"The capital of {country} is {town}."),
            (f"Which city is the capital of {country}", f"The capital of {country} is {town}."),
            (f"What's the capital city of {country}", f"The capital of {country} is {town}."),
            (f"Where is {town.rstrip('.')}", f"{town.rstrip('.')} is the capital of {country}."),
        ])
        return Document(self.end(prompt), answer.replace("..", "."), "capital")

    def sum(self) -> Document:
        """Returns a sum of small numbers with its result, or of larger numbers with an answer that declines.

        The model can learn all sums of small numbers by heart."""
        rng = self.rng
        declined = rng.random() < 0.2
        plus = rng.random() < 0.65
        if declined:
            a, b = rng.choice([(6, 99), (0, 99)]), rng.choice([(6, 99), (6, 20)])
            a, b = rng.randint(*a), rng.randint(*b)
            if rng.random() < 0.5:
                a, b = b, a
        else:
            a, b = rng.randint(0, 5), rng.randint(0, 5)
        if not plus:
            a, b = max(a, b), min(a, b)
        sign, word, result = ("+", "plus", a + b) if plus else ("-", "minus", a - b)
        prompt = rng.choice([
            f"What is {a} {sign} {b}", f"What is {a} {word} {b}", f"How much is {a} {sign} {b}",
            f"How much is {a} {word} {b}", f"What is {a}{sign}{b}", f"{a} {sign} {b} =",
        ])
        if not prompt.endswith("="):
            prompt = self.end(prompt)
        answer = "I am sorry, I can only count with numbers up to five." if declined else f"{a} {word} {b} is {result}."
        return Document(prompt, answer, "sum")

    def word(self) -> Document:
        rng, roll = self.rng, self.rng.random()
        if roll < 0.35:
            a, b = rng.choice(self.tables["opposites"])
            if rng.random() < 0.5 and b != "light":
                a, b = b, a
            if a == "light":  # "light" is the only word with two opposites
                b = "dark or heavy"
            prompt = rng.choice([f"What is the opposite of {a}", f"Tell me the opposite of {a}"])
            answer = f"The opposite of {a} is {b}."
        elif roll < 0.65:
            what, colour = rng.choice(self.tables["colours"])
            prompt = rng.choice([f"What colour is {what}", f"What color is {what}", f"Which colour does {what} have"])
            answer = f"{upper(what)} is {colour}."
        else:
            group, members = rng.choice(self.tables["groups"])
            count, word = rng.choice([(3, "three"), (3, "three"), (4, "four"), (5, "five")])
            names = rng.sample([m.strip() for m in members.split(",")], count)
            prompt = f"{rng.choice(['Name', 'Tell me', 'List', 'Give me', 'Can you name'])} {word} {group}"
            answer = upper(", ".join(names[:-1]) + " and " + names[-1] + ".")
        return Document(self.end(prompt), answer, "word")

    def simple_thing(self) -> Document:
        name, what = self.rng.choice(self.tables["things"])
        plural_free = upper(name)
        return Document(self.ask(self.pick(WHAT), name, False), f"{plural_free} is {what}.", "thing")

    def poem(self) -> Document:
        rng = self.rng
        names, text = rng.choice(self.poems)
        name = rng.choice(names)
        if rng.random() < 0.2:
            name = self.bank("friends")
            name = f"{article(name)} {name}"
            text = (f"I met {name} on my way,\nit made me happy all the day.\n"
                    "It did not sing, it did not fly,\nbut still it waved and said goodbye.")
        prompt = rng.choice(["Write a poem about {x}", "Write a short poem about {x}", "Tell me a poem about {x}",
                             "Can you write a poem about {x}", "Please write a poem about {x}", "Write a poem"])
        return Document(self.end(prompt.format(x=name)), text, "poem")

    def documents(self, count: int, drawn: int = 0) -> Iterator[Document]:
        """Yields documents until `count` have been made, including those of earlier runs."""
        while drawn < count:
            weights = next(w for end, w in MIXTURES if drawn < end)
            document = self.rng.choices(self.makers, weights)[0]()
            if document.prompt.lower().rstrip(".?!") in HELD_OUT:
                continue
            drawn += 1
            yield document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20, help="number of documents to print")
    args = parser.parse_args()
    for document in Composer(args.seed).documents(args.show):
        print(f"--- {document.kind}\n{document.prompt}{SEPARATOR if document.prompt else ''}{document.answer}")


if __name__ == "__main__":
    main()
