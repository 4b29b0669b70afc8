"""HTTP servers of the tests' own, and an environment that GitHub has told nothing."""

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Local(ThreadingHTTPServer):
    """A server of this machine, which serves while it is entered.

    Subclasses have `answer(request, body)`, which returns a status, headers and a body in bytes.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Request)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    def do_GET(self):
        code, headers, body = self.server.answer(self, self.rfile.read(int(self.headers["Content-Length"] or 0)))
        self.send_response(code)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PATCH = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def without_github(monkeypatch):
    """No variable of GitHub's in the environment."""
    for name in list(os.environ):
        if name.startswith("GITHUB_"):
            monkeypatch.delenv(name)
