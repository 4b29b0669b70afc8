"""HTTP servers of the tests' own, and an environment in which GitHub tells what a test says."""

import json
import os
import sys
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
def event(tmp_path, monkeypatch):
    """Without any other variable of GitHub's: say which event the workflow runs for; returns the file of its data."""
    for name in list(os.environ):
        if name.startswith("GITHUB_"):
            monkeypatch.delenv(name)

    def say(name, content=None, **data):
        path = tmp_path / "event.json"
        path.write_bytes(json.dumps(data).encode() if content is None else content)
        monkeypatch.setenv("GITHUB_EVENT_NAME", name)
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(path))
        return path

    return say


@pytest.fixture
def ends(tmp_path, monkeypatch):
    """Let pytest end with a code, after some shell."""

    def stub(code, script=""):
        path = tmp_path / "python-stub"
        path.write_text(f"#!/bin/sh\n{script}\nexit {code}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return stub
