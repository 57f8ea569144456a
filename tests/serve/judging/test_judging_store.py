"""Judgements: nothing that was answered is lost, however many judge at once and whenever the process dies."""

import math
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import evaluate
from rankhouse.io.trec import read_qrels
from rankhouse.serve.errors import Outdated
from rankhouse.serve.judging.compare import agreement, agreements, differences
from rankhouse.serve.judging.log import IMPORTED
from rankhouse.serve.judging.store import JudgementStore, merged

QUERIES = [Query("q1", "Who steers ships?"), Query("q2", "high water")]


@pytest.fixture
def store(tmp_path):
    opened = JudgementStore(tmp_path / "judged" / "qrels.txt", QUERIES)
    yield opened
    opened.close()


def again(store):
    """Close a store and reopen its file."""
    store.close()
    return JudgementStore(store.path, QUERIES)


def test_what_was_judged_is_in_the_qrels_at_once_and_evaluates(store):
    store.judge("ann", "who steers ships", "d1", 2, ["bm25"])
    store.judge("ann", "high water", "d2", 0)
    store.judge("ann", "high water", "d3", 1)
    assert read_qrels(store.path) == store.qrels == {"q1": {"d1": 2}, "q2": {"d2": 0, "d3": 1}}
    run = Run.of({"q1": {"d1": 2.0}, "q2": {"d2": 2.0, "d3": 1.0}})
    assert evaluate(run, read_qrels(store.path), "RR@10").to_dict() == {"RR@10": 0.75}


def test_a_query_of_ones_own_has_an_id_made_of_its_words_and_its_text_is_kept(store):
    first = store.judge("ann", "What lifts ships?", "d3", 2)
    second = store.judge("ben", "what LIFTS  ships", "d1", 0)
    assert first.query_id == second.query_id
    assert first.query_id.startswith("q-")
    lines = store.queries_path.read_text().splitlines()
    assert lines == [f'{{"id":"{first.query_id}","text":"What lifts ships?"}}']


def test_a_later_word_of_the_same_judge_replaces_the_earlier_and_null_takes_it_back(store):
    store.judge("ann", "high water", "d2", 0)
    store.judge("ann", "high water", "d2", 2)
    assert store.qrels == {"q2": {"d2": 2}}
    store.judge("ann", "high water", "d2", None)
    assert store.qrels == read_qrels(store.path) == {}


def test_undo_goes_back_step_by_step_for_each_judge_alone(store):
    store.judge("ann", "high water", "d2", 0)
    store.judge("ann", "high water", "d2", 2)
    store.judge("ben", "high water", "d3", 1)
    undone = store.undo("ann")
    assert (undone.doc_id, undone.grade, undone.undoes) == ("d2", 0, 2)
    assert store.qrels == {"q2": {"d2": 0, "d3": 1}}
    assert store.undo("ann").grade is None
    assert store.undo("ann") is None
    assert store.qrels == read_qrels(store.path) == {"q2": {"d3": 1}}
    opened = again(store)
    assert opened.qrels == {"q2": {"d3": 1}}
    assert opened.undo("ann") is None
    assert opened.undo("ben").doc_id == "d3"
    opened.close()


def test_everything_is_there_after_opening_anew(store):
    store.judge("ann", "who steers ships", "d1", 2, ["bm25", "hybrid"])
    store.judge("ben", "a question of my own", "d2", 1)
    before, qrels = store.entries, store.qrels
    opened = again(store)
    assert (opened.entries, opened.qrels, opened.judges) == (before, qrels, ("ann", "ben"))
    assert opened.entries[0].systems == ("bm25", "hybrid")
    opened.close()


def test_judges_are_merged_to_the_lower_median():
    assert merged({"ann": 2}) == 2
    assert merged({"ann": 2, "ben": 0}) == 0
    assert merged({"ann": 2, "ben": 0, "cas": 1}) == 1
    assert merged({IMPORTED: 2, "ann": 0}) == 0
    assert merged({IMPORTED: 2}) == 2


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(-1, 3), min_size=1))
def test_at_least_half_of_the_judges_find_it_that_good(grades):
    value = merged(grades)
    assert 2 * sum(grade >= value for grade in grades.values()) >= len(grades)
    assert 2 * sum(grade <= value for grade in grades.values()) >= len(grades)


