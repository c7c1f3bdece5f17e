#!/usr/bin/env python3
"""Writes odd_goldens.json: the logits that transformers computes with the odd folders of
odd_tensors_test.cc.

    mkdir FOLDERS
    BATON_ODD_FOLDERS=FOLDERS build/tests/model_test --gtest_filter='OddTensorsTest.*'
    python3 make_odd_goldens.py FOLDERS        with torch 2.9.1 and transformers 5.24.0

The test fails in the second line as long as a golden is missing, but writes all folders.
"""
import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).parent
PROMPT = [4, 0, 3]  # as in TinyLogits


def main():
    logits = {}
    for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        config = transformers.LlamaConfig.from_pretrained(folder)
        model = transformers.LlamaForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32,
                                                              attn_implementation="eager")
        with torch.no_grad():
            last = model(torch.tensor([PROMPT]), use_cache=False).logits[0, -1]
        logits[folder.name] = [float(f"{value:.8g}") for value in last]
    goldens = {"transformers": transformers.__version__, "torch": torch.__version__, "logits": logits}
    (HERE / "odd_goldens.json").write_text(json.dumps(goldens, indent=1) + "\n")
    print(f"{len(logits)} folders")


if __name__ == "__main__":
    main()
