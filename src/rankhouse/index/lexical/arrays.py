"""The files of a segment: which types they may have, and how they are compared with what was written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex
from rankhouse.io.checksums import BLOCK, CheckedArray, FileSum, Guard, differs, file_sum

_OFFSETS, _COUNTS = ("<u4", "<i8"), ("|u1", "<u2", "<u4")
# The types an array may have; a damaged header cannot make another array of a file's bytes.
ARRAYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("terms_at", "lists_at", "forward_at", "ids_at"), _OFFSETS),
    **dict.fromkeys(("block_rows", "block_starts"), ("<i8",)),
    **dict.fromkeys(
        ("terms_order", "frequencies", "lengths", "id_order", "id_rank", "dead", "numbers"), ("<i4",)
    ),
    **dict.fromkeys(("occurrences", "highest_tf"), _COUNTS),
    "codes": ("|u1",),
}
OPTIONAL: Final = ("id_order", "id_rank")
DEAD: Final = "dead-"
BLOBS: Final = ("terms", "lists", "areas", "forward", "ids", "store")
# Small files are compared whole when opened, large ones block by block as they are read (`verify`: whole).
CHECKED_AT_OPEN = BLOCK
# As np.save writes it. numpy reads it with Python's parser, which Python 3.11 may fail at in several threads.
_HEADER: Final = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([^']{3})', 'fortran_order': False, 'shape': \((\d+),\), \} *\n",
    re.DOTALL,
)
REBUILD: Final = "build the index again"


def map_file(path: Path, expected: FileSum | None, again: str = REBUILD) -> CheckedArray[Any]:
    """Map a file of a segment; where it is large, with the guard that compares its blocks.

    What is mapped is compared as well: another process may have replaced a file that was compared before.

    Args:
        again: What is to be done about a damaged file.

    Raises:
        BadIndex: It is not named, missing, no array of its kind, or not what was written.
    """
    if expected is None:
        raise BadIndex(f"{path}: is not named in the manifest; {again}")
    try:
        content: NDArray[np.uint8] = (
            np.asarray(np.memmap(path, np.uint8, "r")) if expected.bytes else np.empty(0, np.uint8)
        )
        is_small = expected.bytes <= CHECKED_AT_OPEN
        found = FileSum(len(content), crc32(content) if is_small else expected.crc32)
        if what := differs(found, expected):
            raise BadIndex(f"{path}: {what}; it is damaged, {again}")
        array, offset = _array_in(path.name, content)
    except (OSError, ValueError, EOFError) as error:
        raise BadIndex(f"{path}: cannot be opened as an array ({error}); {again}") from error
    if is_small:
        return CheckedArray(array)
    return CheckedArray(array, Guard(content, expected, lambda: _damaged(path, again)), offset)


def _array_in(name: str, content: NDArray[np.uint8]) -> tuple[NDArray[Any], int]:
    """Find the array in a file's bytes, and where it begins."""
    if not name.endswith(".npy"):
        return content, 0
    if (head := _HEADER.match(content[:256].tobytes())) is None:
        raise ValueError("it holds no array of one dimension")
    kind, length, begin = head[1].decode(), int(head[2]), head.end()
    if kind not in ARRAYS[name.removesuffix(".npy").partition("-")[0]]:
        raise ValueError(f"it holds {kind}")
    if begin + np.dtype(kind).itemsize * length != len(content):
        raise ValueError(f"it is of length {length:,}, which does not fill its {len(content):,} bytes")
    return content[begin:].view(kind), begin


def _damaged(path: Path, again: str) -> BadIndex:
    return BadIndex(f"{path}: does not have the content it was written with; it is damaged, {again}")


def check_files(folder: Path, sums: Mapping[str, FileSum], *, whole: bool, again: str = REBUILD) -> None:
    """Compare files with what was written: their sizes, and the content of small ones, or of all.

    Args:
        whole: Whether large files are read, too.
        again: What is to be done about a damaged file.

    Raises:
        BadIndex: One differs, or is missing.
    """
    for name, expected in sums.items():
        path, is_read = folder / name, whole or expected.bytes <= CHECKED_AT_OPEN
        try:
            actual = file_sum(path) if is_read else FileSum(path.stat().st_size, expected.crc32)
        except OSError as error:
            raise BadIndex(f"{path}: is missing or cannot be read ({error.strerror}); {again}") from error
        if what := differs(actual, expected):
            raise BadIndex(f"{path}: {what}; it is damaged, {again}")
