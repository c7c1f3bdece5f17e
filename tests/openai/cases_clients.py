"""Cases about time-outs, retries, cancellation and many streams at once."""
import asyncio
import time

import openai

import cases_connections
from proxy import Proxy
from suite import Skipped, baton_case, case

STORY = "Once upon a time, in a small village,"
LONGEST_WAIT = 60  # seconds; only ends a case whose server does not stop
STREAMS = 32


def wait_until_idle(server, check):
    """Waits until the server computes nothing."""
    end = time.monotonic() + LONGEST_WAIT
    while server.running():
        check.need(time.monotonic() < end, f"requests still run after {LONGEST_WAIT} s")
        # llama-server looks for clients that have left once it has had nothing to send for a second, to any client.
        time.sleep(1.5)


def check_stops(server, check, leave):
    """Calls `leave` with the fields of a long answer; it begins the request and leaves early. The server must not
    compute more than half of what was asked for."""
    fields = server.long_answer()
    wait_until_idle(server, check)
    before = server.generated()
    leave(fields)
    wait_until_idle(server, check)
    share = (server.generated() - before) / fields["max_tokens"]
    check(share < 0.5, f"the server computes {share:.0%} of the answer though the client has left at its beginning")


@case
def time_out(server, check):
    """A request that takes longer than the client's time-out raises APITimeoutError. Baton knows the time-out and may
    answer 504 before it."""
    fields = server.long_answer()
    client = server.client.with_options(timeout=0.2, max_retries=0)
    try:
        client.completions.create(**server.fields(**fields))
    except openai.APITimeoutError:
        return
    except openai.InternalServerError as error:
        check(error.status_code == 504, f"the status is {error.status_code}")
        return
    raise Skipped("the whole answer came within 0.2 s: use a larger model")


@case
def time_out_stops_the_server(server, check):
    """After the client's time-out the server does not go on with the answer."""

    def leave(fields):
        try:
            server.client.with_options(timeout=0.2, max_retries=0).completions.create(**server.fields(**fields))
        except (openai.APITimeoutError, openai.InternalServerError):
            return
        raise Skipped("the whole answer came within 0.2 s: use a larger model")

    check_stops(server, check, leave)


@baton_case
def deadline_of_the_client(server, check):
    """The client's time-out, which it sends as x-stainless-read-timeout, is the deadline. It gives 504 with
    x-should-retry: false."""
    reply = server.post({"x-stainless-read-timeout": "0.1"}, **server.long_answer())
    check.need(reply.status == 504, f"the status is {reply.status}")
    check(reply.headers.get("x-should-retry") == "false", f"x-should-retry is {reply.headers.get('x-should-retry')!r}")


@case
def closed_stream_stops_the_server(server, check):
    """A stream that the client closes after three chunks ends the answer."""

    def leave(fields):
        with server.client.completions.create(**server.fields(**fields, stream=True)) as stream:
            for _ in range(3):
                next(stream)

    check_stops(server, check, leave)


@case
def cancelled_task_stops_the_server(server, check):
    """A task of asyncio that is cancelled while it reads a stream ends the answer."""

    async def leave(fields):
        begun = asyncio.Event()

        async def read(client):
            async for _ in await client.completions.create(**server.fields(**fields, stream=True)):
                begun.set()

        async with server.new_client(openai.AsyncOpenAI) as client:
            task = asyncio.create_task(read(client))
            await asyncio.wait_for(begun.wait(), LONGEST_WAIT)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    check_stops(server, check, lambda fields: asyncio.run(leave(fields)))


@case
def closed_connection_stops_the_server(server, check):
    """An answer that is not streamed ends when the client closes its connection."""

    def leave(fields):
        body = cases_connections.completion(server, **fields)
        with server.connect() as to_server:
            to_server.sendall(cases_connections.request(server, body) + body)
            end = time.monotonic() + LONGEST_WAIT
            while not server.running() and time.monotonic() < end:
                time.sleep(0.005)

    check_stops(server, check, leave)


