from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import Buffer

def highest(tokens: Buffer, lengths: Buffer, seen_at: Buffer, counts: Buffer) -> int: ...
def invert(
    tokens: Buffer, lengths: Buffer, seen_at: Buffer, ends: Buffer, terms: Buffer, tfs: Buffer, tf_bytes: int
) -> int: ...
def scatter(
    ends: Buffer, terms: Buffer, tfs: Buffer, tf_bytes: int, starts: Buffer, rows_out: Buffer, tfs_out: Buffer
) -> None: ...
def strings(blob: Buffer, offsets: Buffer, rows: Buffer) -> list[str]: ...
def prefixes(blob: Buffer, offsets: Buffer, rows: Buffer, out: Buffer) -> None: ...
def split(
    units: Buffer,
    ends: Buffer,
    kinds: Buffer,
    seed: int,
    hashes: Buffer,
    numbers: Buffer,
    out: Buffer,
    counts: Buffer,
    unknown: Buffer,
) -> tuple[int, int]: ...
def find(words: list[str], hashes: Buffer, numbers: Buffer, out: Buffer, unknown: Buffer) -> int: ...
def put(keys: Buffer, values: Buffer, hashes: Buffer, numbers: Buffer) -> None: ...
def find_terms(
    segments: Sequence[tuple[Buffer, ...]], strings: list[str]
) -> list[tuple[int, int, int, bytes]]: ...
def pack(
    starts: Buffer,
    rows: Buffer,
    payload: Buffer,
    kind: int,
    codes: Buffer,
    documents: int,
    lists: Buffer,
    lists_at: Buffer,
    areas: Buffer,
) -> int: ...
def pack_forward(
    ends: Buffer, terms: Buffer, tfs: Buffer, tf_bytes: int, out: Buffer, offsets: Buffer
) -> int: ...
def unpack_forward(
    blob: Buffer, offsets: Buffer, rows: Buffer, ends: Buffer, terms: Buffer, tfs: Buffer
) -> int: ...
def open_segments(segments: list[tuple[Buffer, ...]]) -> object: ...
def ids(opened: object, rows: Buffer) -> list[str]: ...
def open_model(
    opened: object,
    form: int,
    exact: int,
    codes: int,
    is_sorted: int,
    ratio: Buffer,
    ratio_by_code: Buffer,
    fall: Buffer,
    prior: Buffer,
) -> object: ...
def rank(
    model: object,
    pruning: int,
    k: int,
    every: int,
    known: Mapping[str, tuple[tuple[int, ...], bytes]],
    queries: Sequence[Mapping[str, tuple[float, tuple[int, ...]]] | list[str]] | None,
    arrays: tuple[Buffer | None, ...],
) -> tuple[int, int] | None: ...
def rank_one(
    model: object,
    pruning: int,
    k: int,
    known: dict[str, Any],
    terms: list[str],
    segments: Sequence[tuple[Buffer, ...]] | None,
    fact: Callable[[int, int], float] | None,
) -> tuple[tuple[str, ...], bytes, int, int] | None: ...
