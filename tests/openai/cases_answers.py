"""Cases about whole answers: prompts, sampling, stops and usage."""
import itertools
import secrets
import time

from suite import Broken, baton_case, case

COUNTING = "One, two, three, four, five, six, seven,"
STORY = "Once upon a time, in a small village,"


@case
def plain_completion(server, check):
    """An answer has an id, `object`, `created`, the model, one choice with text and finish_reason, and usage that adds
    up."""
    got = server.complete(STORY)
    check(got.id and got.object == "text_completion", f"object is {got.object!r}")
    check(isinstance(got.created, int) and got.created > 1_500_000_000, "created is no time in seconds")
    check(got.model == server.model, "model is another one than asked for")
    check.need(len(got.choices) == 1, f"there are {len(got.choices)} choices")
    choice = got.choices[0]
    check(choice.index == 0 and choice.text, f"the choice has index {choice.index} and the text {choice.text!r}")
    check(choice.finish_reason in ("stop", "length"), f"finish_reason is {choice.finish_reason!r}")
    check(choice.logprobs is None, "logprobs is not null though they were not asked for")
    usage = got.usage
    check(usage.prompt_tokens >= len(server.ids(STORY)), f"usage has {usage.prompt_tokens} prompt tokens")
    check(0 < usage.completion_tokens <= 8, f"usage has {usage.completion_tokens} tokens of the answer")
    check(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, "total_tokens is not the sum")


@baton_case
def system_fingerprint(server, check):
    """All answers have the same `system_fingerprint`, the identity that the router serves."""
    first, second = server.complete(STORY), server.complete(COUNTING)
    check(first.system_fingerprint, "there is no system_fingerprint")
    check(first.system_fingerprint == second.system_fingerprint, "it changes from answer to answer")


@case
def default_max_tokens(server, check):
    """Without max_tokens an answer has at most 16 tokens."""
    fields = server.fields(STORY, max_tokens=..., ignore_eos=True, stream=True, stream_options={"include_usage": True})
    with server.client.completions.create(**fields) as stream:
        chunks = list(itertools.islice(stream, 40))  # Another server may go on for ever.
    check.need(len(chunks) < 40, "the answer has more than 16 tokens")
    check(chunks[-1].usage.completion_tokens == 16, f"the answer has {chunks[-1].usage.completion_tokens} tokens")


@case
def list_of_prompts(server, check):
    """Each text of a list has a choice with its own index, and the text that it gets alone. Usage counts all."""
    prompts = [STORY, COUNTING, "The capital of France is"]
    got = server.complete(prompts)
    check.need(len(got.choices) == 3, f"there are {len(got.choices)} choices for 3 prompts")
    check([choice.index for choice in got.choices] == [0, 1, 2], "the indices are not 0, 1, 2")
    alone = [server.complete(prompt) for prompt in prompts]
    texts = [one.choices[0].text for one in alone]
    check([choice.text for choice in got.choices] == texts, "a text differs from the one alone")
    for name in ("prompt_tokens", "completion_tokens"):
        check(getattr(got.usage, name) == sum(getattr(one.usage, name) for one in alone), f"{name} is not the sum")


@case
def prompt_of_ids(server, check):
    """A list of token ids is one prompt, with the answer of its text."""
    ids = server.ids(COUNTING)
    got = server.complete(ids)
    check.need(len(got.choices) == 1, f"there are {len(got.choices)} choices")
    check(got.usage.prompt_tokens == len(ids), f"usage has {got.usage.prompt_tokens} tokens for {len(ids)} ids")
    expected = server.text(COUNTING, add_special_tokens=False)
    check(got.choices[0].text == expected, "the answer differs from that to the prompt as text")


@case
def lists_of_ids(server, check):
    """A list of lists of token ids is one prompt for each list."""
    lists = [server.ids(STORY), server.ids(COUNTING)]
    got = server.complete(lists)
    check.need(len(got.choices) == 2, f"there are {len(got.choices)} choices for 2 lists")
    check(got.usage.prompt_tokens == sum(map(len, lists)), f"usage has {got.usage.prompt_tokens} prompt tokens")
    texts = [server.text(ids) for ids in lists]
    check([choice.text for choice in got.choices] == texts, "a text differs from the one alone")


