"""Reading says file and line; writing is whole or absent."""

import errno
import gzip
import os
import signal
import subprocess
import sys

import pytest

from rankhouse.core.errors import BadData, MissingInput, OutputFailed
from rankhouse.core.files import Meter, Skips, kind_of, looks_like, numbered_lines, replacing, writing

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


@pytest.mark.parametrize("name", ["out.txt", "out.txt.gz", "out.txt.zst", "deep/er/out.txt"])
def test_writes_and_reads_back(tmp_path, name):
    with writing(tmp_path / name) as out:
        out.write("é\nb\n")
    assert list(numbered_lines(tmp_path / name)) == [(1, "é".encode()), (2, b"b")]


def test_same_content_same_bytes(tmp_path):
    for name in ("a.gz", "b.gz"):
        with writing(tmp_path / name) as out:
            out.write("x" * 1000)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), writing(path) as out:
        out.write("new")
        _ = 1 / 0
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_a_full_disk_is_explained(tmp_path):
    path = tmp_path / "out.txt"
    with (
        pytest.raises(OutputFailed, match=r"out\.txt: cannot be written: the disk is full.*half-written"),
        writing(path),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, a device that is always full")
def test_a_really_full_device_is_explained(tmp_path):
    with pytest.raises(OutputFailed, match="disk is full"), replacing(tmp_path / "out") as temporary:
        temporary.symlink_to("/dev/full")
        with temporary.open("w") as out:
            out.write("x" * 100_000)
    assert not os.listdir(tmp_path)


def test_a_folder_that_cannot_be_made_is_explained(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(OutputFailed, match=r"a part of the path is a file|folder"),
        writing(tmp_path / "file" / "out.txt"),
    ):
        pass


def test_a_folder_can_replace_a_folder(tmp_path):
    target = tmp_path / "made"
    target.mkdir()
    (target / "old").touch()
    with replacing(target) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert [p.name for p in target.iterdir()] == ["new"]
    assert os.listdir(tmp_path) == ["made"]


KILLED = """
import os, signal, sys
from pathlib import Path
from rankhouse.core import files

target = Path(sys.argv[1])
with files.replacing(target) as temporary:
    temporary.mkdir()
    (temporary / "new").touch()
    if sys.argv[2] == "between the renames":
        target.rename(temporary.parent / "replaced")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("moment", "left"), [("while writing", "old"), ("between the renames", "new")])
def test_what_a_killed_writer_left_is_tidied_up_and_nothing_is_lost(tmp_path, moment, left):
    target = tmp_path / "made"
    target.mkdir()
    (target / "old").touch()
    ended = subprocess.run([sys.executable, "-c", KILLED, str(target), moment], check=False)
    assert ended.returncode == -signal.SIGKILL
    with replacing(target) as slow:  # a living writer: nobody tidies it up
        assert [p.name for p in target.iterdir()] == [left]
        slow.mkdir()
        with replacing(target) as quick:
            quick.mkdir()
            (quick / "quick").touch()
        assert [p.name for p in target.iterdir()] == ["quick"]
        assert slow.exists()
    assert not os.listdir(target)
    assert os.listdir(tmp_path) == ["made"]
