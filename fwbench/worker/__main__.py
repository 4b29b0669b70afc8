"""Run by `start`, with a configuration: a fork server under this interpreter, talking JSON lines over its pipes."""

import json
import sys

from fwbench.worker.server import serve

if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
