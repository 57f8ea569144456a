"""A result is whole or absent, and nothing of another kind is ever replaced by it."""

import errno
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rankhouse.core.errors import OutputFailed, WrongUse
from rankhouse.io import outputs, scratch
from rankhouse.io.files import numbered_lines
from rankhouse.io.outputs import (
    lock_of,
    only_writer,
    others,
    refuse_if_written,
    replacing,
    replacing_folder,
    writing,
)
from rankhouse.io.scratch import recover, tidy


def anything(folder):
    return []


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
        pytest.raises(OutputFailed, match=r"out\.txt: cannot be written: the disk is full"),
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
        pytest.raises(OutputFailed, match=r"file is a file, so nothing can be written below it"),
        writing(tmp_path / "file" / "out.txt"),
    ):
        pass


def test_a_folder_can_replace_a_folder(tmp_path):
    target = tmp_path / "made"
    target.mkdir()
    (target / "old").touch()
    with replacing_folder(target, anything) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert [p.name for p in target.iterdir()] == ["new"]
    assert os.listdir(tmp_path) == ["made"]


KILLED = """
import os, signal, sys
from pathlib import Path
from rankhouse.io import outputs

target = Path(sys.argv[1])
with outputs.replacing_folder(target, lambda folder: []) as temporary:
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
    with replacing_folder(target, anything) as slow:  # a living writer: nobody tidies it up
        assert [p.name for p in target.iterdir()] == [left]
        slow.mkdir()
        with replacing_folder(target, anything) as quick:
            quick.mkdir()
            (quick / "quick").touch()
        assert [p.name for p in target.iterdir()] == ["quick"]
        assert slow.exists()
    assert not os.listdir(target)
    assert os.listdir(tmp_path) == ["made"]


def test_a_file_never_replaces_a_folder(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with (
        pytest.raises(WrongUse, match="mine: is a folder, a file"),
        writing(tmp_path / "mine"),
    ):
        pass
    with (
        pytest.raises(WrongUse, match="became a folder"),
        replacing(tmp_path / "late") as temporary,
    ):
        temporary.write_text("new")
        (tmp_path / "late").mkdir()
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["late", "mine"]


def test_a_folder_never_replaces_a_file_or_a_folder_that_holds_something_else(tmp_path):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(WrongUse, match="is a file"), replacing_folder(tmp_path / "file", anything):
        pass
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("manifest.json", "thesis.tex"):
        (mine / name).write_text("precious")
    with (
        pytest.raises(WrongUse, match=r"mine: holds something else \(thesis\.tex\)"),
        replacing_folder(mine, lambda folder: others(folder, (), ["manifest.json"])),
    ):
        pass
    with (
        pytest.raises(WrongUse, match=r"manifest\.json, thesis\.tex"),
        replacing_folder(mine, lambda folder: others(folder, (), ["manifest.json", "segments"])),
    ):
        pass
    assert sorted(os.listdir(mine)) == ["manifest.json", "thesis.tex"]


def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "run").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "run")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    with writing(tmp_path / "link") as out:
        out.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "run").read_text() == "new"
    with replacing_folder(tmp_path / "folder", anything) as temporary:
        temporary.mkdir()
    assert (tmp_path / "folder").is_symlink()
    assert not os.listdir(tmp_path / "real")


def test_pipes_and_devices_are_written_to(tmp_path, capfdbinary):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with writing(pipe) as out:
        out.write("content")
    reader.join(120)
    assert got == [b"content"]
    assert pipe.is_fifo()
    for name in ("-", "/dev/stdout"):
        with writing(outputs.Path(name)) as out:
            out.write("to the screen\n")
    assert capfdbinary.readouterr().out == b"to the screen\nto the screen\n"
    with writing(outputs.Path("/dev/null")) as out:
        out.write("gone")
    assert outputs.Path("/dev/null").is_char_device()


def test_a_device_that_is_full_stays_what_it_is():
    full = outputs.Path("/dev/full")
    with pytest.raises(OutputFailed, match="the disk is full"), writing(full) as out:
        out.write("x")
    assert full.is_char_device()


@pytest.mark.parametrize("exchanging", [True, False])
def test_folders_change_places(tmp_path, monkeypatch, exchanging):
    if not exchanging:
        monkeypatch.setattr(outputs, "_exchanged", lambda *_: False)
    target = tmp_path / "made"
    for content in ("old", "new"):
        with replacing_folder(target, anything) as temporary:
            temporary.mkdir()
            (temporary / content).touch()
    assert os.listdir(target) == ["new"]
    assert os.listdir(tmp_path) == ["made"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs an exchange of two names")
def test_a_folder_that_is_replaced_is_there_at_every_moment(tmp_path):
    target, seen = tmp_path / "made", []
    target.mkdir()

    def watch(frame, event, argument):
        if event in ("call", "return", "c_call", "c_return", "line"):
            seen.append(target.exists())
        return watch

    with replacing_folder(target, anything) as temporary:
        temporary.mkdir()
        sys.settrace(watch)
        sys.setprofile(watch)
    sys.settrace(None)
    sys.setprofile(None)
    assert seen
    assert all(seen)


def test_what_a_writer_killed_between_two_renames_left_is_recovered(tmp_path):
    target = tmp_path / "made"
    target.mkdir()
    ended = subprocess.run([sys.executable, "-c", KILLED, str(target), "between the renames"], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not target.exists()
    recover(target)
    assert os.listdir(target) == ["new"]


def test_the_second_writer_of_one_target_is_refused(tmp_path):
    target = tmp_path / "deep" / "out"
    other = [sys.executable, "-c", OTHER, str(target)]
    with only_writer(target), only_writer(target):  # the same thread may come again
        ended = subprocess.run(other, check=False, capture_output=True, text=True)
        assert "another process is writing it" in ended.stdout
        with ThreadPoolExecutor(1) as threads, pytest.raises(WrongUse, match="another process"):
            threads.submit(enter, target).result()
    assert not os.listdir(target.parent)
    assert subprocess.run(other, check=False, capture_output=True, text=True).stdout == "mine\n"


def enter(target):
    with only_writer(target):
        pass


OTHER = """
import sys
from pathlib import Path
from rankhouse.core.errors import WrongUse
from rankhouse.io.outputs import only_writer

