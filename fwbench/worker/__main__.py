"""Run by `start`, with a configuration: a fork server under this interpreter, talking JSON lines over its pipes."""

import json
import os
import sys

from fwbench.worker.server import serve

if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
    sys.stderr.flush()
    # To take down what a framework has loaded would keep the client waiting.
    os._exit(0)
