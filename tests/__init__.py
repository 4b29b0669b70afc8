"""What all tests share."""

import os

# Tests run in a process a core: threads of NumPy's products would wait for each other, and spin. NumPy reads it once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
