"""The changes of a file's lines, and the file with any of them undone."""

import ast
import difflib
import io
from collections.abc import Iterable, Iterator

# Changes that at most this many unchanged lines separate are one part.
_NEAR = 1


class Edits:
    """The changes of a file's lines, between its text in base and that in head."""

    def __init__(self, base: str, head: str) -> None:
        self._base, self._head = _lines(base), _lines(head)
        # Each change's start and end in base, and its start and end in head.
        self._changes: list[tuple[int, int, int, int]] = []
        matcher = difflib.SequenceMatcher(None, self._base, self._head, autojunk=False)
        parsed = _parsed(head)
        for kind, start, end, first, last in matcher.get_opcodes():
            if kind == "equal" or (parsed is not None and _parsed(self._with([(start, end, first, last)])) == parsed):
                # The lines are equal, or only comments and spaces change.
                continue
            if self._changes and first - self._changes[-1][3] <= _NEAR:
                start, _, first, _ = self._changes.pop()
            self._changes.append((start, end, first, last))

    def titles(self) -> Iterator[str]:
        """The place of each change in head, in words."""
        for _, _, first, last in self._changes:
            if last > first + 1:
                yield f"lines {first + 1} to {last}"
            elif last > first:
                yield f"line {last}"
            else:
                yield f"what was removed after line {last}" if last else "what was removed at the top"

    def undone(self, numbers: set[int]) -> str:
        """Head's text with the changes of these numbers undone."""
        return self._with([self._changes[number] for number in sorted(numbers)])

    def _with(self, changes: Iterable[tuple[int, int, int, int]]) -> str:
        text: list[str] = []
        at = 0
        for start, end, first, last in changes:
            text += self._head[at:first] + self._base[start:end]
            at = last
        return "".join([*text, *self._head[at:]])


def _lines(text: str) -> list[str]:
    """The text's lines as compilers and editors count them: a form feed does not end a line."""
    return list(io.StringIO(text, newline="\n"))


def _parsed(text: str) -> str | None:
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return None
