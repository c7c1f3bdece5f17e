"""Random conversations, and what transformers renders for them. Used by make_chat_goldens.py and check_chat_templates."""
import datetime
import random

import jinja2
from transformers.utils import chat_template_utils

NOW = 1_722_000_000  # 2024-07-26 13:20:00 UTC: what templates see as now.


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


chat_template_utils.datetime = FixedClock

WORDS = ("hello", "Paris", "What is 2+2?", "don't", "x < y && z", "naïve", "Straße", "ΣΑΣ", "ǆ", "日本語", "مرحبا", "שלום", "👩🏽‍💻", "🇩🇪",
         "e\u0301", "\u200d", "\u2028", "\xa0", "\x7f", "\x85", "\"quoted\"", "'single'", "it's \"both\"", "back\\slash", "<b>&amp;</b>",
         "{{ braces }}", "{% if %}", "{0} %s %d", "100%", "<think>", "</think>", "reason</think>answer", "<tool_call>", "[INST]",
         "<|im_end|>", "<|eot_id|>", "</s>", "<|tool_call|>", "a,b,c", "key: value", "/no_think", "Title Case here", "tab\there")
SPACES = ("", " ", "  ", "\n", "\n\n", "\r\n", "\t", " \n ", "\r", "\u3000", "\x0b")
NUMBERS = (0, 1, -1, 7, 42, 2**31, -2**63, 2**63 - 1, 10**20, -10**30, 0.0, -0.0, 1.0, 1.5, -2.75, 0.1, 1e16, 1e15, 123456789.123, 1e-7,
           0.0001, 1e100, 3.141592653589793, True, False)
NAMES = ("get_weather", "search", "python", "brave_search", "add-2", "ünïcode", "x", "user_name")
KEYS = ("city", "unit", "x", "type", "items", "name", "a b", "été", "count", "keys", "0", "")
ROLES = ("system", "user", "assistant", "tool", "developer", "ipython", "observation", "function", "weird", "")


