#!/usr/bin/env python3
"""Writes chat_goldens.jsonl: what transformers 5.24 (jinja2 3.1.6) renders for each template of this folder.

Each line holds the name of a template, its variables, and either the text, the message of raise_exception, or the fact that
rendering fails. tests/chat/check_chat_templates compares many more conversations.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import random_conversations as conversations  # noqa: E402  from this folder

COUNT = {"every_number_operation.jinja": 2, "every_sequence_operation.jinja": 6, "every_text_operation.jinja": 2}  # Their texts are long.


def main():
    lines = []
    for path in sorted(HERE.glob("*.jinja")):
        maker = conversations.Conversations(f"golden {path.name}", small=True)
        for _ in range(COUNT.get(path.name, 20)):
            variables = maker.variables()
            result = conversations.render(path.read_text(encoding="utf-8"), variables)
            if "error" in result:
                result = {"error": result["error"].split(":")[0]}
            lines.append(json.dumps({"template": path.name, "now": conversations.NOW, "variables": variables, **result},
                                    ensure_ascii=False, separators=(",", ":")))
    (HERE / "chat_goldens.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