@case
def several_answers(server, check):
    """With n=3 there are three choices with the indices 0, 1, 2, not all equal at temperature 1, and usage counts the
    prompt once."""
    got = server.complete(STORY, n=3, temperature=1, seed=5, max_tokens=16)
    check.need(len(got.choices) == 3, f"there are {len(got.choices)} choices")
    check(sorted(choice.index for choice in got.choices) == [0, 1, 2], "the indices are not 0, 1, 2")
    check(len({choice.text for choice in got.choices}) > 1, "all answers are equal")
    alone = server.complete(STORY).usage.prompt_tokens
    check(got.usage.prompt_tokens == alone, f"the prompt counts {got.usage.prompt_tokens} tokens, and {alone} with n=1")


@case
def several_answers_to_several_prompts(server, check):
    """Answer j of prompt i has index i*n+j, and begins with prompt i where `echo` is set."""
    prompts = [STORY, COUNTING]
    got = server.complete(prompts, n=2, temperature=1, echo=True, max_tokens=4)
    check.need(sorted(choice.index for choice in got.choices) == [0, 1, 2, 3], "the indices are not 0 to 3")
    for choice in got.choices:
        check(choice.text.startswith(prompts[choice.index // 2]), f"choice {choice.index} does not begin with its prompt")


@case
def stop_string(server, check):
    """A stop string ends the answer, is not part of the text, and gives finish_reason `stop`."""
    whole = server.text(COUNTING, max_tokens=24, ignore_eos=True)
    stop = whole.strip()[5:7]
    check.need(len(stop) == 2, f"the answer without a stop string is {whole!r}")
    for given in (stop, [stop, "\u2603\u2603"]):
        choice = server.complete(COUNTING, max_tokens=24, stop=given, ignore_eos=True).choices[0]
        form = "a string" if given is stop else "a list"
        check(choice.finish_reason == "stop", f"finish_reason is {choice.finish_reason!r} with {form}")
        check(choice.text == whole[:whole.index(stop)], f"the text does not end before the stop string with {form}")


@baton_case
def stop_reason(server, check):
    """`stop_reason` names the stop string or the stop token, and is null at the end token and at the length."""
    whole = server.text(COUNTING, max_tokens=24, ignore_eos=True)
    stop = whole.strip()[5:7]
    choice = server.complete(COUNTING, max_tokens=24, stop=[stop]).choices[0]
    check(getattr(choice, "stop_reason", None) == stop, "stop_reason is not the stop string")
    token = server.ids(whole)[2]
    choice = server.complete(COUNTING, max_tokens=24, stop_token_ids=[token]).choices[0]
    check(getattr(choice, "stop_reason", None) == token, "stop_reason is not the id of the stop token")
    choice = server.complete(COUNTING, max_tokens=2).choices[0]
    check(getattr(choice, "stop_reason", ...) is None, "stop_reason is not null at the length")


@case
def stop_null(server, check):
    """stop=null means no stop string."""
    check(server.text(COUNTING, stop=None) == server.text(COUNTING), "the answer differs from that without stop")


@baton_case
def stop_token_ids(server, check):
    """A token of `stop_token_ids` ends the answer with finish_reason `stop`."""
    whole = server.text(COUNTING, max_tokens=16, ignore_eos=True)
    token = server.ids(whole)[3]
    got = server.complete(COUNTING, max_tokens=16, stop_token_ids=[token])
    check(got.choices[0].finish_reason == "stop", f"finish_reason is {got.choices[0].finish_reason!r}")
    count = got.usage.completion_tokens
    check(count <= 4, f"the answer has {count} tokens, and the stop token was at most the fourth")


@case
def ignore_eos(server, check):
    """With `ignore_eos` an answer has exactly max_tokens tokens."""
    got = server.complete(STORY, max_tokens=48, ignore_eos=True)
    check(got.usage.completion_tokens == 48, f"the answer has {got.usage.completion_tokens} tokens")
    check(got.choices[0].finish_reason == "length", f"finish_reason is {got.choices[0].finish_reason!r}")


@baton_case
def min_tokens(server, check):
    """No stop token ends the answer within the first `min_tokens` tokens."""
    token = server.ids(server.text(COUNTING, max_tokens=8, ignore_eos=True))[1]
    short = server.complete(COUNTING, max_tokens=16, stop_token_ids=[token])
    check.need(short.choices[0].finish_reason == "stop", "the stop token does not end the answer without min_tokens")
    got = server.complete(COUNTING, max_tokens=16, stop_token_ids=[token], min_tokens=8)
    check(got.usage.completion_tokens >= 8, f"the answer has {got.usage.completion_tokens} tokens")


@baton_case
def bad_words(server, check):
    """A word of `bad_words` is not in the answer."""
    word = max(server.text(COUNTING, max_tokens=12, ignore_eos=True).replace(",", " ").split(), key=len)
    text = server.text(COUNTING, max_tokens=12, ignore_eos=True, bad_words=[word])
    check(word not in text, "the answer has the word")


@case
def logit_bias_bans(server, check):
    """A bias of -100 keeps a token from the answer."""
    first = server.ids(server.text(COUNTING, max_tokens=1))[0]
    text = server.text(COUNTING, max_tokens=1, logit_bias={str(first): -100})
    check(server.ids(text)[:1] != [first], "the banned token is in the answer")


@case
def logit_bias_forces(server, check):
    """A bias of 100 makes each token of the answer that token."""
    token, *rest = server.ids(" the")
    check.need(not rest, "\" the\" is not one token of this model, choose another word")
    text = server.text(COUNTING, max_tokens=3, logit_bias={str(token): 100})
    check(text == " the the the", f"the answer is {text!r}")


@case
def penalties(server, check):
    """A presence and a frequency penalty of 2 change an answer that repeats itself; penalties of 0 change nothing."""
    prompt = "la la la la la la la la la la"
    plain = server.text(prompt, max_tokens=24)
    for value, equal in ((0, True), (2, False)):
        text = server.text(prompt, max_tokens=24, presence_penalty=value, frequency_penalty=value)
        check((text == plain) == equal, f"penalties of {value} {'change it' if equal else 'change nothing'}")


@baton_case
def repetition_penalty(server, check):
    """A `repetition_penalty` of 2 changes an answer that repeats itself."""
    prompt = "la la la la la la la la la la"
    text = server.text(prompt, max_tokens=24, repetition_penalty=2.0)
    check(text != server.text(prompt, max_tokens=24), "it changes nothing")


@case
def top_k_of_one(server, check):
    """At temperature 1, `top_k` 1 gives the greedy answer, and so does a `top_p` near 0."""
    greedy = server.text(STORY, max_tokens=12)
    check(server.text(STORY, max_tokens=12, temperature=1, top_k=1) == greedy, "top_k=1 gives another answer")
    check(server.text(STORY, max_tokens=12, temperature=1, top_p=1e-6) == greedy, "top_p=1e-6 gives another answer")


@case
def min_p_of_one(server, check):
    """At temperature 1, `min_p` 1 gives the greedy answer."""
    text = server.text(STORY, max_tokens=12, temperature=1, min_p=1.0)
    check(text == server.text(STORY, max_tokens=12), "it is another one")


@case
def same_seed_same_answer(server, check):
    """At temperature 1, the same seed gives the same answer, and another seed another one."""
    first, again, other = (server.text(STORY, max_tokens=24, temperature=1, seed=seed) for seed in (11, 11, 12))
    check(first == again, "the same seed gives two answers")
    check(first != other, "two seeds give the same answer")


@case
def negative_seed(server, check):
    """A negative seed is a seed like others: the same one gives the same answer, and another one another answer."""
    first, again, other = (server.text(STORY, max_tokens=24, temperature=1, seed=seed) for seed in (-7, -7, -8))
    check(first == again, "the same seed gives two answers")
    check(first != other, "two seeds give the same answer")


@case
def default_temperature(server, check):
    """Without a temperature answers are sampled: eight requests without a seed do not all give the same answer."""
    texts = {server.text(STORY, max_tokens=24, temperature=...) for _ in range(8)}
    check(len(texts) > 1, "all are equal")


@case
def cached_tokens(server, check):
    """A repeated prompt has `prompt_tokens_details.cached_tokens` above 0, and a new one has 0."""
    prompt = f"{secrets.token_hex(8)} " + "The quick brown fox jumps over the lazy dog. " * 16
    new, repeated = (server.complete(prompt).usage for _ in range(2))
    check.need(new.prompt_tokens_details and repeated.prompt_tokens_details, "usage has no prompt_tokens_details")
    check(not new.prompt_tokens_details.cached_tokens, "a new prompt has cached tokens")
    cached = repeated.prompt_tokens_details.cached_tokens
    check(cached and cached > 0, f"the repeated prompt has cached_tokens {cached}")
    check(not cached or cached < repeated.prompt_tokens, "the whole prompt counts as cached")


@baton_case
def cache_salt(server, check):
    """A prompt with another `cache_salt` finds no cached tokens."""
    prompt = f"{secrets.token_hex(8)} " + "The quick brown fox jumps over the lazy dog. " * 16
    usage = [server.complete(prompt, cache_salt=salt).usage for salt in ("a", "b", "a")]
    _, other, same = (one.prompt_tokens_details for one in usage)
    check.need(other and same, "usage has no prompt_tokens_details")
    check(not other.cached_tokens, "the prompt with another salt has cached tokens")
    check(same.cached_tokens, "the prompt with the same salt has none")


@baton_case
def return_token_ids(server, check):
    """`return_token_ids` gives the ids of the prompt and of the answer."""
    choice = server.complete(COUNTING, return_token_ids=True, ignore_eos=True).choices[0]
    check.need(hasattr(choice, "token_ids") and hasattr(choice, "prompt_token_ids"), "the choice has no ids")
    ids = server.ids(COUNTING)
    check(choice.prompt_token_ids[-len(ids):] == ids, "the prompt's ids differ from those of /tokenize")
    check.need(len(choice.token_ids) == 8, f"there are {len(choice.token_ids)} ids for 8 tokens")
    begun = choice.prompt_token_ids + choice.token_ids[:4]
    rest = server.complete(begun, max_tokens=4, ignore_eos=True, return_token_ids=True).choices[0]
    check(rest.token_ids == choice.token_ids[4:], "from the first half of the answer the second does not follow")


@baton_case
def fields_without_effect(server, check):
    """`user`, `priority`, `best_of` 1, `skip_special_tokens`, response_format `text` and null for any field change
    nothing."""
    plain = server.text(COUNTING)
    got = server.text(COUNTING, user="someone", priority=3, best_of=1, skip_special_tokens=True,
                      response_format={"type": "text"}, logit_bias=None, suffix=None, guided_json=None, seed=None, n=None,
                      top_k=None, echo=None, stream=None)
    check(got == plain, "the answer differs")


@baton_case
def latency_targets(server, check):
    """The headers x-slo-ttft-ms and x-slo-tpot-ms are taken, and a value that is no number is refused."""
    check(server.post({"x-slo-ttft-ms": "5000", "x-slo-tpot-ms": "1000"}).status == 200, "they are refused")
    status = server.post({"x-slo-ttft-ms": "soon"}).status
    check(status == 400, f"a target of \"soon\" gets {status}")


@case
def utf8_prompt(server, check):
    """A prompt with characters of several tokens comes back whole with `echo`, streamed or not."""
    prompt = "Caf\u00e9 \u2603 \U0001F9ED \u6f22\u5b57"
    try:
        text = server.text(prompt, echo=True, max_tokens=1)
        streamed = server.streamed_text(prompt, echo=True, max_tokens=1)
    except UnicodeError as error:
        raise Broken("the answer is no UTF-8") from error
    check(text.startswith(prompt), "the text does not begin with the prompt")
    check(streamed == text, "the stream gives another text")


@baton_case
def eight_prompts_take_less_than_three_times_one(server, check):
    """Eight prompts in one request take less than three times the time of one (the better of two tries)."""
    def seconds(count):
        times = []
        for _ in range(2):
            prompts = [f"{secrets.token_hex(8)} {STORY}" for _ in range(count)]
            begin = time.monotonic()
            server.complete(prompts, max_tokens=64, ignore_eos=True)
            times.append(time.monotonic() - begin)
        return min(times)

    one, eight = seconds(1), seconds(8)
    check(eight < 3 * one, f"they take {eight / one:.1f} times as long")
