"""The cases of check_openai_client, the server that they ask, and the way in which they run."""
import dataclasses
import http.client
import inspect
import json
import re
import socket
import urllib.parse

import openai

CASES = []  # in the order in which they run
# Fields that the client's function takes by name. Every other field goes into `extra_body`.
FIELDS_OF_CLIENT = set(inspect.signature(openai.resources.Completions.create).parameters)
LONGEST_REASON = 500  # characters of a sentence in a record
LONGEST_WAIT = 120  # seconds; only ends a request that would not end


@dataclasses.dataclass
class Case:
    name: str
    promise: str  # One sentence, the docstring of the function.
    promised_by: str  # "openai": any server of this API. "baton": only Baton.
    run: object


def case(function):
    """Adds a function to the cases: it takes a server and a Checks. Its docstring says what the API promises."""
    CASES.append(Case(function.__name__, " ".join(function.__doc__.split()), "openai", function))
    return function


def baton_case(function):
    """Like case(), for a promise that only Baton gives. Another server is asked all the same, to record what it does."""
    CASES.append(Case(function.__name__, " ".join(function.__doc__.split()), "baton", function))
    return function


class Skipped(Exception):
    """A case can't run here. The message says why."""


class Broken(Exception):
    """A check failed, and the rest of the case makes no sense without it."""


class Checks:
    """Collects what a case found to differ from its promise. Sentences have no numbers that change from run to run."""

    def __init__(self):
        self.failures = []

    def __call__(self, good, otherwise):
        """Notes the sentence `otherwise` unless `good` is true, and goes on."""
        if not good:
            self.failures.append(otherwise)
        return bool(good)

    def content_type(self, reply, expected):
        found = reply.headers.get("content-type")
        self((found or "").startswith(expected), f"Content-Type is {found!r}")

    def need(self, good, otherwise):
        """Ends the case unless `good` is true."""
        if not good:
            raise Broken(otherwise)

    def raises(self, kind, call, otherwise="the request is answered"):
        """Returns the error of class `kind` that `call` raises. Ends the case if it raises none, or another one."""
        try:
            call()
        except kind as error:
            return error
        except openai.OpenAIError as error:
            raise Broken(f"the client raises {said(error)}") from error
        raise Broken(otherwise)


def said(error):
    """Returns the class, the status and the message of an error of the client."""
    status = getattr(error, "status_code", None)
    return f"{type(error).__name__}{'' if status is None else f' {status}'}: {getattr(error, 'message', error)}"


@dataclasses.dataclass
class Reply:
    """An answer to a request that was not sent by the client."""

    status: int
    headers: dict  # names in small letters
    body: bytes

    def json(self):
        return json.loads(self.body)

    def error(self):
        """Returns the error object, or {} if the body has none."""
        try:
            found = self.json().get("error")
        except (ValueError, AttributeError):
            return {}
        return found if isinstance(found, dict) else {}


