"""JSON from people's files: every fault is a :class:`BadData` with its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import msgspec

from rankhouse.core.errors import BadData
from rankhouse.io.files import as_text

T = TypeVar("T")

MOST_NESTED = 100
"""How deep JSON may be nested: far beyond any record, far from the limits of what reads it again later."""

_lone_surrogate = re.compile(
    rb"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
).search


def from_json(
    decode: msgspec.json.Decoder[T],
    raw: bytes,
    wanted: str,
    path: Path | str | None,
    line: int | None = None,
) -> T:
    """Decode JSON that a person's file holds; BadData says what is wrong with it.

    Args:
        wanted: What it should have been: "not a labelled pair; a line is {...}". The reason goes behind its
            first clause.
    """
    try:
        return decode.decode(raw)
    except RecursionError as error:
        raise nested(path, line) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if path is not None and line is not None:
            as_text(raw, Path(path), line)
        head, _, tail = wanted.partition("; ")
        reason = f"{head} ({_json_fault(raw, error)})" + (f"; {tail}" if tail else "")
        raise BadData(reason, path, line) from error


def _json_fault(raw: bytes, error: Exception) -> str:
    """Name what is wrong: the decoder calls half of a pair of surrogates truncated or malformed."""
    if not isinstance(error, msgspec.ValidationError) and (half := _lone_surrogate(raw)):
        escape = half[0][-6:].decode("ascii")
        return f"{escape} at byte {half.end() - 5} is half of a surrogate pair, which is no character"
    return str(error)


def nested(path: Path | str | None, line: int | None = None) -> BadData:
    """Return the error for JSON that is nested too deep."""
    return BadData(
        f"the JSON is nested more than {MOST_NESTED} deep; flatten or leave out that field", path, line
    )


def is_nested_too_deep(raw: bytes, value: object) -> bool:
    """Return whether decoded JSON is nested more than :data:`MOST_NESTED` deep.

    What one stack of calls can still decode, a deeper one may not encode; so the limit is fixed.
    """
    if raw.count(b"[") + raw.count(b"{") <= MOST_NESTED:
        return False
    level = [value]
    for _ in range(MOST_NESTED):
        inner = list[object]()
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
        level = inner
        if not level:
            return False
    return True