@case
def retry_after_429(server, check):
    """The client comes again after a 429 with Retry-After, and gets the answer. (A proxy of the suite answers 429.)"""
    with Proxy(server, refusals=1, headers={"Retry-After": "1"}) as proxy:
        client = server.new_client(openai.OpenAI, proxy.url, max_retries=2)
        begin = time.monotonic()
        got = client.completions.create(**server.fields(STORY))
        check(time.monotonic() - begin >= 1, "the client does not wait for the time of Retry-After")
    check(got.choices[0].text == server.text(STORY), "the answer differs from the one without a proxy")
    check(proxy.retry_counts == ["0", "1"], f"the proxy saw the attempts {proxy.retry_counts}")


@case
def rate_limit_error(server, check):
    """Without retries a 429 raises RateLimitError, which has Retry-After. (A proxy of the suite answers 429.)"""
    with Proxy(server, refusals=1, headers={"Retry-After": "7"}) as proxy:
        client = server.new_client(openai.OpenAI, proxy.url)
        error = check.raises(openai.RateLimitError, lambda: client.completions.create(**server.fields(STORY)))
    check(error.response.headers.get("retry-after") == "7", "the error has no Retry-After")


@case
def no_retry_where_the_server_says_so(server, check):
    """x-should-retry: false, which Baton sends with 504, keeps the client from coming again. (A proxy of the suite answers
    504.)"""
    with Proxy(server, refusals=1, status=504, headers={"x-should-retry": "false"}) as proxy:
        client = server.new_client(openai.OpenAI, proxy.url, max_retries=2)
        check.raises(openai.InternalServerError, lambda: client.completions.create(**server.fields(STORY)))
    check(proxy.retry_counts == ["0"], f"the proxy saw the attempts {proxy.retry_counts}")


@case
def raw_response_has_headers(server, check):
    """The client's with_raw_response gives the head and the parsed answer."""
    got = server.client.completions.with_raw_response.create(**server.fields(STORY))
    check.content_type(got, "application/json")
    check(got.parse().choices[0].text == server.text(STORY), "the answer is another one")


async def read_streams(server):
    """Returns id, text and finish_reason of 32 streams that run at the same time, with 8 prompts."""
    async with server.new_client(openai.AsyncOpenAI) as client:

        async def read(number):
            name, text, finish = None, "", None
            fields = server.fields(f"Item {number % 8} of the list is", stream=True, max_tokens=12)
            async for chunk in await client.completions.create(**fields):
                name = chunk.id
                for choice in chunk.choices:
                    text, finish = text + choice.text, choice.finish_reason or finish
            return name, text, finish

        return await asyncio.gather(*map(read, range(STREAMS)))


@case
def concurrent_streams(server, check):
    """AsyncOpenAI reads 32 streams at once. Each has its own id and ends."""
    got = asyncio.run(read_streams(server))
    check(len({name for name, _, _ in got}) == STREAMS, "two streams have the same id")
    check(all(finish in ("stop", "length") for _, _, finish in got), "a stream ends without finish_reason")


@baton_case
def answers_do_not_depend_on_the_batch(server, check):
    """A greedy answer is the same alone and beside 31 others."""
    got = asyncio.run(read_streams(server))
    alone = [server.text(f"Item {number} of the list is", max_tokens=12) for number in range(8)]
    differing = sum(text != alone[i % 8] for i, (_, text, _) in enumerate(got))
    check(not differing, f"{differing} of {STREAMS} answers differ")


@case
def async_client(server, check):
    """AsyncOpenAI gives the answer of OpenAI, whole and streamed."""

    async def ask():
        async with server.new_client(openai.AsyncOpenAI) as client:
            whole = (await client.completions.create(**server.fields(STORY))).choices[0].text
            stream = await client.completions.create(**server.fields(STORY, stream=True))
            return whole, "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])

    whole, streamed = asyncio.run(ask())
    check(whole == streamed == server.text(STORY), "the texts differ")