DEEDS = st.tuples(
    st.sampled_from(["ann", "ben"]),
    st.sampled_from(["high water", "own words"]),
    st.sampled_from(["d1", "d2"]),
    st.sampled_from([None, 0, 1, 2, "undo"]),
)


@settings(max_examples=25)
@given(st.lists(DEEDS, max_size=12))
def test_whatever_is_said_and_taken_back_the_file_is_what_the_judges_last_said(tmp_path_factory, deeds):
    """Beside a model of it that keeps every state of every judge and goes back through them."""
    store = JudgementStore(tmp_path_factory.mktemp("deeds") / "qrels.txt", QUERIES)
    said, past = {}, {"ann": [], "ben": []}
    for judge, query, doc_id, grade in deeds:
        if grade == "undo":
            undone = store.undo(judge)
            assert (undone is None) == (not past[judge])
            if past[judge]:
                place, before = past[judge].pop()
                said[place] = before
            continue
        place = (judge, query, doc_id)
        past[judge].append((place, said.get(place)))
        said[place] = grade
        store.judge(judge, query, doc_id, grade)
    wanted = {}
    for (_, query, doc_id), grade in said.items():
        if grade is not None:
            wanted.setdefault((store.query_id(query), doc_id), []).append(grade)
    pairs = {(q, d): grade for q, judged in store.qrels.items() for d, grade in judged.items()}
    assert pairs == {pair: min(grades) for pair, grades in wanted.items()}  # of two the lower
    assert read_qrels(store.path) == store.qrels if deeds else not store.path.exists()
    opened = again(store)
    assert opened.qrels == store.qrels
    opened.close()


def test_judgements_that_were_there_before_are_taken_up_and_corrected(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text("q1 0 d1 1\nq1 0 d2 0\n")
    store = JudgementStore(path, QUERIES)
    assert store.judges == ()
    store.judge("ann", "who steers ships?", "d2", 2)
    assert read_qrels(path) == {"q1": {"d1": 1, "d2": 2}}
    opened = again(store)
    assert opened.qrels == {"q1": {"d1": 1, "d2": 2}}
    opened.undo("ann")
    assert read_qrels(path) == {"q1": {"d1": 1, "d2": 0}}
    opened.close()


def test_lines_added_to_the_file_by_hand_are_taken_up_and_changed_ones_are_told(store):
    for place in range(4):
        store.judge("ann", "high water", f"d{place}", 1)
    store.close()
    store.path.write_text("q2 0 d0 0\nq2 0 d1 0\nq2 0 d2 1\nq2 0 d3 1\nq2 0 d9 2\n")
    with pytest.warns(RankhouseWarning, match="2 grades are not those of"):
        opened = JudgementStore(store.path, QUERIES)
    assert opened.qrels == read_qrels(store.path) == {"q2": {"d0": 1, "d1": 1, "d2": 1, "d3": 1, "d9": 2}}
    opened.close()


@pytest.mark.parametrize(("judge", "query", "doc_id", "grade", "said"), [
    ("", "ships", "d1", 1, "give a name"), ("a\nb", "ships", "d1", 1, "give a name"),
    ("x" * 65, "ships", "d1", 1, "give a name"), (IMPORTED, "ships", "d1", 1, "give a name"),
    ("ann", " ", "d1", 1, "the query is empty"), ("ann", "ships", "d 1", 1, "has no white space"),
    ("ann", "ships", "", 1, "is not empty"),
    ("ann", "ships", "d1", 7, r"the scale has 0 \(does not help\), 1"),
])  # fmt: skip
def test_what_cannot_be_written_down_is_refused_before_anything_is(store, judge, query, doc_id, grade, said):
    with pytest.raises(WrongUse, match=said):
        store.judge(judge, query, doc_id, grade)
    assert store.entries == ()
    assert store.log_path.read_bytes() == b""


def test_a_line_that_a_kill_cut_off_is_taken_away_and_damage_is_refused(store):
    store.judge("ann", "high water", "d2", 1)
    store.judge("ann", "high water", "d3", 1)
    store.close()
    whole = store.log_path.read_bytes()
    store.log_path.write_bytes(whole + whole[:40])
    opened = JudgementStore(store.path, QUERIES)
    assert len(opened.entries) == 2
    opened.judge("ann", "high water", "d4", 1)
    opened.close()
    store.log_path.write_bytes(b"{" + whole)
    with pytest.raises(BadData, match="line 1: is no line of a log of judgements"):
        JudgementStore(store.path, QUERIES)
    store.log_path.write_bytes(whole.splitlines(keepends=True)[1])
    with pytest.raises(BadData, match="numbered from 1; this one says 2"):
        JudgementStore(store.path, QUERIES)


def test_a_full_disk_loses_nothing_and_leaves_no_half_line(store, monkeypatch):
    store.judge("ann", "high water", "d2", 1)
    write = os.write

    def full(handle, content):
        if len(content) < 40:
            raise OSError(28, "No space left on device")
        return write(handle, content[:-39])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="the disk is full"):
        store.judge("ann", "high water", "d3", 1)
    monkeypatch.undo()
    assert len(store.entries) == 1
    store.judge("ann", "high water", "d4", 2)
    opened = again(store)
    assert opened.qrels == {"q2": {"d2": 1, "d4": 2}}
    opened.close()


