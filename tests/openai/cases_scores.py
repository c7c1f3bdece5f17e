"""Cases about log-probabilities: of the answer, and of the prompt with `echo`."""
import math

from suite import baton_case, case

COUNTING = "One, two, three, four, five, six, seven,"
TOLERANCE = 1e-3  # between two log-probabilities of the same token


def check_shape(check, logprobs, count):
    """Returns true if the four lists are there, each as long as the answer has tokens."""
    check.need(logprobs is not None, "the choice has no logprobs")
    for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        found = getattr(logprobs, name)
        check.need(found is not None, f"logprobs has no {name}")
        check.need(len(found) == count, f"{name} has {len(found)} entries for {count} tokens")


def entries(logprobs):
    return list(zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs))


@case
def logprobs_five(server, check):
    """logprobs=5 gives for each token its log-probability and the 5 most likely ones, the sampled one among them."""
    got = server.complete(COUNTING, logprobs=5, max_tokens=6, ignore_eos=True)
    logprobs = got.choices[0].logprobs
    check_shape(check, logprobs, 6)
    check("".join(logprobs.tokens) == got.choices[0].text, "the tokens together are not the text")
    for token, value, top in entries(logprobs):
        check(value <= 0, "a log-probability is above 0")
        check(4 <= len(top) <= 6, f"top_logprobs has {len(top)} tokens")
        same = token in top and abs(top[token] - value) < TOLERANCE
        check(same, "the sampled token is not in top_logprobs with its value")
        check(sum(map(math.exp, top.values())) < 1 + TOLERANCE, "the top probabilities are more than 1 together")
        check(value >= max(top.values()) - TOLERANCE, "the greedy token is not the most likely one")


@case
def logprobs_zero(server, check):
    """logprobs=0 gives the log-probability of each token, and no alternative beside it."""
    logprobs = server.complete(COUNTING, logprobs=0, max_tokens=4, ignore_eos=True).choices[0].logprobs
    check.need(logprobs is not None, "the choice has no logprobs")
    check.need(logprobs.tokens is not None and logprobs.token_logprobs is not None, "logprobs has no tokens")
    check(len(logprobs.tokens) == len(logprobs.token_logprobs) == 4, "there are not 4 entries for 4 tokens")
    check(all(not top or list(top) == [token] for token, top in zip(logprobs.tokens, logprobs.top_logprobs or [])),
          "top_logprobs has other tokens than the sampled one")


@case
def logprobs_keep_the_answer(server, check):
    """The text is the same with and without logprobs."""
    check(server.text(COUNTING, logprobs=5) == server.text(COUNTING), "it is another one")


@case
def text_offsets(server, check):
    """text_offset is where each token begins in the text, which begins with the prompt if `echo` is set."""
    for echo in (False, True):
        choice = server.complete(COUNTING, logprobs=0, echo=echo, ignore_eos=True).choices[0]
        check.need(choice.logprobs and choice.logprobs.text_offset, "there is no text_offset")
        for token, offset in zip(choice.logprobs.tokens, choice.logprobs.text_offset):
            at_offset = choice.text[offset:].startswith(token)
            check.need(at_offset, f"a token does not stand at its offset with echo={echo}")


@case
def echo_scores_the_prompt(server, check):
    """echo with max_tokens=0 gives the prompt with the log-probability of each token; the first has none. This is how
    lm-eval measures."""
    got = server.complete(COUNTING, echo=True, max_tokens=0, logprobs=1)
    choice = got.choices[0]
    check(choice.text == COUNTING, f"the text is {choice.text!r}")
    check(got.usage.completion_tokens == 0, f"usage has {got.usage.completion_tokens} tokens of the answer")
    check(choice.finish_reason == "length", f"finish_reason is {choice.finish_reason!r}")
    check_shape(check, choice.logprobs, got.usage.prompt_tokens)
    check(choice.logprobs.token_logprobs[0] is None, "the first token has a log-probability")
    check(choice.logprobs.top_logprobs[0] is None, "the first token has top_logprobs")
    for token, value, top in entries(choice.logprobs)[1:]:
        check(value is not None and value <= 0, "a log-probability is missing, or above 0")
        check(token in top, "a token of the prompt is not in its top_logprobs")


@case
def echo_with_answer(server, check):
    """echo with max_tokens above 0 gives the prompt and the answer, with the log-probabilities of both."""
    plain = server.complete(COUNTING, max_tokens=4, ignore_eos=True)
    got = server.complete(COUNTING, max_tokens=4, ignore_eos=True, echo=True, logprobs=0)
    check(got.choices[0].text == COUNTING + plain.choices[0].text, "the text is not the prompt and the answer")
    check_shape(check, got.choices[0].logprobs, got.usage.prompt_tokens + 4)