try:
    with only_writer(Path(sys.argv[1])):
        print("mine")
except WrongUse as error:
    print(error)
"""


HOLDER = """
import os, signal, sys
from pathlib import Path
from rankhouse.io.outputs import only_writer

with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_blocks_nobody_and_a_living_one_keeps_its_folder(tmp_path):
    target = tmp_path / "in" / "side"
    command = [sys.executable, "-c", HOLDER, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(WrongUse, match="side: another process is writing it"):
            refuse_if_written(tmp_path)
        process.stdin.close()
        assert process.wait() == -signal.SIGKILL
    assert lock_of(target).exists()
    refuse_if_written(tmp_path)
    enter(target)
    assert not os.listdir(target.parent)


@pytest.mark.parametrize("name", ["x" * 300, "loop"])
def test_names_that_no_file_can_have_are_refused(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    for open_it in (writing, only_writer, lambda path: replacing_folder(path, anything)):
        with pytest.raises(OutputFailed, match="links lead in a circle|too long"), open_it(tmp_path / name):
            pass


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from rankhouse.io.outputs import replacing

def interrupt(event, arguments):
    if event == "os.rmdir":
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt)
try:
    with replacing(Path("a.run")) as temporary:
        temporary.write_text("new")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_that_falls_into_the_tidying_waits_for_its_end(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "interrupted\n"
    assert [p.name for p in tmp_path.iterdir()] == ["a.run"]


def test_what_killed_writers_left_below_a_folder_is_removed(tmp_path):
    left = tmp_path / "result" / "deep" / ".step.json.abc.part"
    left.mkdir(parents=True)
    with replacing(tmp_path / "result" / "a.run") as temporary:
        temporary.write_text("living")
        tidy(tmp_path)
        assert not left.exists()
    assert (tmp_path / "result" / "a.run").read_text() == "living"


def test_what_a_living_writer_holds_is_not_tidied_up(tmp_path):
    with replacing(tmp_path / "settings.json") as temporary:
        temporary.write_text("{}")
        tidy(tmp_path)
    assert os.listdir(tmp_path) == ["settings.json"]


def test_a_signal_while_the_scratch_folder_is_made_leaves_nothing(tmp_path, monkeypatch):
    made = scratch._marked_scratch

    def interrupted(target):
        folder = made(target)
        signal.raise_signal(signal.SIGINT)
        return folder

    monkeypatch.setattr(scratch, "_marked_scratch", interrupted)
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "out") as temporary:
        temporary.write_text("never reached")
    assert not os.listdir(tmp_path)


def test_standard_output_that_the_caller_closed_is_said(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it after  >&-
    with pytest.raises(OutputFailed, match="-: cannot be written: it is closed"), writing(Path("-")) as file:
        file.write("a")