def test_many_threads_at_once_lose_nothing(store):
    def work(number):
        for place in range(15):
            store.judge(f"judge{number % 3}", f"question {number}", f"d{place}", place % 3)
            if place % 5 == 4:
                store.undo(f"judge{number % 3}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert [entry.number for entry in store.entries] == list(range(1, 6 * 18 + 1))
    assert read_qrels(store.path) == store.qrels
    opened = again(store)
    assert opened.qrels == store.qrels
    opened.close()


OPEN = "from pathlib import Path; from rankhouse.serve.judging.store import JudgementStore\n"


def test_a_second_process_is_refused_until_the_first_lets_go_in_whatever_thread(store):
    code = OPEN + f"JudgementStore(Path({str(store.path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another process is writing it" in done.stderr
    with ThreadPoolExecutor(1) as pool:
        pool.submit(store.close).result()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


JUDGING = """
import sys, threading
store = JudgementStore(Path(sys.argv[1]))
told = threading.Lock()
def work(number):
    for place in range(100_000):
        entry = store.judge(f"judge{number}", f"question {place % 40}", f"d{number}-{place}", place % 3)
        with told:
            print(entry.number, entry.doc_id, entry.grade, flush=True)
for number in range(2):
    threading.Thread(target=work, args=(number,)).start()
"""


@pytest.mark.kill
def test_no_answered_judgement_is_lost_by_a_kill_at_any_moment(tmp_path):
    """Killed again and again, on one file that grows from kill to kill."""
    path, draw, answered = tmp_path / "qrels.txt", random.Random(11), {}
    for _ in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", OPEN + JUDGING, path], stdout=subprocess.PIPE, text=True
        )
        lines = [child.stdout.readline() for _ in range(draw.randint(1, 12))]
        time.sleep(draw.uniform(0, 0.05))
        os.kill(child.pid, signal.SIGKILL)
        lines += child.communicate()[0].splitlines(keepends=True)
        for number, doc_id, grade in (line.split() for line in lines if line.endswith("\n")):
            answered[int(number)] = (doc_id, int(grade))
        store = JudgementStore(path)
        entries = store.entries
        assert {n: (entries[n - 1].doc_id, entries[n - 1].grade) for n in answered} == answered
        assert len(entries) <= max(answered) + 2  # what each thread had written and not yet answered
        assert read_qrels(path) == store.qrels
        store.close()
    assert len(answered) >= 40
    assert not [*Path(tmp_path).glob(".qrels.txt.*.part")]


def test_two_judges_agreement_is_cohens_kappa():
    sklearn = pytest.importorskip("sklearn.metrics")
    draw = random.Random(5)
    mine = [draw.randrange(3) for _ in range(60)]
    theirs = [grade if draw.random() < 0.6 else draw.randrange(3) for grade in mine]
    ann = {"q": {f"d{i}": grade for i, grade in enumerate(mine)}}
    ben = {"q": {f"d{i}": grade for i, grade in enumerate(theirs)}, "other": {"d1": 2}}
    told = agreement("ann", "ben", ann, ben)
    assert told.pairs == 60
    assert told.same == pytest.approx(sum(a == b for a, b in zip(mine, theirs, strict=True)) / 60)
    assert told.kappa == pytest.approx(sklearn.cohen_kappa_score(mine, theirs))
    assert told.weighted == pytest.approx(sklearn.cohen_kappa_score(mine, theirs, weights="quadratic"))
    largest = differences(ann, ben)[0]
    assert abs(largest.first - largest.second) == 2
    assert math.isnan(agreement("ann", "ben", {"q": {"d": 1}}, {"q": {"d": 1}}).kappa)


