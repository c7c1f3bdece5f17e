"""Cases about errors: each class of the client, and the fields that are refused."""
import concurrent.futures
import re
import urllib.parse

import openai

from suite import Skipped, baton_case, case

# Fields that Baton does not have, and that change the answer. Each has a value that asks for something.
REFUSED = {
    "response_format": {"type": "json_object"}, "guided_json": {"type": "object"}, "guided_regex": "[0-9]+",
    "guided_choice": ["yes", "no"], "guided_grammar": "root ::= \"a\"", "structured_outputs": {"regex": "[0-9]+"},
    "grammar": "root ::= \"a\"", "json_schema": {"type": "object"}, "functions": [{"name": "f"}], "function_call": "auto",
    "modalities": ["audio"], "truncate_prompt_tokens": 4, "allowed_token_ids": [1, 2], "include_stop_str_in_output": True,
    "thinking_token_budget": 8, "length_penalty": 2.0, "kv_transfer_params": {"do_remote_decode": True}, "best_of": 2,
    "use_beam_search": True, "suffix": " end", "prompt_embeds": "AAAA", "audio": {"voice": "a"}, "images": ["AAAA"]}
# Fields with values outside of their ranges.
OUTSIDE = {
    "temperature": -1, "top_p": 2, "n": 0, "logprobs": 1000, "max_tokens": -1, "presence_penalty": 3,
    "frequency_penalty": -3, "logit_bias": {"1": 1000}, "stop": ["x"] * 100, "min_p": 2, "top_k": -5,
    "repetition_penalty": -1, "min_tokens": -1, "seed": "no number", "stream": "no bool"}


def param(error):
    """Returns the name of a parameter without an index, such as "stop" for "stop[3]"."""
    return re.split(r"[\[.]", error.get("param") or "")[0]


@case
def bad_request(server, check):
    """A value outside of its range raises BadRequestError with the parameter's name."""
    error = check.raises(openai.BadRequestError, lambda: server.complete("Hello", temperature=-1))
    check(error.param == "temperature", f"param is {error.param!r}")
    check(error.type == "invalid_request_error", f"type is {error.type!r}")


@case
def error_body(server, check):
    """An error is JSON {"error": {...}} with message, type, param and code."""
    reply = server.post(temperature=-1)
    check.content_type(reply, "application/json")
    check.need(reply.error(), "there is no error object")
    for name in ("message", "type", "param", "code"):
        check(name in reply.error(), f"the error has no {name}")


@case
def values_outside_their_ranges(server, check):
    """Each value outside of its range is refused with 400."""
    taken = [name for name, value in OUTSIDE.items() if server.post(**{name: value}).status != 400]
    check(not taken, f"not refused with 400: {', '.join(taken)}")


@baton_case
def names_of_values_outside_their_ranges(server, check):
    """The refusal of a value outside of its range names the parameter in `param`."""
    unnamed = [name for name, value in OUTSIDE.items() if param(server.post(**{name: value}).error()) != name]
    check(not unnamed, f"not named: {', '.join(unnamed)}")


@baton_case
def fields_refused_by_name(server, check):
    """A field that Baton does not have and that would change the answer gets 400 with its name in `param`."""
    replies = {name: server.post(**{name: value}) for name, value in REFUSED.items()}
    taken = [name for name, reply in replies.items() if reply.status == 200]
    named = [name for name, reply in replies.items() if reply.status == 400 and param(reply.error()) == name]
    other = [name for name in REFUSED if name not in taken and name not in named]
    check(not taken, f"taken: {', '.join(taken)}")
    check(not other, f"refused in another way: {', '.join(other)}")


@baton_case
def null_means_absent(server, check):
    """A refused field with the value null is taken."""
    refused = [name for name in REFUSED if server.post(**{name: None}).status != 200]
    check(not refused, f"refused: {', '.join(refused)}")


@case
def unknown_fields_are_ignored(server, check):
    """A field that no server knows does not fail the request."""
    check(server.post(field_of_tomorrow=1).status == 200, "the request is refused")


@baton_case
def unknown_fields_are_named(server, check):
    """The header x-baton-ignored-fields names unknown fields, escaped, and at most 16 of them. It does not come
    otherwise."""
    header = "x-baton-ignored-fields"
    found = server.post(field_of_tomorrow=1).headers.get(header, "")
    check(found == "field_of_tomorrow", f"the header is {found!r}")
    check(header not in server.post().headers, "the header comes without an unknown field")
    reply = server.post(**{"odd\r\nx-injected: 1": 1})
    check(reply.status == 200 and "x-injected" not in reply.headers, "a field's name is not escaped in the header")
    many = server.post(**{f"unknown_{i}": i for i in range(40)}).headers.get(header, "")
    check(0 < many.count("unknown_") <= 16 and len(many) <= 1024, f"the header names {many.count('unknown_')} of 40 fields")


@case
def unknown_model(server, check):
    """Another model's name raises NotFoundError with code model_not_found."""
    error = check.raises(openai.NotFoundError, lambda: server.complete("Hello", model="no-such-model"))
    check(error.code == "model_not_found", f"code is {error.code!r}")
    check(error.param == "model", f"param is {error.param!r}")


