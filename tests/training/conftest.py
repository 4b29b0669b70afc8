"""Both frameworks in this process."""

import tests.one_process  # noqa: F401
