"""Cases about HTTP itself, by raw sockets."""
import http.client
import json

from suite import Reply, baton_case, case


def request(server, body, **headers):
    """Returns the bytes of a request. Headers with the value None are left out; _ in their names stands for -."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    fields = {**server.head_fields(), "Content-Type": "application/json", "Content-Length": len(body), **given}
    lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return ("POST /v1/completions HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode()


def completion(server, prompt="One two three", **fields):
    return json.dumps({"model": server.model, "prompt": prompt, "max_tokens": 2, "temperature": 0, **fields}).encode()


def read_reply(reader, method="POST"):
    """Reads one answer from a buffered file of a socket, and not a byte beyond it."""
    status = reader.readline().split()
    headers = {name.lower(): value for name, value in http.client.parse_headers(reader).items()}
    body = b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int(reader.readline().split(b";")[0], 16):
            body += reader.read(size)
            reader.readline()
        reader.readline()
    elif method != "HEAD":
        body = reader.read(int(headers.get("content-length", 0)))
    return Reply(int(status[1]) if len(status) > 1 else 0, headers, body)


@case
def keep_alive(server, check):
    """A connection takes one request after the other."""
    body = completion(server)
    with server.connect() as to_server, to_server.makefile("rb") as reader:
        for turn in ("first", "second", "third"):
            to_server.sendall(request(server, body) + body)
            reply = read_reply(reader)
            check.need(reply.status == 200, f"the {turn} request gets {reply.status}")


@case
def pipelining(server, check):
    """Requests that are sent together are answered in their order."""
    bodies = [completion(server, "One two three", max_tokens=9, ignore_eos=True), completion(server, max_tokens=1)]
    with server.connect() as to_server, to_server.makefile("rb") as reader:
        to_server.sendall(b"".join(request(server, body) + body for body in bodies))
        replies = [read_reply(reader) for _ in bodies]
    check.need([reply.status for reply in replies] == [200, 200], f"the statuses are {[reply.status for reply in replies]}")
    check([reply.json()["usage"]["completion_tokens"] for reply in replies] == [9, 1], "the answers are exchanged")


@case
def chunked_body(server, check):
    """The body of a request may come in chunks."""
    body = completion(server)
    half = len(body) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:half], body[half:], b""))
    with server.connect() as to_server, to_server.makefile("rb") as reader:
        to_server.sendall(request(server, body, Content_Length=None, Transfer_Encoding="chunked") + chunks)
        status = read_reply(reader).status
    check(status == 200, f"the status is {status}")


@case
def expect_continue(server, check):
    """With Expect: 100-continue the server asks for the body before it is sent."""
    body = completion(server)
    with server.connect() as to_server, to_server.makefile("rb") as reader:
        to_server.sendall(request(server, body, Expect="100-continue"))
        check.need(b"100" in reader.readline(), "the first line is not that of 100")
        reader.readline()
        to_server.sendall(body)
        status = read_reply(reader).status
    check(status == 200, f"the status is {status}")


@baton_case
def expect_of_a_refused_request(server, check):
    """A request that can't be taken is refused before its body is sent: here one of a terabyte."""
    with server.connect() as to_server, to_server.makefile("rb") as reader:
        to_server.settimeout(10)
        to_server.sendall(request(server, b"", Content_Length=10**12, Expect="100-continue"))
        status = read_reply(reader).status
    check(status == 413, f"the status is {status}")


@case
def head(server, check):
    """HEAD gives the status and the head of GET, without a body."""
    for path in ("/health", "/v1/models"):
        reply = server.ask("HEAD", path)
        check(reply.status == 200 and not reply.body, f"HEAD {path} gets {reply.status}")


@case
def http_1_0(server, check):
    """A client of HTTP/1.0 gets an answer that ends with the connection, and not in chunks."""
    body = completion(server, stream=True)
    with server.connect() as to_server, to_server.makefile("rb") as reader:
        to_server.sendall(request(server, body).replace(b"HTTP/1.1", b"HTTP/1.0") + body)
        reply = reader.read()
    check.need(b" 200 " in reply.split(b"\r\n")[0], "the status is not 200")
    check(b"chunked" not in reply.split(b"\r\n\r\n")[0].lower(), "the answer is in chunks")


@baton_case
def request_id(server, check):
    """X-Request-Id comes back, also with an error, and the client shows it. A request without one gets one. One of 10,000
    letters does not come back."""

    def returned(name=None, **fields):
        return server.post({"X-Request-Id": name}, **fields).headers.get("x-request-id", "")

    check(returned("suite-42") == "suite-42", "it does not come back")
    check(returned("suite-43", temperature=-1) == "suite-43", "it does not come back with an error")
    got = server.client.completions.create(**server.fields("Hello"), extra_headers={"X-Request-Id": "suite-44"})
    check(got._request_id == "suite-44", "the client does not show it")
    check(returned(), "a request without one gets none")
    check(len(returned("x" * 10_000)) < 10_000, "one of 10,000 letters comes back")
