"""How far the work of a call is: reports for programs, a switch for people, a training's steps."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import rankhouse as rh
from rankhouse.core import progress
from rankhouse.page.bars import Bars

DOCUMENTS = [{"id": f"d{n}", "text": f"ship {n} sails to port {n % 7}"} for n in range(60)]
QUERIES = {f"q{n}": f"ship {n}" for n in range(4)}


class Encoder:
    fingerprint, similarity = "lengths", "dot"

    def encode_passages(self, texts):
        return np.array([[len(text), 1] for text in texts], np.float32)

    encode_queries = encode_passages


class Longest:
    fingerprint, scale = "longest", "score"

    def score(self, pairs):
        return np.array([len(pair.passage.text) for pair in pairs], np.float32)


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return rh.Index.build(DOCUMENTS, "i", workers=1)


def reports_of(call):
    heard = []
    call(heard.append)
    return heard


def test_programs_hear_how_far_the_work_is(index, capfd):
    judged = "judged('qrels.txt')"
    rh.write_qrels({"q0": {"d0": 1}}, "qrels.txt")
    run = index.retrieve(QUERIES)
    calls = {
        "indexing": lambda hear: rh.Index.build(DOCUMENTS, "j", workers=1, on_progress=hear),
        "encoding": lambda hear: index.encode(Encoder(), on_progress=hear),
        "searching": lambda hear: index.retrieve(QUERIES, on_progress=hear),
        "reranking": lambda hear: rh.rerank(Longest(), run, QUERIES, index, on_progress=hear),
        "labelling": lambda hear: rh.label(judged, run, QUERIES, index, out="pairs.jsonl", on_progress=hear),
    }
    for label, call in calls.items():
        heard = reports_of(call)
        assert {report.label for report in heard} == {label}
        done = [report.done for report in heard]
        assert done == sorted(done)
        assert done[-1] > 0
        assert heard[-1].unit
        if heard[-1].total is not None:
            assert heard[-1].done == heard[-1].total
    assert capfd.readouterr().err == ""


def test_reports_estimate_what_is_left(monkeypatch):
    heard = []
    with progress.heard_by(heard.append), progress.shown("counting", 100, "things") as show:
        show(0)
        monkeypatch.setattr(progress.Lines, "seconds", 30.0)
        show(25)
    assert heard[0].seconds_left is None
    assert heard[1][:4] == ("counting", 25, 100, "things")
    assert heard[1].seconds_left == pytest.approx(90, rel=0.1)


def test_one_switch_shows_nothing(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_is_on", True)
    monkeypatch.setattr(progress, "_display", Bars())
    monkeypatch.setattr(progress, "LINE_EVERY", 0.01)

    def work(seconds):
        said, ends = "", time.monotonic() + seconds
        with progress.shown("counting", 3) as show:
            show(1)
            while "counting: 1 of 3 (33%)" not in said and time.monotonic() < ends:
                time.sleep(0.05)
                said += capsys.readouterr().err
        return "counting: 1 of 3 (33%)" in said

    assert work(120)
    rh.progress(False)
    assert not work(0.2)
    rh.progress(True)
    assert work(120)


def test_the_switch_takes_no_word():
    with pytest.raises(rh.RankhouseError, match="progress: on='off', but it takes True or False"):
        rh.progress("off")


@pytest.mark.slow
def test_the_environment_switches_the_command_line_off_too(tmp_path):
    code = (
        "import time; from rankhouse.core import progress; progress.LINE_EVERY = 0.01\n"
        "with progress.shown('work', None): time.sleep(0.5)"
    )
    for value, is_shown in (("0", False), ("off", False), ("1", True), ("", True)):
        env = os.environ | {"RANKHOUSE_PROGRESS": value}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert ("work: at work" in done.stderr) == is_shown


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")  # such a training learns little
def test_a_training_tells_its_steps_and_leaves_other_queries_out(index):
    steps, heard = [], []
    qrels = {query_id: {f"d{n}": 1, f"d{n + 9}": 0} for n, query_id in enumerate(QUERIES)}
    rh.train(
        "knrm(width=8, min_count=1)",
        index,
        out="trained",
        queries=QUERIES,
        qrels=qrels,
        validation=(QUERIES, qrels | {"other": {"d1": 1}}, index.retrieve(QUERIES | {"more": "port"}, k=10)),
        settings={"epochs": 2, "log_every": 1, "overlap": "allow"},
        on_step=steps.append,
        on_progress=heard.append,
    )
    assert any("loss" in step and "rate" in step for step in steps)
    assert any(step.get("measure") and "value" in step for step in steps)
    assert {report.label for report in heard} >= {"training"}
    assert [report for report in heard if report.label == "training"][-1].seconds_left == 0


def test_one_thread_says_the_lines_of_all_work_and_ends_when_idle(monkeypatch):
    begun, said = [], threading.Semaphore(0)
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (begun.append(thread), start(thread)))
    monkeypatch.setattr(progress, "LINE_EVERY", 0.01)
    monkeypatch.setattr(progress, "_speaker", progress._Speaker())
    for _ in range(2):  # after it has ended it begins again
        with progress.Lines("outer", 2, "", lambda line: said.release()):
            for _ in range(50):
                with progress.Lines("inner", 1, "", lambda line: None):
                    pass
            for _ in range(2):
                assert said.acquire(timeout=60)
        begun[-1].join(60)
        assert not begun[-1].is_alive()
    assert len(begun) == 2


@pytest.fixture
def speaker(monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.01)
    monkeypatch.setattr(progress, "_speaker", progress._Speaker())


@pytest.mark.usefixtures("speaker")
def test_a_line_that_cannot_be_written_yet_stops_no_other_work():
    writing, is_read, is_done = threading.Event(), threading.Event(), threading.Event()

    def other():
        with progress.Lines("other", 1, "", lambda line: None):
            is_done.set()

    with progress.Lines("work", 2, "", lambda line: (writing.set(), is_read.wait(60))):
        assert writing.wait(60)
        thread = threading.Thread(target=other)
        thread.start()
        done = is_done.wait(20)
        is_read.set()
    thread.join(60)
    assert done


@pytest.mark.usefixtures("speaker")
def test_a_display_that_fails_silences_no_other_work():
    failed, said = threading.Event(), threading.Semaphore(0)

    def fail(_line):
        failed.set()
        raise LookupError("no such display")

    with progress.Lines("work", 2, "", fail):
        assert failed.wait(60)
        with progress.Lines("other", 2, "", lambda line: said.release()):
            assert said.acquire(timeout=20)


@pytest.mark.usefixtures("speaker")
def test_where_no_thread_can_begin_work_goes_on_without_lines(monkeypatch):
    def fail(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        with progress.Lines("work", 2, "", print) as lines:
            lines(1)
    said = threading.Semaphore(0)
    with progress.Lines("other", 2, "", lambda line: said.release()):
        assert said.acquire(timeout=20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_says_its_own_lines(monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.01)
    source, sink = os.pipe()
    with progress.Lines("outer", 2, "", lambda line: None):
        if not (child := os.fork()):
            with progress.Lines("inner", 1, "", lambda line: os.write(sink, b"said")):
                time.sleep(60)  # the parent ends it
            os._exit(1)
        assert os.read(source, 4) == b"said"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(source)
    os.close(sink)