@case
def models(server, check):
    """/v1/models lists the model with id, `object`, `created` and owned_by."""
    listed = server.client.models.list()
    check(listed.object == "list", f"object is {listed.object!r}")
    model = next((model for model in listed.data if model.id == server.model), None)
    check.need(model, "the model is not in the list")
    complete = model.object == "model" and isinstance(model.created, int) and model.owned_by
    check(complete, "an entry lacks object, created or owned_by")


@baton_case
def models_as_vllm(server, check):
    """An entry of /v1/models has vLLM's `root` and `max_model_len`, which load tools read."""
    model = server.client.models.list().data[0].model_dump()
    check(model.get("root"), "there is no root")
    longest = model.get("max_model_len")
    check(isinstance(longest, int) and longest > 0, f"max_model_len is {longest!r}")


@case
def retrieve_model(server, check):
    """/v1/models/{id} gives the entry of one model."""
    check(server.client.models.retrieve(server.model).id == server.model, "it is another model")


@case
def retrieve_unknown_model(server, check):
    """/v1/models/{id} raises NotFoundError with code model_not_found for another id."""
    error = check.raises(openai.NotFoundError, lambda: server.client.models.retrieve("no/such model"))
    check(error.code == "model_not_found", f"code is {error.code!r}")


@case
def context_length_exceeded(server, check):
    """A prompt longer than the context raises BadRequestError with code context_length_exceeded and both numbers."""
    context = server.context()
    prompt = (server.ids(" the")[:1]) * (context + 10)
    error = check.raises(openai.BadRequestError, lambda: server.complete(prompt))
    check(error.code == "context_length_exceeded", f"code is {error.code!r}")
    numbers = [int(number) for number in re.findall(r"\d+", error.message.replace(",", ""))]
    both = context in numbers and any(context + 10 <= number <= context + 20 for number in numbers)
    check(both, "the message does not have both numbers")


@baton_case
def answer_beyond_the_context(server, check):
    """A prompt and max_tokens that together are longer than the context are refused in the same way."""
    context = server.context()
    error = check.raises(openai.BadRequestError, lambda: server.complete("Hello", max_tokens=context))
    check(error.code == "context_length_exceeded", f"code is {error.code!r}")
    check(str(context) in error.message.replace(",", ""), "the message does not have the length of the context")


@case
def wrong_prompts(server, check):
    """A missing prompt, one of another type, an empty list, a mixed list and an unknown token id get 400."""
    wrong = {"missing": ..., "a number": 5, "an object": {"a": 1}, "an empty list": [], "a mixed list": [1, "two"],
             "an id beyond the vocabulary": [2**30], "a negative id": [-1]}
    taken = [name for name, prompt in wrong.items() if server.post(prompt=prompt).status != 400]
    check(not taken, f"not refused with 400: {', '.join(taken)}")


@baton_case
def wrong_prompts_are_named(server, check):
    """The refusal of a prompt has `prompt` in `param`."""
    wrong = (5, [], [1, "two"], [2**30])
    unnamed = [prompt for prompt in wrong if param(server.post(prompt=prompt).error()) != "prompt"]
    check(not unnamed, f"not named for {unnamed}")


@case
def broken_json(server, check):
    """A body that is no JSON gets 400."""
    for body in (b"{\"model\": ", b"[]", b"", b"{} {}"):
        status = server.ask("POST", "/v1/completions", body).status
        check(status == 400, f"{body.decode() or 'an empty body'} gets {status}")


@case
def wrong_key(server, check):
    """A wrong key raises AuthenticationError, a missing one gets 401, and /health needs none."""
    if not server.key:
        raise Skipped("the server has no key: start it with one and give --api-key")
    client = server.new_client(openai.OpenAI, api_key="wrong")
    check.raises(openai.AuthenticationError, client.models.list, "a wrong key is taken for /v1/models")
    fields = server.fields("Hello")
    check.raises(openai.AuthenticationError, lambda: client.completions.create(**fields), "a wrong key is taken")
    wrong = {"missing": None, "empty": "Bearer ", "longer": f"Bearer {server.key}x"}
    for name, value in wrong.items():
        status = server.post({"Authorization": value}).status
        check(status == 401, f"a key that is {name} gets {status}")
    check(server.ask("GET", "/health", headers={"Authorization": None}).status == 200, "/health needs a key")


@case
def wrong_key_is_not_echoed(server, check):
    """The answer to a wrong key does not have the key in it, and has code invalid_api_key."""
    if not server.key:
        raise Skipped("the server has no key: start it with one and give --api-key")
    reply = server.post({"Authorization": "Bearer wrong-key-5309"})
    check(b"5309" not in reply.body, "it has the key in it")
    check(reply.error().get("code") == "invalid_api_key", f"code is {reply.error().get('code')!r}")


