"""What the user must correct: one sentence, never a traceback."""


class UserError(Exception):
    """Input that cannot be used or an answer that cannot be had; its text says what, where and what to do.

    `fwbench` prints it and ends with `EXIT_CODE`, which is pytest's own for a usage error.
    """

    EXIT_CODE = 4
