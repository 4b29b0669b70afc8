"""`python -m fwbench`: the `fwbench` command under this interpreter."""

import sys

from fwbench.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
