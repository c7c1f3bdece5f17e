"""Cases about chat: /v1/chat/completions."""
import json
import time

import openai

from suite import baton_case, case, events

HELLO = [{"role": "user", "content": "Name three colours."}]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def chat(server, messages=None, client=None, **fields):
    """Asks greedily for 12 tokens where `fields` do not say otherwise."""
    given = {"model": server.model, "messages": messages or HELLO, "temperature": 0, "max_tokens": 12, **fields}
    extra = given.pop("extra_body", {})
    return (client or server.client).chat.completions.create(**given, extra_body=extra)


def post(server, **fields):
    body = {"model": server.model, "messages": HELLO, "max_tokens": 4, "temperature": 0, **fields}
    return server.ask("POST", "/v1/chat/completions", {name: value for name, value in body.items() if value is not ...})


@case
def chat_answer(server, check):
    """A chat answer has the message of the assistant, a finish_reason, and the usage."""
    answer = chat(server)
    check(answer.object == "chat.completion", f"object is {answer.object!r}")
    check(answer.id.startswith("chatcmpl-"), f"id is {answer.id!r}")
    choice = answer.choices[0]
    check(choice.message.role == "assistant" and choice.message.content, f"the message is {choice.message}")
    check(choice.finish_reason in ("length", "stop"), f"finish_reason is {choice.finish_reason!r}")
    usage = answer.usage
    check(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, "total_tokens is not the sum")


@case
def chat_stream_equals_whole(server, check):
    """The pieces of a chat stream together are the content of the whole answer, greedy and with a seed."""
    for fields in ({}, {"temperature": 1, "seed": 3}):
        whole = chat(server, **fields).choices[0].message.content
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chat(server, stream=True, **fields) if chunk.choices)
        check(text == whole, f"the texts differ with {fields or 'temperature 0'}")


@baton_case
def chat_role_comes_with_the_first_token(server, check):
    """The role comes with the first token, and never before: load tools take the first chunk for the first token."""
    chunks = [chunk.choices[0] for chunk in chat(server, stream=True) if chunk.choices]
    check(chunks[0].delta.role == "assistant", f"the first role is {chunks[0].delta.role!r}")
    check(bool(chunks[0].delta.content), "the first chunk has no content")
    check(all(chunk.delta.role is None for chunk in chunks[1:]), "a later chunk has a role")
    check(chunks[-1].finish_reason is not None and not chunks[-1].delta.content, "the last chunk is not the end alone")


@case
def chat_usage_chunk(server, check):
    """With include_usage the last chunk of a chat stream has usage and no choice."""
    chunks = list(chat(server, stream=True, stream_options={"include_usage": True}))
    check.need(chunks[-1].usage is not None, "the last chunk has no usage")
    check(chunks[-1].choices == [], "the chunk with usage has a choice")
    check({chunk.object for chunk in chunks} == {"chat.completion.chunk"}, "object changes")


@case
def chat_logprobs(server, check):
    """With logprobs and top_logprobs each token of a chat answer has its logprob, bytes and alternatives."""
    choice = chat(server, logprobs=True, top_logprobs=2).choices[0]
    check.need(choice.logprobs and choice.logprobs.content, "there are no logprobs.content")
    tokens = choice.logprobs.content
    check("".join(token.token for token in tokens).startswith(choice.message.content), "the tokens are not the content")
    check(all(len(token.top_logprobs) == 2 for token in tokens), "a token has not two alternatives")
    check(all(bytes(token.bytes).decode(errors="replace") == token.token for token in tokens), "bytes are not the token's")
    check(all(token.logprob <= 0 for token in tokens), "a logprob is above 0")


@case
def chat_top_logprobs_need_logprobs(server, check):
    """top_logprobs without logprobs is refused with 400."""
    reply = post(server, top_logprobs=2)
    check(reply.status == 400, f"the status is {reply.status}")


@case
def chat_n(server, check):
    """n answers of a chat have the indices 0 to n-1, whole and streamed, and the first is that of n=1."""
    fields = {"temperature": 1, "seed": 5}
    answers = chat(server, n=3, **fields).choices
    check([choice.index for choice in answers] == [0, 1, 2], "the indices differ")
    check(answers[0].message.content == chat(server, **fields).choices[0].message.content, "answer 0 differs from that of n=1")
    texts = {}
    for chunk in chat(server, n=3, stream=True, **fields):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    check(texts == {choice.index: choice.message.content for choice in answers}, "the stream differs")


@case
def chat_turns_with_model_dump(server, check):
    """The message of an answer can be sent back as model_dump(), in a second and a third turn."""
    messages = list(HELLO)
    for text in ("Which of them is the sky?", "Thank you."):
        messages.append(chat(server, messages).choices[0].message.model_dump())
        messages.append({"role": "user", "content": text})
    answer = chat(server, messages)
    check(answer.choices[0].message.content is not None, "the third turn has no content")


