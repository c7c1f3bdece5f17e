"""A small HTTP proxy in front of the server under test. It refuses the first requests, to see what the client does."""
import http.client
import http.server
import threading

from suite import LONGEST_WAIT


class Proxy:
    """Answers the first `refusals` requests with `status` and `headers`, and passes all others to the server."""

    def __init__(self, server, refusals, status=429, headers=None):
        self.retry_counts = []  # The header x-stainless-retry-count of each request, in order.
        proxy, lock = self, threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with lock:
                    proxy.retry_counts.append(self.headers.get("x-stainless-retry-count"))
                    refused = len(proxy.retry_counts) <= refusals
                if refused:
                    refusal = b'{"error": {"message": "too busy", "type": "rate_limit_error", "param": null, "code": null}}'
                    self.answer(status, {"Content-Type": "application/json", **(headers or {})}, refusal)
                    return
                connection = http.client.HTTPConnection(server.host, server.port, timeout=LONGEST_WAIT)
                passed = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
                connection.request("POST", self.path, body, {**passed, "Host": f"{server.host}:{server.port}"})
                got = connection.getresponse()
                self.answer(got.status, {"Content-Type": got.getheader("Content-Type", "application/json")}, got.read())
                connection.close()

            def answer(self, code, fields, body):
                self.send_response(code)
                for name, value in {**fields, "Content-Length": len(body)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