class Server:
    """The server under test, with an OpenAI client whose retries are off."""

    def __init__(self, url, model, key, kind, limited):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname, parts.port or 80
        self.url = f"http://{self.host}:{self.port}"
        self.key, self.kind, self.limited = key, kind, limited
        self.client = self.new_client(openai.OpenAI)
        self.model = model or self.client.models.list().data[0].id

    def new_client(self, kind, url=None, **options):
        options = {"api_key": self.key or "none", "max_retries": 0, "timeout": LONGEST_WAIT, **options}
        return kind(base_url=f"{url or self.url}/v1", **options)

    def fields(self, prompt, **fields):
        """Returns the arguments of the client's function: greedy and 8 tokens long where `fields` do not say otherwise."""
        given = {"model": self.model, "prompt": prompt, "temperature": 0, "max_tokens": 8, **fields}
        given = {name: value for name, value in given.items() if value is not ...}
        return {**{name: value for name, value in given.items() if name in FIELDS_OF_CLIENT},
                "extra_body": {name: value for name, value in given.items() if name not in FIELDS_OF_CLIENT}}

    def complete(self, prompt, **fields):
        return self.client.completions.create(**self.fields(prompt, **fields))

    def text(self, prompt, **fields):
        return self.complete(prompt, **fields).choices[0].text

    def stream(self, prompt, **fields):
        """Returns the chunks of a stream that have choices."""
        return [chunk for chunk in self.complete(prompt, stream=True, **fields) if chunk.choices]

    def streamed_text(self, prompt, **fields):
        return "".join(chunk.choices[0].text for chunk in self.stream(prompt, **fields))

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=LONGEST_WAIT)

    def head_fields(self):
        return {"Host": f"{self.host}:{self.port}", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}

    def ask(self, method, path, body=None, headers=None, timeout=LONGEST_WAIT):
        """Sends one request without the client. A body that is not bytes is sent as JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        headers = {**self.head_fields(), "Content-Type": "application/json", **(headers or {})}
        headers = {name: value for name, value in headers.items() if value is not None}
        try:
            connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body), headers)
            got = connection.getresponse()
            return Reply(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read())
        finally:
            connection.close()

    def post(self, headers=None, path="/v1/completions", **fields):
        """Sends a completion without the client. A field with the value ... is left out."""
        body = {"model": self.model, "prompt": "One two three", "max_tokens": 2, "temperature": 0, **fields}
        return self.ask("POST", path, {name: value for name, value in body.items() if value is not ...}, headers)

    def ids(self, text):
        """Returns the token ids of a text, without those that the tokeniser adds."""
        content = "content" if self.kind == "llama-server" else "prompt"
        reply = self.ask("POST", "/tokenize", {content: text, "add_special_tokens": False})
        if reply.status != 200:
            raise Broken(f"/tokenize answers {reply.status}")
        return reply.json()["tokens"]

    def context(self):
        """Returns how many tokens the prompt and the answer may have together."""
        if self.kind == "llama-server":
            return self.ask("GET", "/props").json()["default_generation_settings"]["n_ctx"]
        return self.client.models.list().data[0].model_dump()["max_model_len"]

    def long_answer(self):
        """Returns fields of a request whose answer takes until the end of the context."""
        return {"max_tokens": self.context() - 64, "ignore_eos": True, "prompt": "Once upon a time"}

    def metric(self, *names):
        """Returns the sum of all values of the first of these metrics that /metrics has."""
        reply = self.ask("GET", "/metrics")
        if reply.status != 200:
            raise Skipped(f"/metrics answers {reply.status}, so the case can't see what the server computes")
        for name in names:
            found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)", reply.body.decode(), re.M)
            if found:
                return sum(map(float, found))
        raise Skipped(f"/metrics has none of {', '.join(names)}")

    def generated(self):
        return self.metric("baton_router_generated_tokens_total", "llamacpp:tokens_predicted_total")

    def running(self):
        return self.metric("baton_router_requests_running", "llamacpp:requests_processing")


def events(reply):
    """Returns the data of each event of a stream, as text."""
    return [block.removeprefix("data: ") for block in reply.body.decode().split("\n\n") if block]


def run(server, one):
    """Runs a case. Returns its outcome ("passed", "failed" or "skipped") and a sentence that says why."""
    checks = Checks()
    try:
        one.run(server, checks)
    except Skipped as reason:
        return "skipped", str(reason)
    except Broken as reason:
        checks.failures.append(str(reason))
    except openai.OpenAIError as error:
        checks.failures.append(f"the client raises {said(error)}")
    except Exception as error:  # Another server may answer with any shape, and the other cases have to run.
        checks.failures.append(f"the case can't read the answer: {type(error).__name__}: {error}")
    reason = " ".join("; ".join(checks.failures).split())
    return ("failed" if reason else "passed"), reason[:LONGEST_REASON] + ("..." if len(reason) > LONGEST_REASON else "")
