"""Full and half width: one form for characters that East Asian typography writes in two.

Full width turns ASCII into its wide forms (U+FF01 to U+FF5E, the ideographic space) and half-width katakana
into katakana, as the annotation paper does with its titles. Half width is the other way for ASCII, and again
katakana in full. NFKC undoes the first, so a tokenizer that applies it sees no difference.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_SHIFT = ord("！") - ord("!")
_WIDE = {code: code + _SHIFT for code in range(ord("!"), ord("~") + 1)} | {ord(" "): "\u3000"}
_NARROW = {code + _SHIFT: code for code in range(ord("!"), ord("~") + 1)} | {0x3000: " "}
_KATAKANA = re.compile("[\uff61-\uff9f]+")  # letters and their sound marks, which join into one character


def full_width(text: str) -> str:
    """Write ASCII in its wide forms and half-width katakana as katakana; all else stays."""
    return _katakana(text).translate(_WIDE)


def half_width(text: str) -> str:
    """Write wide ASCII as ASCII and half-width katakana as katakana; all else stays."""
    return _katakana(text).translate(_NARROW)


def as_it_is(text: str) -> str:
    """Leave the text alone."""
    return text


WIDTHS: dict[str, Callable[[str], str]] = {"as-is": as_it_is, "full": full_width, "half": half_width}
"""Name -> what writes a text in that width."""


def _katakana(text: str) -> str:
    return _KATAKANA.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
