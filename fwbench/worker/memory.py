"""A worker whose memory ran out, and what is said of it."""

from fwbench.report import units


def told(said: str, asked: int | None) -> str:
    """One sentence.

    Args:
        said: by the exception.
        asked: bytes that were asked for; None: it does not say.
    """
    wanted = "" if asked is None else f" when {units.size(asked)} were asked for"
    return f"memory ran out{wanted} ({said})"
