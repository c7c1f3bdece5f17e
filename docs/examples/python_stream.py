#!/usr/bin/env python3
"""Streams an answer from a Baton router, with only grpcio and the generated stubs.

README.md beside this file says how to generate the stubs.
"""

import argparse
import sys
import time

import grpc

from baton.v1 import inference_pb2, inference_pb2_grpc


def main():
    parser = argparse.ArgumentParser(description="Streams an answer from a Baton router.")
    parser.add_argument("prompt")
    parser.add_argument("--router", default="127.0.0.1:50051", metavar="HOST:PORT")
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()

    request = inference_pb2.GenerateRequest(text=arguments.prompt)
    # A field that is not set takes the model's own default, so set only what was asked for.
    for name in ("max_tokens", "temperature", "seed"):
        value = getattr(arguments, name)
        if value is not None:
            setattr(request.sampling, name, value)

    tokens = 0
    started = time.monotonic()
    first_token = None
    with grpc.insecure_channel(arguments.router) as channel:
        router = inference_pb2_grpc.InferenceStub(channel)
        try:
            for event in router.Generate(request):
                kind = event.WhichOneof("event")
                if kind == "delta":
                    if event.delta.tokens and first_token is None:
                        first_token = time.monotonic() - started
                    tokens += len(event.delta.tokens)
                    print(event.delta.text, end="", flush=True)
                elif kind == "summary":
                    timing = event.summary.timing
                    print(flush=True)
                    print(
                        f"{tokens} tokens, the first after {first_token or 0:.3f} s; "
                        f"prefill {timing.prefill_us} us, decode {timing.decode_us} us, "
                        f"seed {event.summary.seed}",
                        file=sys.stderr,
                    )
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