@baton_case
def rate_limit(server, check):
    """Requests beyond the queue raise RateLimitError with Retry-After, while others are served."""
    if not server.limited:
        raise Skipped("needs a server with a short queue, such as --max-queued=64, and --limited")

    def begin(_):
        try:
            return server.complete("Hello", n=64, max_tokens=64, ignore_eos=True, stream=True)
        except openai.APIStatusError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(begin, range(8)))
    errors = [one for one in got if isinstance(one, openai.APIStatusError)]
    for one in got:
        if one not in errors:
            one.close()
    check.need(errors, "no request is refused")
    check(len(errors) < len(got), "all requests are refused")
    kinds = {type(error).__name__ for error in errors}
    check(kinds == {"RateLimitError"}, f"the errors are {', '.join(sorted(kinds))}")
    waits = [float(error.response.headers.get("retry-after", 0)) for error in errors]
    check(all(seconds > 0 for seconds in waits), "a refusal has no Retry-After")


@case
def path_without_v1(server, check):
    """/completions gets 404, and the message says that /v1/completions exists."""
    reply = server.post(path="/completions")
    check.need(reply.status == 404, f"the status is {reply.status}")
    check("/v1/completions" in reply.error().get("message", ""), "the message does not name /v1/completions")


@case
def unknown_path(server, check):
    """An unknown path gets 404 as an error object; on Baton it names the paths there are."""
    reply = server.ask("GET", "/v1/nothing")
    check(reply.status == 404, f"the status is {reply.status}")
    check.need(reply.error(), "there is no error object")
    check(server.kind != "baton" or "/v1/completions" in reply.error()["message"], "the message names no path")


@case
def wrong_method(server, check):
    """GET /v1/completions gets 405 with Allow."""
    reply = server.ask("GET", "/v1/completions")
    check.need(reply.status == 405, f"the status is {reply.status}")
    check("POST" in reply.headers.get("allow", ""), f"Allow is {reply.headers.get('allow')!r}")


@baton_case
def text_plain(server, check):
    """A body of Content-Type text/plain or of a form gets 415, because a web page may send it anywhere."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        status = server.post({"Content-Type": kind}).status
        check(status == 415, f"{kind.split(';')[0]} gets {status}")
    check(server.post({"Content-Type": None}).status == 200, "a body without Content-Type is refused")
    check(server.post({"Content-Type": "application/json; charset=utf-8"}).status == 200, "a charset is refused")


@baton_case
def foreign_host(server, check):
    """On a loopback address a request for another host gets 421, because a web page may have its name point there."""
    if server.host not in ("127.0.0.1", "localhost", "::1"):
        raise Skipped(f"{server.host} is no loopback address")
    status = server.ask("GET", "/v1/models", headers={"Host": "example.com"}).status
    check(status == 421, f"the status is {status}")


@case
def tokenize(server, check):
    """/tokenize gives the ids of a text, and /detokenize the text of the ids."""
    text = "Hello, world! \u2603"
    field = "prompt" if server.kind == "baton" else "content"
    ids = server.ids(text)
    check(ids and all(isinstance(one, int) for one in ids), "tokens is no list of ids")
    reply = server.ask("POST", "/detokenize", {"tokens": ids})
    check.need(reply.status == 200, f"/detokenize answers {reply.status}")
    check(reply.json().get(field) == text, f"/detokenize gives {reply.json().get(field)!r}")
    check(server.ask("POST", "/tokenize", {field: 5}).status == 400, f"the {field} 5 is taken")


@baton_case
def tokenize_as_vllm(server, check):
    """/tokenize takes `prompt` and gives `count`, `max_model_len`, `tokens` and, where asked for, `token_strs`."""
    body = {"model": server.model, "prompt": "Hello, world!"}
    reply = server.ask("POST", "/tokenize", {**body, "return_token_strs": True})
    check.need(reply.status == 200, f"the status is {reply.status}")
    got = reply.json()
    check.need(isinstance(got.get("tokens"), list) and "count" in got, f"the answer has the keys {sorted(got)}")
    check(got["count"] == len(got["tokens"]), "count is not the number of tokens")
    check(got.get("max_model_len") == server.context(), "max_model_len is not the context")
    check(len(got.get("token_strs") or []) == len(got["tokens"]), "token_strs has not one entry for each token")
    plain = server.ask("POST", "/tokenize", body).json()
    check(plain.get("token_strs") is None, "token_strs comes without being asked for")


@case
def health(server, check):
    """/health answers 200."""
    status = server.ask("GET", "/health").status
    check(status == 200, f"the status is {status}")


@baton_case
def ping_and_version(server, check):
    """/ping answers 200, and /version has a `version`."""
    status = server.ask("GET", "/ping").status
    check(status == 200, f"/ping answers {status}")
    reply = server.ask("GET", "/version")
    check.need(reply.status == 200, f"/version answers {reply.status}")
    check(isinstance(reply.json().get("version"), str), "/version has no version")


@case
def escaped_path(server, check):
    """A model's name in the path may be escaped."""
    status = server.ask("GET", "/v1/models/" + urllib.parse.quote(server.model, safe="")).status
    check(status == 200, f"the status is {status}")
