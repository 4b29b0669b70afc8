"""The changes of a file's lines, and the file with any of them undone."""

import ast
import difflib
from collections.abc import Iterable, Iterator

# Changed lines with so few unchanged ones between them are one part.
_NEAR = 1


class Edits:
    """The changes of a file's lines.

    Args:
        base, head: the file's text on each side.
    """

    def __init__(self, base: str, head: str) -> None:
        self._base, self._head = base.splitlines(keepends=True), head.splitlines(keepends=True)
        # Of each change: its lines in base, and in head.
        self._changes: list[tuple[int, int, int, int]] = []
        matcher = difflib.SequenceMatcher(None, self._base, self._head, autojunk=False)
        whole = _parsed(head)
        for kind, start, end, first, last in matcher.get_opcodes():
            if kind == "equal" or (whole is not None and _parsed(self._with([(start, end, first, last)])) == whole):
                # Nothing changes, or comments and blanks alone.
                continue
            if self._changes and first - self._changes[-1][3] <= _NEAR:
                start, _, first, _ = self._changes.pop()
            self._changes.append((start, end, first, last))

    def titles(self) -> Iterator[str]:
        """Where each change is in head."""
        for _, _, first, last in self._changes:
            if last > first + 1:
                yield f"lines {first + 1} to {last}"
            else:
                yield f"line {last}" if last > first else f"what was removed after line {last}"

    def undone(self, numbers: set[int]) -> str:
        """Head's text with the changes of these numbers as in base."""
        return self._with([self._changes[number] for number in sorted(numbers)])

    def _with(self, changes: Iterable[tuple[int, int, int, int]]) -> str:
        """Head's text with these changes as in base."""
        text: list[str] = []
        at = 0
        for start, end, first, last in changes:
            text += self._head[at:first] + self._base[start:end]
            at = last
        return "".join([*text, *self._head[at:]])


def _parsed(text: str) -> str | None:
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return None
