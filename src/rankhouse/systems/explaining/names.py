"""Ids that are not there: which one may have been meant."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from difflib import get_close_matches
from itertools import islice
from typing import Protocol

from rankhouse.core.errors import WrongUse

_LOOKED_AT = 200_000  # ids; more of them take longer than a person waits for an error
_COMPARED = 2_000


class Names(Sized, Iterable[str], Protocol):
    """Ids that can be counted and walked over."""


def nearest(wanted: str, known: Iterable[str]) -> str:
    """Return the known id that is most like another, or "".

    Args:
        known: The ids that there are; the first 200,000 are looked at.
    """
    folded = wanted.casefold()
    alike = []
    for name in islice(known, _LOOKED_AT):
        other = name.casefold()
        if other == folded:
            return name
        if abs(len(other) - len(folded)) <= 3 and (other[:2] == folded[:2] or other[-2:] == folded[-2:]):
            alike.append(name)
    return next(iter(get_close_matches(wanted, alike[:_COMPARED], 1)), "")


def unknown(kind: str, wanted: str, known: Names, where: str) -> WrongUse:
    """Return the error for an id that is not there.

    Args:
        kind: "document" or "query".
    """
    some = ", ".join(islice(known, 3)) + (" ..." if len(known) > 3 else "")
    close = nearest(wanted, known)
    guess = f'; did you mean "{close}"?' if close else f": {some}" if some else ""
    return WrongUse(f'there is no {kind} "{wanted:.80}" in {where}, which has {len(known):,}{guess}')