@baton_case
def chat_turns_are_cached(server, check):
    """A later turn finds the turns before it in the prefix cache."""
    messages = [{"role": "system", "content": f"It is {time.time_ns()}. " + "You answer in short sentences. " * 8}, *HELLO]
    first = chat(server, messages)
    messages += [first.choices[0].message.model_dump(), {"role": "user", "content": "And three more?"}]
    second = chat(server, messages)
    cached = second.usage.prompt_tokens_details.cached_tokens
    check(cached >= first.usage.prompt_tokens // 16 * 16 > 0, f"{cached} tokens are cached of {first.usage.prompt_tokens}")


@case
def chat_tools_in_history(server, check):
    """Tools, calls of them and their results can stand in the history of a chat."""
    messages = [{"role": "user", "content": "What is the weather in Paris?"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
                {"role": "user", "content": "So?"}]
    answer = chat(server, messages, tools=[WEATHER], tool_choice="none")
    check(answer.choices[0].message.content is not None, "there is no content")


@case
def chat_parts(server, check):
    """A content may be a list of text parts."""
    parts = [{"role": "user", "content": [{"type": "text", "text": "Name three"}, {"type": "text", "text": "colours."}]}]
    check(chat(server, parts).choices[0].message.content is not None, "there is no content")


@baton_case
def chat_refuses_images(server, check):
    """A part that is no text is refused with 400."""
    reply = post(server, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}])
    check(reply.status == 400 and reply.error().get("param", "").startswith("messages"), f"{reply.status} {reply.error()}")


@baton_case
def chat_refuses_calls_of_tools(server, check):
    """tool_choice auto with tools, required and a function are refused, since answers are not searched for calls."""
    for choice in ("auto", "required", {"type": "function", "function": {"name": "weather"}}, ...):
        reply = post(server, tools=[WEATHER], tool_choice=choice)
        check(reply.status == 400, f"{choice} gets {reply.status}")


@case
def chat_max_completion_tokens(server, check):
    """max_completion_tokens limits the answer."""
    answer = chat(server, max_tokens=openai.NOT_GIVEN, max_completion_tokens=3)
    check(answer.usage.completion_tokens == 3, f"there are {answer.usage.completion_tokens} tokens")
    check(answer.choices[0].finish_reason == "length", f"finish_reason is {answer.choices[0].finish_reason!r}")


@case
def chat_without_a_limit(server, check):
    """Without a limit a chat answer goes on to its own end, and not to 16 tokens."""
    answer = chat(server, [{"role": "user", "content": "Explain what rain is."}], max_tokens=openai.NOT_GIVEN,
                  extra_body={"min_tokens": 20})
    check(answer.usage.completion_tokens > 16, f"there are {answer.usage.completion_tokens} tokens")


@case
def chat_stop(server, check):
    """A stop string ends a chat answer, and is no part of it."""
    whole = chat(server).choices[0].message.content
    stop = whole[3:8]
    text = chat(server, stop=[stop]).choices[0].message.content
    check(text == whole[:whole.index(stop)], f"the text is {text!r}")


@baton_case
def chat_typed_special_token_is_text(server, check):
    """A special token that a person types is no token: the template's own ones are as many as without it."""
    def tokens(text):
        return server.ask("POST", "/tokenize", {"messages": [{"role": "user", "content": text}]}).json()["tokens"]
    plain, typed = tokens("a b"), tokens("a <|im_end|><|end_of_turn|> b")
    rare = {id for id in plain if plain.count(id) != typed.count(id) and id not in server.ids("a b")}
    check(not rare, f"the tokens {sorted(rare)} occur more or less often")
    check(len(typed) > len(plain), "the typed text has no tokens")


@baton_case
def chat_refuses_other_roles(server, check):
    """A role that nobody knows is refused with its place."""
    reply = post(server, messages=[*HELLO, {"role": "im_end", "content": "x"}])
    check(reply.status == 400 and reply.error().get("param") == "messages[1].role", f"{reply.status} {reply.error()}")


@baton_case
def chat_continues_the_last_message(server, check):
    """With continue_final_message the answer continues the last message."""
    messages = [*HELLO, {"role": "assistant", "content": "Red, green and"}]
    both = {"continue_final_message": True, "add_generation_prompt": True}
    check(post(server, messages=messages, **both).status == 400, "both flags together are not refused")
    answer = chat(server, messages, extra_body={"continue_final_message": True, "add_generation_prompt": False})
    check(bool(answer.choices[0].message.content), "there is no content")


@case
def chat_cancelled_stream(server, check):
    """A client that closes a chat stream ends the request."""
    stream = chat(server, max_tokens=server.context() - 100, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    until = time.monotonic() + 30
    while server.running() > 0 and time.monotonic() < until:
        time.sleep(0.02)
    check(server.running() == 0, "the request still runs")


@case
def chat_raw_stream(server, check):
    """On the wire each event of a chat is one line `data: {...}` and a blank line, and `[DONE]` is last."""
    reply = post(server, stream=True)
    check.need(reply.status == 200, f"the status is {reply.status}")
    data = events(reply)
    check(data[-1] == "[DONE]", "the last event is not [DONE]")
    check(all(isinstance(json.loads(one), dict) for one in data[:-1]), "an event is no JSON object")


@baton_case
def chat_tokenize(server, check):
    """/tokenize takes messages, and counts as many tokens as the answer's usage."""
    reply = server.ask("POST", "/tokenize", {"messages": HELLO})
    check.need(reply.status == 200, f"the status is {reply.status}")
    check(reply.json()["count"] == chat(server).usage.prompt_tokens, "the counts differ")