def test_only_judges_with_pairs_in_common_are_compared(store):
    store.judge("ann", "high water", "d1", 2)
    store.judge("ben", "high water", "d1", 0)
    store.judge("cas", "high water", "d9", 0)
    (told,) = agreements(store)
    assert (told.first, told.second, told.pairs, told.same) == ("ann", "ben", 1, 0.0)
    assert store.grades("high water") == {"d1": {"ann": 2, "ben": 0}, "d9": {"cas": 0}}


def test_what_a_hand_writes_into_the_file_while_it_is_judged_is_kept(store):
    store.judge("ann", "high water", "d1", 2)
    store.path.write_text("q2 0 d1 2\nq2 0 d9 1\nq7 0 d3 2\n")
    store.judge("ann", "high water", "d2", 0)
    assert read_qrels(store.path) == {"q2": {"d1": 2, "d9": 1, "d2": 0}, "q7": {"d3": 2}}
    store.path.write_text("q2 0 d1 0\n")
    with pytest.warns(RankhouseWarning, match="1 grades are not those of"):
        store.undo("ann")
    assert read_qrels(store.path) == {"q2": {"d1": 2, "d9": 1}, "q7": {"d3": 2}}
    assert again(store).qrels == read_qrels(store.path)


def test_a_file_that_a_hand_broke_is_not_overwritten(store):
    store.judge("ann", "high water", "d1", 2)
    store.path.write_text("q2 0 d1\n")
    with pytest.raises(BadData, match="3 columns"):
        store.judge("ann", "high water", "d2", 0)
    assert store.path.read_text() == "q2 0 d1\n"
    assert [entry.doc_id for entry in store.entries] == ["d1"]


def test_nobody_takes_back_what_the_file_brought(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text("q1 0 d1 2\n")
    store = JudgementStore(path, QUERIES)
    assert store.undo(IMPORTED) is None
    assert read_qrels(path) == {"q1": {"d1": 2}}
    store.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_word_that_is_in_the_log_is_said_although_the_files_cannot_be_made(store):
    """Else a client that tries again would undo twice."""
    store.judge("ann", "high water", "d1", 2)
    store.queries_path.unlink()
    store.queries_path.symlink_to("/dev/full")
    with pytest.warns(RankhouseWarning, match="disk is full.*stands in"):
        store.judge("ann", "who steers ships", "d2", 2)
    assert store.undo("ann").doc_id == "d2"
    store.queries_path.unlink()
    assert again(store).qrels == {"q2": {"d1": 2}}


@pytest.mark.parametrize("systems", [["bm25"] * 21, ["x" * 201]])
def test_names_of_systems_have_an_end(store, systems):
    with pytest.raises(WrongUse, match="at most 20 names"):
        store.judge("ann", "high water", "d1", 2, systems)


def test_a_word_said_since_the_version_that_was_seen_is_not_overwritten(store):
    seen = store.version
    store.judge("ann", "high water", "d2", 2, version=seen)
    with pytest.raises(Outdated, match="you graded it 2 in another window"):
        store.judge("ann", "high water", "d2", 0, version=seen)
    store.judge("ann", "high water", "d2", 2, version=seen)  # the same grade is no conflict
    store.judge("ann", "high water", "d3", 1, version=seen)  # nor is another document
    store.judge("ben", "high water", "d2", 0, version=seen)  # nor another judge
    store.judge("ann", "high water", "d2", 0, version=store.version)
    assert store.qrels_of("ann") == {"q2": {"d2": 0, "d3": 1}}
    seen = store.version
    store.undo("ann")
    with pytest.raises(Outdated, match="you graded it 2"):
        store.judge("ann", "high water", "d2", 1, version=seen)
