"""Reading says file and line; writing is whole or absent."""

import gzip
import os
import sys
import threading
from pathlib import Path

import pytest

from rankhouse.core.errors import BadData, MissingInput
from rankhouse.io.files import (
    Meter,
    Skips,
    begun,
    is_packed,
    kind_of,
    looks_like,
    numbered_lines,
    read_whole,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CONTENT = b"\xef\xbb\xbffirst\r\nsecond\nthird"
LINES = [(1, b"first"), (2, b"second"), (3, b"third")]


@pytest.mark.parametrize(
    ("name", "pack"), [("a.txt", bytes), ("a.txt.gz", gzip.compress), ("a.txt.zst", zstd.compress)]
)
def test_reads_plain_and_compressed_without_marks_and_line_ends(tmp_path, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(CONTENT))
    meter = Meter()
    assert list(numbered_lines(path, meter)) == LINES
    assert meter.bytes == path.stat().st_size
    assert kind_of(path) == ".txt"
    assert looks_like(path) == "f"


def test_compression_is_told_by_content_not_by_name(tmp_path):
    path = tmp_path / "named.txt"
    path.write_bytes(gzip.compress(b"x\n"))
    assert list(numbered_lines(path)) == [(1, b"x")]


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_a_truncated_file_is_an_error_not_a_short_file(tmp_path, pack):
    path = tmp_path / "cut.gz"
    path.write_bytes(pack(os.urandom(200_000))[:-5000])
    with pytest.raises(BadData, match=r"cut\.gz.*damaged or ends too early"):
        list(numbered_lines(path))


def test_a_missing_file_names_its_neighbours(tmp_path):
    (tmp_path / "queries.tsv").touch()
    with pytest.raises(MissingInput, match=r"no such file; beside it there are: queries\.tsv"):
        list(numbered_lines(tmp_path / "query.tsv"))
    with pytest.raises(MissingInput, match="is a folder"):
        list(numbered_lines(tmp_path))


def test_skips_take_as_many_as_allowed():
    skips = Skips(1)
    skips.take(BadData("one", "f", 1))
    with pytest.raises(BadData, match=r"f, line 2: two .*1 faulty records"):
        skips.take(BadData("two", "f", 2))
    with pytest.raises(BadData, match="^f, line 1: one$"):
        Skips().take(BadData("one", "f", 1))


def test_no_hidden_file_or_lock_is_offered_and_the_nearest_comes_first(tmp_path):
    for name in (
        ".queries.tsv.x.part",
        "queries.tsv.lock",
        "a.txt",
        "queries.tsv",
        "old.tmp",
        "b~",
        ".hidden",
    ):
        (tmp_path / name).touch()
    with pytest.raises(MissingInput, match=r"beside it there are: queries\.tsv, a\.txt$"):
        list(numbered_lines(tmp_path / "querys.tsv"))


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no descriptors by name here")
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_pipe_without_a_name_is_read_from_its_beginning_each_time(pack):
    text = b"one\n" + b"two" * 100_000 + b"\nthree\n"
    end, into = os.pipe()
    path = Path(f"/dev/fd/{end}")

    def write():
        with os.fdopen(into, "wb") as stream:
            stream.write(pack(text))

    writer = threading.Thread(target=write)
    writer.start()
    assert next(numbered_lines(path)) == (1, b"one")
    assert begun(path)[0] == b"one"
    for _ in range(2):
        assert read_whole(path) == text
    assert is_packed(path) == (pack is not bytes)
    writer.join()
    os.close(end)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no descriptors by name here")
def test_threads_that_read_one_pipe_each_get_all_of_it():
    end, into = os.pipe()
    lines = [f"line {n}".encode() for n in range(20_000)]

    def write():
        with os.fdopen(into, "wb") as stream:
            stream.write(b"\n".join(lines))

    path, found, gate = Path(f"/dev/fd/{end}"), [], threading.Barrier(4)

    def read():
        gate.wait()
        found.append([raw for _, raw in numbered_lines(path)])

    readers = [threading.Thread(target=read) for _ in range(4)]
    for thread in (threading.Thread(target=write), *readers):
        thread.start()
    for thread in readers:
        thread.join()
    os.close(end)
    assert found == [lines] * 4
