"""How much is read at once: a hostile file ends in a message, not in a machine without memory.

``RANKHOUSE_MAX_RECORD``
    Most bytes of what is read as one piece: a line, a record of markup, a small file; 256M by default.
``RANKHOUSE_MAX_EXPANSION``
    How many times its size a compressed file may unpack to, above 256 MiB; 500 by default.

Environment variables; the first may end in K, M or G, and 0 takes a limit away.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from rankhouse.core.errors import BadData, WrongUse

ALWAYS = 256 << 20
"""Bytes that are never too many."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _setting(name: str, usual: int) -> int:
    """Read a limit from the environment; "no limit" is a number that nothing reaches."""
    text = os.environ.get(name, "").strip()
    if not text:
        return usual
    match = re.fullmatch(r"([0-9]{1,15})([KMG]?)", text.upper())
    if match is None:
        raise WrongUse(f'{name}="{text}": write a whole number, like 268435456 or 256M; 0 for no limit')
    return min(int(match[1]) * _UNITS[match[2]] or sys.maxsize, sys.maxsize // 2)


def most_bytes() -> int:
    """Return how many bytes may be read into memory as one piece."""
    return _setting("RANKHOUSE_MAX_RECORD", ALWAYS)


def most_times() -> int:
    """Return how many times its size a compressed file may unpack to, above :data:`ALWAYS` bytes."""
    return _setting("RANKHOUSE_MAX_EXPANSION", 500)


def too_long(what: str, path: Path, line: int | None = None) -> BadData:
    """Return the error for a line, record or file beyond :func:`most_bytes`.

    Args:
        line: The line it stands in, counted from 1.
    """
    return BadData(
        f"{what} has more than {most_bytes():,} bytes, the most that is read as one piece; "
        "if it is meant to, set RANKHOUSE_MAX_RECORD=1G (or more; it has to fit into memory)",
        path,
        line,
    )
