"""Cases about streams."""
import json

from suite import Skipped, baton_case, case, events

STORY = "Once upon a time, in a small village,"


@case
def stream_equals_whole(server, check):
    """The pieces of a stream together are the text of the whole answer, greedy and with a seed."""
    for fields in ({}, {"temperature": 1, "seed": 3}):
        whole = server.text(STORY, max_tokens=24, **fields)
        text = server.streamed_text(STORY, max_tokens=24, **fields)
        check(text == whole, f"the texts differ with {fields or 'temperature 0'}")


@case
def stream_has_one_id(server, check):
    """All chunks have the same id, `created`, model and `object`."""
    chunks = list(server.complete(STORY, stream=True))
    check.need(len(chunks) > 2, f"there are {len(chunks)} chunks")
    for name in ("id", "created", "model", "object"):
        check(len({getattr(chunk, name) for chunk in chunks}) == 1, f"{name} changes within the stream")
    check(chunks[0].object == "text_completion", f"object is {chunks[0].object!r}")


@case
def finish_chunk(server, check):
    """The last chunk with a choice has finish_reason and empty text, and no other one has finish_reason."""
    chunks = [chunk.choices[0] for chunk in server.stream(STORY, ignore_eos=True)]
    check(chunks[-1].finish_reason == "length", f"finish_reason is {chunks[-1].finish_reason!r}")
    check(chunks[-1].text == "", f"the chunk with finish_reason has the text {chunks[-1].text!r}")
    check(all(chunk.finish_reason is None for chunk in chunks[:-1]), "an earlier chunk has a finish_reason")


@baton_case
def one_event_per_token(server, check):
    """There is one event for each token, and one with finish_reason."""
    count = len(server.stream(STORY, max_tokens=12, ignore_eos=True))
    check(count == 13, f"there are {count} events for 12 tokens")


@case
def no_usage_unless_asked(server, check):
    """Without stream_options no chunk has usage, and each chunk has a choice."""
    chunks = list(server.complete(STORY, stream=True))
    check(all(chunk.usage is None for chunk in chunks), "a chunk has usage")
    check(all(len(chunk.choices) == 1 for chunk in chunks), "a chunk has no choice")


@case
def usage_chunk(server, check):
    """With include_usage the last chunk has usage and no choice, and no other chunk has usage."""
    chunks = list(server.complete(STORY, stream=True, stream_options={"include_usage": True}, ignore_eos=True))
    check.need(chunks[-1].usage is not None, "the last chunk has no usage")
    check(chunks[-1].choices == [], "the chunk with usage has a choice")
    check(all(chunk.usage is None for chunk in chunks[:-1]), "an earlier chunk has usage")
    check(chunks[-1].usage.completion_tokens == 8, f"usage has {chunks[-1].usage.completion_tokens} tokens for 8")
    check(chunks[-1].usage.total_tokens == chunks[-1].usage.prompt_tokens + 8, "total_tokens is not the sum")


@baton_case
def continuous_usage(server, check):
    """With continuous_usage_stats each chunk has usage, which grows to that of the last one."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(server.complete(STORY, stream=True, stream_options=options, ignore_eos=True))
    check.need(all(chunk.usage for chunk in chunks), "a chunk has no usage")
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    check(counts == sorted(counts) and counts[0] >= 1 and counts[-1] == 8, f"the counts are {counts}")


@case
def stream_options_need_stream(server, check):
    """stream_options without stream is refused with 400 and the parameter's name."""
    reply = server.post(stream_options={"include_usage": True})
    check.need(reply.status == 400, f"the status is {reply.status}")
    check(reply.error().get("param") == "stream_options", f"param is {reply.error().get('param')!r}")


@case
def raw_stream(server, check):
    """On the wire each event is one line `data: {...}` and a blank line. There are no comments, and `[DONE]` is last."""
    reply = server.post(stream=True, max_tokens=6)
    check.need(reply.status == 200, f"the status is {reply.status}")
    check.content_type(reply, "text/event-stream")
    check(reply.body.endswith(b"data: [DONE]\n\n"), "the stream does not end with data: [DONE] and a blank line")
    lines = reply.body.decode().split("\n")
    check(all(not line or line.startswith("data: ") for line in lines), "a line is neither blank nor data")
    check(all(isinstance(json.loads(data), dict) for data in events(reply)[:-1]), "an event is no JSON object")


