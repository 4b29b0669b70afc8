"""Text in LaTeX: it is set as it was written, and copying it from the PDF gives the same text again.

Files hold ASCII alone, so that no engine's input encoding matters. With T1 fonts (`\\usepackage[T1]{fontenc}`) accents
and underscores are characters of the font; with LaTeX's old default they are drawn, and lost on copying.
"""

import re
import unicodedata

# LaTeX's commands for letters.
_LETTERS = {
    **{"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "ß": "ss"},
    **{"đ": "dj", "Đ": "DJ", "ð": "dh", "Ð": "DH", "þ": "th", "Þ": "TH", "\N{LATIN SMALL LETTER DOTLESS I}": "i"},
}
_SPECIAL = {
    **{character: f"\\{character}" for character in "{}$&%#_"},
    **{letter: rf"\{command}{{}}" for letter, command in _LETTERS.items()},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "±": r"\ensuremath{\pm}",
    "\N{MULTIPLICATION SIGN}": r"\ensuremath{\times}",
    "≤": r"\ensuremath{\le}",
    "≥": r"\ensuremath{\ge}",
    "\N{EN DASH}": r"\textendash{}",
    "\N{EM DASH}": r"\textemdash{}",
    "\N{LEFT SINGLE QUOTATION MARK}": r"\textquoteleft{}",
    "\N{RIGHT SINGLE QUOTATION MARK}": r"\textquoteright{}",
    "\N{LEFT DOUBLE QUOTATION MARK}": r"\textquotedblleft{}",
    "\N{RIGHT DOUBLE QUOTATION MARK}": r"\textquotedblright{}",
    "…": "...",
    "·": r"\textperiodcentered{}",
    "°": r"\textdegree{}",
    "\N{MICRO SIGN}": r"\textmu{}",
    "\N{GREEK SMALL LETTER MU}": r"\textmu{}",
    "€": r"\texteuro{}",
}

# Unicode's combining marks, and LaTeX's commands that put them on a letter.
_ACCENTS = {
    **{"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": "."},
    **{"\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0323": "d", "\u0327": "c", "\u0328": "k"},
}

# The fonts join two of these into a dash or a quotation mark.
_LIGATURE = re.compile(r"([-,'])(?=\1)")


def escape(text: str) -> str:
    """Escape text, so that LaTeX sets it as it is; characters that its fonts lack are named instead of shown."""
    shown = unicodedata.normalize("NFC", " ".join(text.split()))
    return _LIGATURE.sub(r"\1{}", "".join(map(_character, shown)))


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if " " <= character <= "~":
        return character
    letter, *accents = list(unicodedata.normalize("NFD", character))
    if letter.isascii() and len(accents) == 1 and accents[0] in _ACCENTS:
        return rf"\{_ACCENTS[accents[0]]}{{{letter}}}"
    name = unicodedata.name(character, f"U+{ord(character):04X}")
    return f"[{name.lower()}]" if not name.startswith("U+") else f"[{name}]"