@case
def echo_scores_equal_those_of_sampling(server, check):
    """A text that was sampled has the same log-probabilities when it is scored as a prompt."""
    answer = server.complete(COUNTING, max_tokens=6, ignore_eos=True, logprobs=0, return_token_ids=True).choices[0]
    check.need(hasattr(answer, "token_ids"), "the choice has no token_ids")
    check_shape(check, answer.logprobs, 6)
    whole = answer.prompt_token_ids + answer.token_ids
    scored = server.complete(whole, echo=True, max_tokens=0, logprobs=0).choices[0].logprobs
    check.need(scored is not None, "the scored prompt has no logprobs")
    pairs = zip(answer.logprobs.token_logprobs, scored.token_logprobs[-6:])
    check(all(abs(one - other) < 0.05 for one, other in pairs), "the values differ by more than 0.05")


@case
def echo_of_a_list(server, check):
    """A list of prompts is scored in one request, as lm-eval does with lists of ids."""
    prompts = [server.ids(COUNTING), server.ids("The capital of France is Paris.")]
    got = server.complete(prompts, echo=True, max_tokens=0, logprobs=1)
    check.need(len(got.choices) == 2, f"there are {len(got.choices)} choices")
    for choice, prompt in zip(got.choices, prompts):
        check_shape(check, choice.logprobs, len(prompt))


@baton_case
def prompt_logprobs(server, check):
    """`prompt_logprobs` gives for each token of the prompt but the first a map from id to logprob, rank and text."""
    got = server.complete(COUNTING, prompt_logprobs=2)
    scores = getattr(got.choices[0], "prompt_logprobs", None)
    check.need(scores, "the choice has no prompt_logprobs")
    count = got.usage.prompt_tokens
    check(len(scores) == count, f"there are {len(scores)} entries for {count} tokens")
    check(scores[0] is None, "the first entry is not null")
    for given, entry in list(zip(server.ids(COUNTING)[::-1], scores[::-1]))[:4]:
        check.need(str(given) in entry, "an entry does not have the token of the prompt")
        keys = set(entry[str(given)])
        check({"logprob", "rank", "decoded_token"} <= keys, f"an entry has the keys {sorted(keys)}")
        check(2 <= len(entry) <= 3, f"an entry has {len(entry)} tokens")


@baton_case
def bytes_of_part_of_a_character(server, check):
    """A token that is part of a character has its bytes in `bytes`: together they are the bytes of the prompt."""
    prompt = "A \U0001F9ED \u6f22"
    got = server.complete(prompt, echo=True, max_tokens=0, logprobs=0, add_special_tokens=False)
    logprobs = got.choices[0].logprobs
    check.need(logprobs is not None, "the choice has no logprobs")
    parts = getattr(logprobs, "bytes", None)
    check.need(parts, "logprobs has no bytes")
    whole = b"".join(text.encode() if part is None else bytes(part) for text, part in zip(logprobs.tokens, parts))
    check(whole == prompt.encode(), "the bytes together are not those of the prompt")


@baton_case
def no_minus_infinity(server, check):
    """A log-probability of minus infinity is -9999.0, so the answer is JSON for every reader."""
    banned = server.ids(server.text(COUNTING, max_tokens=1))[0]
    reply = server.post(prompt=COUNTING, logprobs=20, logit_bias={str(banned): -100}, top_k=1, temperature=1)
    check.need(reply.status == 200, f"the status is {reply.status}")
    check(b"Infinity" not in reply.body and b"NaN" not in reply.body, "the answer has a number that JSON does not know")


@baton_case
def top_logprobs_have_the_same_number(server, check):
    """A token's value in token_logprobs is the same number as in top_logprobs: lm-eval compares the two with ==."""
    logprobs = server.complete(COUNTING, echo=True, max_tokens=1, logprobs=1).choices[0].logprobs
    check.need(logprobs is not None and logprobs.top_logprobs is not None, "the choice has no top_logprobs")
    for token, value, top in entries(logprobs)[1:]:
        check.need(top.get(token) == value, "the two numbers differ")


@baton_case
def end_token_has_a_log_probability(server, check):
    """The token that ends the answer counts in logprobs and usage: lm-eval asks for one token with `echo`, and always drops
    the last entry."""
    first = server.ids(server.text(COUNTING, max_tokens=1, ignore_eos=True))[0]
    got = server.complete(COUNTING, echo=True, max_tokens=1, logprobs=1, stop_token_ids=[first])
    check(got.choices[0].finish_reason == "stop", f"finish_reason is {got.choices[0].finish_reason!r}")
    check(got.usage.completion_tokens == 1, f"usage has {got.usage.completion_tokens} tokens of the answer")
    check_shape(check, got.choices[0].logprobs, got.usage.prompt_tokens + 1)
