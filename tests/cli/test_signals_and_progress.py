"""Ctrl-C, SIGTERM, lines of progress, warnings: what a person sees of a command at work."""

import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
import time
import warnings

import pytest

from rankhouse.cli import console
from rankhouse.cli import main as cli
from rankhouse.core.errors import RankhouseWarning
from rankhouse.core.progress import Lines

SLOW = """
import sys, time
from rankhouse.io import corpora
from rankhouse.core.nouns import Document
from rankhouse.cli.commands import index
def slow(*sources):
    print("begun", flush=True)
    for number in range(10**6):
        time.sleep(0.002)
        yield Document(f"d{number}", "ships and harbours " * 200)
index.read_sources = slow
from rankhouse.cli.main import main
sys.argv = ["rankhouse", "index", "corpus.jsonl", "--out", "my.index", "--workers", "2"]
main()
"""


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_during_index_ends_in_one_line_and_leaves_nothing(tmp_path, number, code, said):
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.7)
    os.killpg(process.pid, number)  # as a terminal does: everyone in the group
    _, told = process.communicate(timeout=300)
    assert process.returncode == code
    assert told.split() == [said]
    assert not (tmp_path / "my.index").exists()
    assert not [one.name for one in tmp_path.iterdir() if "building" in one.name]


def test_a_signal_that_fell_into_a_callback_gets_through():
    class Finaliser:
        def __init__(self):
            self.itself = self

        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), cli.signals_heeded():
        Finaliser()
        gc.collect()
        for _ in range(12_000):
            time.sleep(0.01)
    assert sys.unraisablehook is not None


def test_sigterm_is_put_back_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(cli.Termination) as end, cli.signals_heeded():
        signal.raise_signal(signal.SIGTERM)
    assert end.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before


def raise_another():
    """What Ray's ``get`` and ``wait`` make of an exception of a signal's handler."""
    try:
        signal.raise_signal(signal.SIGTERM)
    except SystemExit:
        raise SystemExit(1) from None


def swallow():
    with contextlib.suppress(SystemExit):
        signal.raise_signal(signal.SIGTERM)


def fail_over_it():
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException as error:
        raise RuntimeError("a callback failed") from error


@pytest.mark.parametrize("library", [raise_another, swallow, fail_over_it])
def test_sigterm_ends_with_143_whatever_a_library_makes_of_it(library, monkeypatch, capsys):
    monkeypatch.setattr(cli.cli, "main", lambda **_: library())
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 143
    assert capsys.readouterr().err == "terminated\n"


def test_an_unknown_command_or_option_suggests_the_nearest(run):
    done = run("serch", "--index", "i")
    assert done.returncode == 2
    assert 'there is no command "serch" (did you mean "search"?); choose from: index' in done.stderr
    done = run("search", "--indx", "i")
    assert done.returncode == 2
    assert "Did you mean" in done.stderr
    assert "--index" in done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(36, "File name too long", "x"), "rankhouse: x: is too long for the name of a file"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"), "not enough memory"),
    ],
)
def test_the_systems_own_errors_are_one_line(run, monkeypatch, error, said):
    def fail(**_):
        raise error

    monkeypatch.setattr(cli.cli, "main", fail)
    done = run("index", "x")
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_line_of_progress_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("rankhouse.core.progress.LINE_EVERY", 0.02)
    lines, ends = [], time.monotonic() + 120
    with console.progress("encoding", 2_000) as show:
        show(0)
        show(500)
        while len(lines) < 2 and time.monotonic() < ends:
            time.sleep(0.1)
            said = capsys.readouterr().err
            lines += re.findall(
                r"^encoding: 500 of 2,000 \(25%\) in \d+ s, about \d+ s left$", said, re.MULTILINE
            )
    assert len(lines) >= 2


@pytest.mark.parametrize(
    ("total", "unit", "done", "seconds", "line"),
    [
        (1000, "", 250, 100, "x: 250 of 1,000 (25%) in 1 min 40 s, about 5 min 00 s left"),
        (1000, "bytes", 100, 3600, "x: 10% in 1 h 00 min, about 9 h 00 min left"),
        (1000, "", 0, 30, "x: 0 of 1,000 (0%) in 30 s"),
        (None, "", 70, 30, "x: 70 so far, 30 s"),
        (None, "", 0, 30, "x: at work, 30 s"),
    ],
)
def test_how_far_and_how_long(total, unit, done, seconds, line):
    lines = Lines("x", total, unit, print)
    lines.done = done
    assert lines.line(seconds) == line


def test_what_is_left_follows_from_this_sitting_alone(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("rankhouse.core.progress.time.monotonic", lambda: clock[0])
    lines = Lines("x", None, "", print)
    clock[0] += 20  # reading
    lines(900, 1000)  # of an earlier run
    assert lines.line(30) == "x: 900 of 1,000 (90%) in 30 s"
    lines(910, 1000)
    assert lines.line(30) == "x: 910 of 1,000 (91%) in 30 s, about 1 min 30 s left"
    clock[0] += 20
    lines(0, 500)  # other work
    lines(100, 500)
    assert lines.line(50) == "x: 100 of 500 (20%) in 50 s, about 40 s left"
    planned = Lines("x", 100, "", print)
    planned(50)
    assert planned.line(10).startswith("x: 50 of 100")


def test_a_warning_is_said_once_and_no_note_repeats_it(capsys):
    with warnings.catch_warnings():
        console.show_warnings_plainly()
        for _ in range(2):
            warnings.warn("the sea is wet", RankhouseWarning, stacklevel=1)
            console.warn("the sea is wet")
            console.note("the sea is wet")
            console.note("water is wet")
    assert capsys.readouterr().err.splitlines() == ["warning: the sea is wet", "note: water is wet"]


def test_tables_keep_their_width_when_piped(files):
    wide = "w" * 150
    (files / f"{wide}.run").write_text("q1 Q0 d1 1 2.0 x\nq2 Q0 d2 1 1.0 x\n")
    command = f"{sys.executable} -m rankhouse.cli.main evaluate --qrels qrels.txt {wide}.run | cat"
    shown = subprocess.run(command, shell=True, cwd=files, capture_output=True, text=True, check=True).stdout
    assert wide in shown
    assert not [line for line in shown.splitlines() if "…" in line]