class Conversations:
    """Makes random conversations from a seed."""

    def __init__(self, seed, small=False):
        self.rng = random.Random(seed)
        self.small = small

    def one_in(self, n):
        return self.rng.randrange(n) == 0

    def text(self):
        rng = self.rng
        parts = [rng.choice(SPACES)]
        for _ in range(rng.choice((0, 1, 1, 2, 3) if self.small else (0, 1, 2, 3, 6))):
            parts += [rng.choice(WORDS), rng.choice(SPACES + (" ", " ", " "))]
        return "".join(parts)

    def value(self, depth=0):
        kind = self.rng.randrange(8 if depth < 2 else 5)
        if kind < 2:
            return self.text()
        if kind < 4:
            return self.rng.choice(NUMBERS)
        if kind == 4:
            return None
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.rng.randrange(3))]
        return self.object(depth + 1)

    def object(self, depth=0):
        return {self.rng.choice(KEYS): self.value(depth + 1) for _ in range(self.rng.randrange(4))}

    def schema(self, depth=0):
        rng = self.rng
        schema = {"type": rng.choice(("string", "integer", "number", "boolean", "object", "array", ["string", "null"]))}
        if self.one_in(2):
            schema["description"] = self.text()
        if self.one_in(5):
            schema["enum"] = [self.value(2) for _ in range(rng.randrange(3))]
        if self.one_in(6):
            schema["default"] = self.value(1)
        if schema["type"] == "array" and depth < 2:
            schema["items"] = self.schema(depth + 1)
        if schema["type"] == "object" and depth < 2 or depth == 0:
            schema["type"] = "object"
            schema["properties"] = {rng.choice(KEYS[:8]): self.schema(depth + 1) for _ in range(rng.randrange(3))}
            if self.one_in(2):
                schema["required"] = list(schema["properties"])[:1]
        return schema

    def tool(self):
        function = {"name": self.rng.choice(NAMES), "description": self.text(), "parameters": self.schema()}
        if self.one_in(8):
            function["return"] = self.schema(2)
        if self.one_in(10):
            del function["description"]
        return {"type": "function", "function": function} if not self.one_in(12) else function

    def content(self):
        kind = self.rng.randrange(10)
        if kind < 7:
            return self.text()
        if kind == 7:
            return None
        kinds = [{"type": "text", "text": self.text()}, {"type": "text", "text": self.text()}, {"type": "image"},
                 {"type": "image_url", "image_url": {"url": "http://x"}}, self.text()]
        return self.rng.choices(kinds, weights=(6, 6, 1, 1, 1), k=self.rng.randrange(4))

    def tool_calls(self):
        calls = []
        for i in range(self.rng.choice((1, 1, 2))):
            function = {"name": self.rng.choice(NAMES), "arguments": self.object()}
            if self.one_in(5):
                function["arguments"] = '{"city": "Paris"}'
            call = {"id": self.rng.choice(("call00001", "abcdefghi", "x", f"functions.get_weather:{i}")), "type": "function",
                    "function": function}
            calls.append(call)
        return calls

    def message(self, role):
        message = {"role": role, "content": self.content() if self.one_in(3) else self.text()}
        if role == "assistant":
            if self.one_in(3):
                message["tool_calls"] = self.tool_calls()
                if self.one_in(2):
                    message["content"] = self.rng.choice((None, ""))
            if self.one_in(5):
                message["reasoning_content"] = self.text()
            if self.one_in(8):
                message["thinking"] = self.text()
        if role in ("tool", "function", "observation", "ipython"):
            message["name"] = self.rng.choice(NAMES)
            message["tool_call_id"] = self.rng.choice(("call00001", "abcdefghi", "x"))
            if self.one_in(4):
                message["content"] = self.object()
        if self.one_in(12):
            message.pop("content")
        if self.one_in(15):
            message["name"] = self.text()
        return message

    def messages(self):
        if self.one_in(5):  # In any order.
            return [self.message(self.rng.choice(ROLES)) for _ in range(self.rng.randrange(4 if self.small else 6))]
        messages = [self.message("system")] if self.one_in(2) else []
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            messages.append(self.message("user"))
            messages.append(self.message("assistant"))
            while messages[-1].get("tool_calls") and not self.one_in(4):
                messages += [self.message("tool") for _ in messages[-1]["tool_calls"]]
                messages.append(self.message("assistant"))
                if len(messages) > 10:
                    break
        return messages[:-1] if self.one_in(2) else messages

    def variables(self):
        rng = self.rng
        variables = {"messages": self.messages(), "tools": None, "documents": None,
                     "add_generation_prompt": not self.one_in(3), "bos_token": "<s>", "eos_token": "</s>"}
        if self.one_in(3):
            variables["tools"] = [self.tool() for _ in range(rng.randrange(3))]
        if self.one_in(6):
            variables["documents"] = [{"title": self.text(), "text": self.text()} for _ in range(rng.randrange(3))]
        for name, values in (("enable_thinking", (True, False, None)), ("thinking", (True, False)), ("reasoning_effort", ("low", "high")),
                             ("date_string", ("26 Jul 2024",)), ("tools_in_user_message", (True, False)), ("custom_tools", (None,)),
                             ("builtin_tools", (["python"], [])), ("unk_token", ("<unk>",)), ("number", NUMBERS),
                             ("list_of_values", ([3, 1, 2], ["b", "A", "c"], [1.5, -0.0, 10**20], [])), ("value", (None,))):
            if self.one_in(4):
                variables[name] = rng.choice(values) if name != "value" else self.value()
        return variables


def render(source, variables):
    """Returns what transformers gives: {"text"}, or {"raised"} with the message of raise_exception, or {"error"}."""
    try:
        text = chat_template_utils._compile_jinja_template(source).render(**variables)
        text.encode()
        return {"text": text}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"raised": str(error)}
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001  any error of a template
        return {"error": f"{type(error).__name__}: {error}"}
