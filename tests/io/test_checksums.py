"""Checksums: what is read is compared, nothing else, each block once."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from rankhouse.core.errors import BadIndex
from rankhouse.io.checksums import BLOCK, BlockSums, FileSum, Guard, file_sum

_CONTENT = np.random.default_rng(3).integers(0, 256, 6 * BLOCK + 100, np.uint8)


def _blocks(data: bytes) -> list[int]:
    return [zlib.crc32(data[start : start + BLOCK]) for start in range(0, len(data), BLOCK)]


def _guard(damaged: int) -> Guard:
    """Guard the content with one byte changed in a block."""
    sums = BlockSums()
    sums.add(_CONTENT.tobytes())
    there = _CONTENT.copy()
    there[damaged * BLOCK + 50] ^= 1
    expected = FileSum(len(there), zlib.crc32(_CONTENT), sums.packed())
    return Guard(there, expected, lambda: BadIndex("damaged"))


@pytest.mark.parametrize("step", [1_000, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_the_checksums_of_blocks_do_not_depend_on_the_pieces(step: int) -> None:
    data, sums = _CONTENT.tobytes(), BlockSums()
    for start in range(0, len(data), step):
        sums.add(data[start : start + step])
    assert np.frombuffer(sums.packed(), "<u4").tolist() == _blocks(data)


def test_a_file_is_measured_whole_and_by_blocks(tmp_path: Path) -> None:
    path, data = tmp_path / "large.bin", _CONTENT.tobytes()
    path.write_bytes(data)
    found = file_sum(path)
    assert (found.bytes, found.crc32) == (len(data), zlib.crc32(data))
    assert np.frombuffer(found.blocks, "<u4").tolist() == _blocks(data)
    assert file_sum(path, BLOCK) == (BLOCK, zlib.crc32(data[:BLOCK]), b"")


@pytest.mark.parametrize("damaged", range(7))
def test_many_spans_are_compared_where_they_lie(damaged: int) -> None:
    starts, ends = np.array([10, 5 * BLOCK - 5, 60, 2 * BLOCK]), np.array([11, 5 * BLOCK, 70, 4 * BLOCK + 1])
    guard = _guard(damaged)
    if damaged in (0, 2, 3, 4):
        with pytest.raises(BadIndex):
            guard.spans(starts, ends)
        return
    guard.spans(starts, ends)
    assert guard.left == 3
    sound = 5 if damaged == 1 else 1
    guard.spans(np.array([sound * BLOCK]), np.array([sound * BLOCK + 9]))
    assert guard.left == 2


def test_spans_outside_of_the_file_are_damage() -> None:
    with pytest.raises(BadIndex):
        _guard(6).spans(np.array([0]), np.array([len(_CONTENT) + 1]))


def test_compiled_checksums_are_zlib_s() -> None:
    compiled = pytest.importorskip("rankhouse.io._crc32", reason="no compiler, or another processor")
    data = memoryview(_CONTENT)
    for size in (*range(300), BLOCK - 1, BLOCK, len(data)):
        for start in (0, 1, 7):
            part = data[start : start + size]
            assert compiled.crc32(part) == zlib.crc32(part)
            assert compiled.crc32(part, 0xDEADBEEF) == zlib.crc32(part, 0xDEADBEEF)
    whole = compiled.crc32(data[1_000:], compiled.crc32(data[:1_000]))
    assert whole == compiled.crc32(_CONTENT.tobytes()) == zlib.crc32(data)
    with pytest.raises(TypeError):
        compiled.crc32("text")
    with pytest.raises((BufferError, ValueError)):
        compiled.crc32(_CONTENT[::2])
