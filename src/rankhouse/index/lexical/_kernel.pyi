from typing_extensions import Buffer

def highest(tokens: Buffer, lengths: Buffer, seen_at: Buffer, counts: Buffer) -> int: ...
def invert(
    tokens: Buffer,
    lengths: Buffer,
    seen_at: Buffer,
    ends: Buffer,
    terms: Buffer,
    tfs: Buffer,
    tf_bytes: int,
) -> int: ...
def scatter(
    ends: Buffer,
    terms: Buffer,
    tfs: Buffer,
    tf_bytes: int,
    starts: Buffer,
    rows_out: Buffer,
    tfs_out: Buffer,
) -> None: ...
def strings(blob: Buffer, offsets: Buffer, rows: Buffer) -> list[str]: ...
def prefixes(blob: Buffer, offsets: Buffer, rows: Buffer, out: Buffer) -> None: ...
def find(words: list[str], hashes: Buffer, numbers: Buffer, out: Buffer, unknown: Buffer) -> int: ...
def put(keys: Buffer, values: Buffer, hashes: Buffer, numbers: Buffer) -> None: ...
def rank(
    rows: Buffer,
    tfs: Buffer,
    tf_bytes: int,
    codes: Buffer,
    n_codes: int,
    spans: Buffer,
    tables: Buffer,
    scores: Buffer,
    id_rank: Buffer,
    id_order: Buffer,
    prior: Buffer,
    floor: float,
    out_rows: Buffer,
    out_scores: Buffer,
) -> int: ...
