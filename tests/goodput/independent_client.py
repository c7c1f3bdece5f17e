#!/usr/bin/env python3
"""Checks baton-goodput with separate code: no line is shared with it.

  independent_client.py recompute RUN.json
      computes every figure of the run's verdict again from its records, and fails unless all agree
  independent_client.py replay RUN.json --endpoint HOST:PORT [--beside OTHER.json] [--tolerance 0.02]
      sends requests with the same arrivals and lengths again, with Python's own gRPC and a thread per
      request, measures them itself, and fails unless the figures agree within the tolerance. With
      --beside, they must agree with the run of baton-goodput that writes OTHER.json at the same time,
      so that a busy machine is equally busy for both

`replay` needs python3-grpcio and the stubs that docs/examples/README.md tells how to make.
"""

import argparse
import json
import math
import os
import random
import sys
import threading
import time


def rank(values, share):
    """Returns the value at the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered), max(1, math.ceil(share * len(ordered)))) - 1] if ordered else 0.0


def latencies(request):
    """Returns (ttft, tpot, w10, e2e) in ms. For an answer of one token, tpot and w10 are None."""
    times = [us / 1000 for us in request["token_us"]]
    scheduled = request["scheduled_us"] / 1000
    gaps = sorted((b - a for a, b in zip(times, times[1:])), reverse=True)
    worst = gaps[: math.ceil(len(gaps) / 10)]
    return (
        times[0] - scheduled,
        (times[-1] - times[0]) / len(gaps) if gaps else None,
        sum(worst) / len(worst) if gaps else None,
        times[-1] - scheduled,
    )


def verdict(requests, targets, window):
    """Returns the figures of a run, computed from its measured requests."""

    def within(value, key, factor=1):
        limit = targets[key]
        return limit is None or value is None or value <= factor * limit + 1e-9

    seconds = window[1] - window[0]
    done = [r for r in requests if r["outcome"] == "completed"]
    kept = {"ttft_ms": [], "tpot_ms": [], "w10_ms": [], "e2e_ms": []}
    good = strict = good_tokens = 0
    met = {"ttft_met": 0, "tpot_met": 0, "e2e_met": 0}
    for request in done:
        values = latencies(request)
        for key, value in zip(("ttft_ms", "tpot_ms", "w10_ms", "e2e_ms"), values):
            if value is not None:
                kept[key].append(value)
        ttft, tpot, w10, e2e = values
        met["ttft_met"] += within(ttft, "ttft_ms")
        met["tpot_met"] += within(tpot, "tpot_ms")
        met["e2e_met"] += within(e2e, "e2e_ms")
        if within(ttft, "ttft_ms") and within(tpot, "tpot_ms") and within(e2e, "e2e_ms"):
            good += 1
            good_tokens += len(request["token_us"])
            strict += within(w10, "tpot_ms", 2)
    figures = {
        "offered": len(requests),
        "completed": len(done),
        "good": good,
        "strict": strict,
        **met,
        "attainment": good / len(requests) if requests else 0.0,
        "goodput": good / seconds if seconds else 0.0,
        "strict_goodput": strict / seconds if seconds else 0.0,
        "token_goodput": good_tokens / seconds if seconds else 0.0,
    }
    for key, values in kept.items():
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            figures[f"{key}.{name}"] = rank(values, share)
        figures[f"{key}.mean"] = sum(values) / len(values) if values else 0.0
    return figures


def told(run):
    """Returns the same figures as the tool reports them."""
    figures = {}
    for key, value in run["verdict"].items():
        if isinstance(value, dict):
            figures.update({f"{key}.{name}": number for name, number in value.items()})
        else:
            figures[key] = value
    return figures


def compare(title, ours, theirs, tolerance, keys, unjudged=()):
    worst, wrong = 0.0, []
    for key in [*keys, *unjudged]:
        a, b = ours[key], theirs[key]
        off = abs(a - b) / max(abs(a), abs(b)) if max(abs(a), abs(b)) > 1e-6 else 0.0
        print(f"  {key:22} {a:14.6f} {b:14.6f} {100 * off:8.3f} %{'   not judged' if key in unjudged else ''}")
        if key in unjudged:
            continue
        worst = max(worst, off)
        if off > tolerance:
            wrong.append(key)
    print(f"{title}: {len(keys)} figures, with a largest difference of {100 * worst:.3f} %")
    if wrong:
        sys.exit(f"different by more than {100 * tolerance:g} %: {', '.join(wrong)}")


def replay(run, endpoint):
    """Sends the run's requests again. Returns their records."""
    import grpc  # gRPC is imported only here, because the subcommand `recompute` works without it.
    from baton.v1 import inference_pb2, inference_pb2_grpc

    channel = grpc.insecure_channel(endpoint)
    grpc.channel_ready_future(channel).result(timeout=30)
    stub = inference_pb2_grpc.InferenceStub(channel)
    draw = random.Random(run["seed"])
    planned = [r for r in run["requests"] if r["sent_us"] >= 0]
    prompts = [
        [draw.randrange(16, min(1000, run["server"]["vocab_size"])) for _ in range(r["prompt_tokens"])]
        for r in planned
    ]
    start = time.monotonic() + 0.5
    records = []

    def ask(request, prompt):
        record = dict(request, outcome="failed", token_us=[])
        records.append(record)
        message = inference_pb2.GenerateRequest(
            token_ids=inference_pb2.TokenIds(ids=prompt),
            sampling={
                "temperature": 0,
                "max_tokens": request["wanted_tokens"],
                "min_tokens": request["wanted_tokens"],
                "ignore_eos": True,
            },
        )
        time.sleep(max(0.0, start + request["scheduled_us"] / 1e6 - time.monotonic()))
        try:
            for event in stub.Generate(message):
                now_us = (time.monotonic() - start) * 1e6
                record["token_us"] += [now_us] * len(event.delta.tokens)
            if len(record["token_us"]) == request["wanted_tokens"]:
                record["outcome"] = "completed"
        except grpc.RpcError as error:
            record["status"] = error.code().name

    threads = []
    for request, prompt in zip(planned, prompts):
        # Each thread starts a tenth of a second before its request is due, so that only a few
        # threads wait at the same time.
        time.sleep(max(0.0, start + request["scheduled_us"] / 1e6 - 0.1 - time.monotonic()))
        threads.append(threading.Thread(target=ask, args=(request, prompt)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("recompute", "replay"))
    parser.add_argument("run")
    parser.add_argument("--endpoint", default="127.0.0.1:50051", metavar="HOST:PORT")
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--beside", metavar="OTHER.json")
    arguments = parser.parse_args()
    with open(arguments.run, encoding="utf-8") as file:
        run = json.load(file)
    ours = told(run)
    if arguments.command == "recompute":
        measured = [r for r in run["requests"] if r["measured"]]
        figures = verdict(measured, run["targets"], run["window_s"])
        compare("recomputed", ours, figures, 1e-9, list(figures))
        return
    records = [r for r in replay(run, arguments.endpoint) if r["measured"]]
    figures = verdict(records, run["targets"], run["window_s"])
    if arguments.beside:
        patience = time.monotonic() + 60
        while not os.path.exists(arguments.beside):
            if time.monotonic() > patience:
                sys.exit(f"{arguments.beside} was not written within a minute of the replay's end")
            time.sleep(0.2)
        with open(arguments.beside, encoding="utf-8") as file:
            ours = told(json.load(file))
    # Both clients sent requests with the same arrivals and lengths, so their figures must agree.
    # Only the worst pace and the worst gaps are not compared: they depend on the few moments in
    # which one of the two programs had to wait for a core.
    unjudged = [key for key in figures if key.startswith(("w10", "strict"))]
    keys = [key for key in figures if key not in unjudged]
    compare("replayed", ours, figures, arguments.tolerance, keys, unjudged)


if __name__ == "__main__":
    main()