@baton_case
def stream_headers(server, check):
    """A stream's head forbids caches and buffering proxies to hold it."""
    headers = server.post(stream=True).headers
    check("no-cache" in headers.get("cache-control", ""), f"Cache-Control is {headers.get('cache-control')!r}")
    check(headers.get("x-accel-buffering") == "no", f"X-Accel-Buffering is {headers.get('x-accel-buffering')!r}")


@case
def stream_of_several_answers(server, check):
    """With two prompts and n=2 the chunks of a stream carry the indices 0 to 3, and each index ends once."""
    ends, texts = [], {}
    for chunk in server.complete([STORY, "One, two,"], n=2, stream=True, temperature=1, seed=1):
        check.need(chunk is not None, "the client can't read an event: it gets None")
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            ends += [choice.index] if choice.finish_reason else []
    check(sorted(ends) == [0, 1, 2, 3], f"the indices that end are {sorted(ends)}")
    whole = server.complete([STORY, "One, two,"], n=2, temperature=1, seed=1).choices
    check(texts == {choice.index: choice.text for choice in whole}, "the texts differ from those of the whole answer")


@case
def stream_with_logprobs(server, check):
    """The chunks of a stream have the logprobs of their tokens, the same as those of the whole answer."""
    whole = server.complete(STORY, logprobs=2, ignore_eos=True).choices[0].logprobs
    check.need(whole and whole.tokens, "the whole answer has no logprobs.tokens")
    tokens, values, offsets = [], [], []
    for chunk in server.complete(STORY, logprobs=2, ignore_eos=True, stream=True):
        for choice in chunk.choices:
            if choice.logprobs:
                tokens += choice.logprobs.tokens
                values += choice.logprobs.token_logprobs
                offsets += choice.logprobs.text_offset
    check(tokens == whole.tokens, "the tokens differ")
    differences = [abs(one - other) for one, other in zip(values, whole.token_logprobs)]
    check(len(differences) == len(tokens) and max(differences) < 1e-3, "the values differ")
    check(offsets == whole.text_offset, "the offsets differ")


@case
def stream_with_stop(server, check):
    """No chunk has a part of the stop string, even if the string goes over several tokens."""
    whole = server.text(STORY, max_tokens=32, ignore_eos=True)
    if len(whole) < 30:
        raise Skipped(f"the answer {whole!r} is too short for the case")
    stop = whole[10:22]
    text = server.streamed_text(STORY, max_tokens=32, stop=[stop], ignore_eos=True)
    check(text == whole[:whole.index(stop)], "the text is not what stands before the stop string")


@case
def stream_echo(server, check):
    """A stream with `echo` begins with the prompt."""
    text = server.streamed_text(STORY, echo=True)
    check(text == STORY + server.text(STORY), "the text is not the prompt and the answer")


@case
def refused_stream_is_a_status(server, check):
    """A stream that can't begin is refused by its status, as JSON."""
    reply = server.post(stream=True, temperature=-1)
    check(400 <= reply.status < 500, f"the status is {reply.status}")
    check.content_type(reply, "application/json")


@baton_case
def timing(server, check):
    """With the header x-baton-timing: 1 the usage chunk has `timing` with queue, prefill, hand-over and decode in ms."""
    reply = server.post({"x-baton-timing": "1"}, stream=True, stream_options={"include_usage": True})
    check.need(reply.status == 200, f"the status is {reply.status}")
    found = json.loads(events(reply)[-2])
    timing = found.get("timing") or (found.get("usage") or {}).get("timing")
    check.need(isinstance(timing, dict), "the usage chunk has no timing")
    for part in ("queue", "prefill", "hand", "decode"):
        check(any(part in key for key in timing), f"timing has no part named {part}: {sorted(timing)}")
