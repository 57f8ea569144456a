"""JSON from people's files and from rankhouse's own: every fault is an error with its place."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import msgspec

from rankhouse.core import progress
from rankhouse.core.errors import BadData, RankhouseError
from rankhouse.io.checksums import changed_since_written
from rankhouse.io.files import Skips, as_text, begins_array, most_bytes, too_long

T = TypeVar("T")

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that decoding damaged JSON raises."""

MOST_NESTED = 100
"""Deepest nesting of JSON: far beyond any record, far from the limits of what reads it again later."""

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
    *,
    deep: bool = False,
) -> T:
    """Decode JSON that a person's file holds; BadData says what is wrong with it.

    It begins with what was ``wanted``, "not a labelled pair; a line is {...}", the reason behind its first
    clause. A key twice is refused in the outermost object, or, with ``deep``, in any.
    """
    try:
        value = decode.decode(raw)
    except RecursionError as error:
        raise nested(path, line) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if path is not None and line is not None:
            as_text(raw, Path(path), line)
        head, _, tail = wanted.partition("; ")
        reason = f"{head} ({_json_fault(raw, error)})" + (f"; {tail}" if tail else "")
        raise BadData(reason, path, line) from error
    if not isinstance(value, dict) or raw.count(b'":') != len(value):  # mostly no key can be there twice
        _refuse_repeated(raw, value, path, line, deep=deep)
    return value


def _refuse_repeated(
    raw: bytes, value: object, path: Path | str | None, line: int | None, *, deep: bool
) -> None:
    """Refuse an object that has a key twice, of which only one value would count."""
    try:
        if isinstance(value, dict) and raw.count(b'"') == msgspec.json.encode(value).count(b'"'):
            return
    except (OverflowError, RecursionError):
        pass
    twice: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        own = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
        twice[:] = (twice if deep else []) + own  # the outermost object ends last

    try:
        json.loads(raw, object_pairs_hook=note)
    except (ValueError, RecursionError):  # what only our decoder reads
        return
    if twice:
        raise BadData(f'the key "{twice[0]}" is there twice; keep one of them', path, line)


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


def each_record(
    lines: Iterable[tuple[int, bytes]], path: Path, read: Callable[[bytes, Path, int], T], skips: Skips
) -> Iterator[tuple[int, T]]:
    """Read the lines of a file of one record a line, empty ones left out; ``read`` raises BadData.

    An array of JSON objects is read as if each of them had a line, and is held in memory.
    """
    numbered = ((line, raw) for line, raw in lines if raw.strip())
    first = list(islice(numbered, 1))
    records = chain(first, numbered)
    for line, raw in _elements(records, path) if first and begins_array(first[0][1]) else records:
        try:
            yield line, read(raw, path, line)
        except BadData as fault:
            skips.take(fault)


def _elements(lines: Iterable[tuple[int, bytes]], path: Path) -> Iterator[tuple[int, bytes]]:
    """Stream the elements of a JSON array, each with its first line; BadData for what is none."""
    raw, starts, numbers, most = bytearray(), list[int](), list[int](), most_bytes()
    for number, line in lines:
        starts.append(len(raw))
        numbers.append(number)
        raw += line + b"\n"
        if len(raw) > most:
            raise too_long("the JSON array", path)
    try:
        elements = msgspec.json.decode(raw, type=list[msgspec.Raw])
    except UNREADABLE as error:
        reason = f"is no whole JSON array ({error}); mend it, or write one record a line"
        raise BadData(reason, path, numbers[0]) from error
    at = 0
    for element in map(bytes, elements):
        begin = raw.index(element, at)
        at = begin + len(element)
        yield numbers[bisect_right(starts, begin) - 1], element


# --- files that rankhouse itself wrote ------------------------------------------------------------------


def read_own(path: Path, kind: type[T], advice: str, error: type[RankhouseError] = BadData) -> T:
    """Read a JSON file that rankhouse wrote; ``advice`` says what to do if it cannot be read.

    Raises the error where it is missing, empty, damaged, of another shape or nested too deep, or its
    checksums say that it, or a file beside it, was changed.
    """
    raw = read_own_bytes(path, advice, error)
    value = decode_own(raw, kind, f"{path}:", advice, error=error)
    if fault := changed_since_written(raw, path):
        raise error(f"{fault}; {advice}")
    return value


def read_own_bytes(path: Path, advice: str, error: type[RankhouseError] = BadData) -> bytes:
    """Read a small file that rankhouse wrote; errors are as in :func:`read_own`."""
    try:
        return path.read_bytes()
    except OSError as fault:
        raise error(f"{path}: cannot be read ({fault.strerror or fault}); {advice}") from fault


def decode_own(
    raw: bytes | str, kind: type[T], name: str, advice: str, error: type[RankhouseError] = BadData
) -> T:
    """Decode JSON that rankhouse wrote; ``name`` is what held it, as messages begin: a file with a colon."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE as fault:
        raise error(f"{name} cannot be read ({fault}); {advice}") from fault


def read_cache(path: Path, kind: type[T]) -> T | None:
    """Read a JSON file that can be made again; None where it is missing, or, with a remark, damaged."""
    if not path.exists():
        return None
    try:
        return read_own(path, kind, "it is made again")
    except BadData as fault:
        progress.note(str(fault))
        return None
