"""Run by `start`, with a configuration: a fork server under this interpreter, talking JSON lines over its pipes."""

import json
import os
import sys

from fwbench.worker.server import serve

if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
    sys.stderr.flush()
    # Skip the interpreter's tear-down: a framework's takes long, and the client would wait for it.
    os._exit(0)
