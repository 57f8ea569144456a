"""Labelling as a whole: what is written, and that neither chunks, order nor kills change a byte of it."""

import gzip
import itertools
import json
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, BadModel, DuplicateId, OutputFailed, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.io.pairs import read_pairs
from rankhouse.labels.candidates import NEGATIVES, every, none, random
from rankhouse.labels.label import LabelPlan, label
from rankhouse.labels.leaf_rules import judged, ranked, taught
from rankhouse.ranking.cache import CachedRanker
from rankhouse.text.split import Whole


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def work(world, rule, out, progress=None, **plan):
    chosen = LabelPlan(**{"split": world.split} | plan)
    return label(rule, world.run, world.queries, world.documents, out, chosen, progress)


def label_transfer(world, teacher):
    return judged(world.qrels) & taught(teacher)


def test_label_transfer_keeps_the_passages_of_relevant_documents_that_the_teacher_accepts(
    world, teacher, tmp_path
):
    rule = label_transfer(world, teacher)
    done = work(world, rule, tmp_path / "pairs.jsonl", negatives=none())
    expected = [
        (p.query.id, p.passage.doc_id, p.passage.index)
        for p in world.pairs
        if world.qrels[p.query.id].get(p.passage.doc_id, 0) >= 1 and teacher.score([p])[0] >= 0.5
    ]
    written = lines(tmp_path / "pairs.jsonl")
    assert [(w["query_id"], w["doc_id"], w["passage"]) for w in written] == expected
    assert done.relevant == len(expected) > 3
    first = next(p for p in world.pairs if (p.query.id, p.passage.doc_id, p.passage.index) == expected[0])
    assert written[0] == {
        "query_id": first.query.id,
        "query": first.query.text,
        "doc_id": first.passage.doc_id,
        "passage": first.passage.index,
        "text": first.passage.text,
        "label": 1,
        "score": pytest.approx(float(teacher.score([first])[0]), abs=1e-7),
    }


def test_negatives_are_non_relevant_and_what_the_teacher_refuses_is_neither(world, teacher, tmp_path):
    done = work(world, label_transfer(world, teacher), tmp_path / "pairs.jsonl", negatives=every())
    written = lines(tmp_path / "pairs.jsonl")
    zeros = {(w["query_id"], w["doc_id"]) for w in written if w["label"] == 0}
    assert not any(world.qrels[q].get(d, 0) > 0 for q, d in zeros)
    doubtful = done.pairs - done.relevant - done.pool
    assert doubtful == done.asked - done.relevant > 0
    assert len(written) == done.relevant + done.non_relevant == done.pairs - doubtful
    # Of relevant documents only, the teacher read the passages.
    assert {(q, d) for q, d, _ in teacher.asked} == {
        (q, d) for q, found in world.qrels.items() for d, grade in found.items() if grade > 0
    }


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_a_teacher_may_accept_the_best_passages_of_each_document_only(world, teacher, tmp_path, chunk):
    rule = judged(world.qrels) & taught(teacher, threshold=0.3, best=2)
    done = work(world, rule, tmp_path / "pairs.jsonl", negatives=none(), chunk=chunk)
    written = [(w["query_id"], w["doc_id"], w["passage"]) for w in lines(tmp_path / "pairs.jsonl")]
    expected = []
    for (query_id, doc_id), some in itertools.groupby(world.pairs, lambda p: (p.query.id, p.passage.doc_id)):
        if world.qrels[query_id].get(doc_id, 0) < 1:
            continue
        read = [(-float(teacher.score([p])[0]), p.passage.index) for p in some]
        taken = sorted(index for score, index in sorted(read)[:2] if -score >= 0.3)
        expected += [(query_id, doc_id, index) for index in taken]
    assert written == expected
    assert (
        done.relevant
        == len(expected)
        < work(
            world, judged(world.qrels) & taught(teacher, threshold=0.3), tmp_path / "p", negatives=none()
        ).relevant
    )
    assert done.agreement.accepted == done.relevant


def test_n_negatives_are_drawn_for_each_relevant_pair_within_its_query(world, teacher, tmp_path):
    for per in (1, 3):
        done = work(world, label_transfer(world, teacher), tmp_path / "p", negatives=random(per))
        by_query = itertools.groupby(lines(tmp_path / "p"), lambda w: w["query_id"])
        for _, some in by_query:
            labels = [w["label"] for w in some]
            assert labels.count(0) == per * labels.count(1)
        assert done.short == 0
        assert done.non_relevant == per * done.relevant


def test_negatives_of_the_whole_collection_are_as_many_in_all(world, teacher, tmp_path):
    rule = label_transfer(world, teacher)
    done = work(world, rule, tmp_path / "p", negatives=random(2, scope="collection"))
    written = lines(tmp_path / "p")
    assert done.non_relevant == 2 * done.relevant == sum(w["label"] == 0 for w in written)
    assert "q4" in {w["query_id"] for w in written if w["label"] == 0}  # it has no relevant pair
    with pytest.warns(RankhouseWarning, match="negatives fewer than wanted"):
        done = work(world, rule, tmp_path / "p", negatives=random(99, scope="collection"))
    assert (done.non_relevant, done.short) == (done.pool, 99 * done.relevant - done.pool)


def test_negatives_of_the_document_stand_beside_its_relevant_passages(world, tmp_path):
    judge = judged({"q1": {"d5#0": 1, "d5#1": 1, "d11#2": 1}, "q2": {"d0#0": 1}}, by="passage")
    done = work(world, judge, tmp_path / "p", negatives=random(1, scope="document"))
    zeros = [(w["query_id"], w["doc_id"]) for w in lines(tmp_path / "p") if w["label"] == 0]
    assert sorted(zeros) == [("q1", "d11"), ("q1", "d5"), ("q1", "d5"), ("q2", "d0")]
    with pytest.warns(RankhouseWarning, match="1 negatives fewer than wanted"):  # d0 has one passage besides
        done = work(world, judge, tmp_path / "p", negatives=random(2, scope="document"))
    assert (done.relevant, done.non_relevant, done.short) == (4, 7, 1)


def test_negatives_come_from_the_depths_asked_for(world, teacher, tmp_path):
    rule = label_transfer(world, teacher)
    for how in (every((3, 5)), random(2, depths=(3, 5))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankhouseWarning)
            work(world, rule, tmp_path / "p", negatives=how)
        ranks = {
            world.run[w["query_id"]].doc_ids.index(w["doc_id"]) + 1
            for w in lines(tmp_path / "p")
            if w["label"] == 0
        }
        assert ranks <= {3, 4, 5}
        assert ranks


def test_a_seed_changes_the_draw_and_nothing_else_does(world, teacher, tmp_path):
    rule = judged(world.qrels)
    draws = set()
    for seed in (0, 0, 1, 2):
        work(world, rule, tmp_path / "p", negatives=random(seed=seed))
        draws.add((tmp_path / "p").read_bytes())
    assert len(draws) == 3


SOME = ("random(1)", "random(2, scope='collection')", "random(2, scope='document')")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 60), st.sampled_from([*SOME, "all", "none"]))
def test_no_size_of_chunk_changes_a_byte(world, teacher, tmp_path, chunk, how):
    from rankhouse.core.notation import make

    negatives = make(how, NEGATIVES, "")
    rule = label_transfer(world, teacher) | ranked(world.run, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankhouseWarning)  # too few negatives, in some
        work(world, rule, tmp_path / "a", negatives=negatives, chunk=chunk)
        work(world, rule, tmp_path / "b", negatives=negatives)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_asking_about_every_pair_changes_no_label(world, teacher, tmp_path):
    rule = label_transfer(world, teacher)
    short = work(world, rule, tmp_path / "a")
    whole = work(world, rule, tmp_path / "b", ask_all=True)

    def without_scores(path):
        return [{k: v for k, v in one.items() if k != "score"} for one in lines(path)]

    assert without_scores(tmp_path / "a") == without_scores(tmp_path / "b")
    assert short.asked < whole.asked == whole.pairs == short.pairs


def test_scores_are_written_where_the_teacher_was_asked_and_read_back_as_they_were(world, teacher, tmp_path):
    work(world, label_transfer(world, teacher), tmp_path / "p.jsonl.gz")
    for found in read_pairs(tmp_path / "p.jsonl.gz"):
        assert (found.score is not None) == (found.label == 1)
        if found.score is not None:
            assert np.float32(found.score) == teacher.score([found.pair])[0]
    assert gzip.decompress((tmp_path / "p.jsonl.gz").read_bytes()).startswith(b'{"query_id":')


class Fails:
    """A teacher that breaks down after some calls."""

    scale = "probability"

    def __init__(self, inner, calls):
        self.inner, self.left, self.fingerprint = inner, calls, inner.fingerprint

    def score(self, pairs):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.inner.score(pairs)


@pytest.mark.parametrize("calls", [0, 1, 3, 7])
def test_an_interrupted_labelling_goes_on_where_it_was(world, teacher, tmp_path, calls):
    work(world, taught(teacher), tmp_path / "whole", chunk=5)
    teacher.asked.clear()
    with pytest.raises(KeyboardInterrupt):
        work(world, taught(Fails(teacher, calls)), tmp_path / "out", chunk=5)
    assert not (tmp_path / "out").exists()
    before = list(teacher.asked)
    done = work(world, taught(teacher), tmp_path / "out", chunk=5)
    assert done.resumed == len(before)
    assert len(teacher.asked) == len(set(teacher.asked)) == done.pairs  # nothing was asked twice
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "whole"]


def interrupted(world, teacher, out):
    with pytest.raises(KeyboardInterrupt):
        work(world, taught(Fails(teacher, 4)), out, chunk=5)
    teacher.asked.clear()


@pytest.mark.parametrize("column", ["rows.i4", "marks.u1", "scores.f4", "done.txt", "plan.json"])
@pytest.mark.parametrize("damage", ["cut", "longer", "changed", "gone"])
def test_a_journal_hurt_by_a_kill_costs_time_and_no_label(world, teacher, tmp_path, column, damage):
    work(world, taught(teacher), tmp_path / "whole", chunk=5)
    interrupted(world, teacher, tmp_path / "out")
    path = tmp_path / ".out.labelling" / column
    content = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[: len(content) * 2 // 3])
        case "longer":
            path.write_bytes(content + b"\x07")
        case "changed":
            path.write_bytes(content[:3] + bytes([content[3] ^ 1]) + content[4:])
        case "gone":
            path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankhouseWarning)
        work(world, taught(teacher), tmp_path / "out", chunk=5)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_other_inputs_never_continue_an_unfinished_labelling(world, teacher, tmp_path):
    interrupted(world, teacher, tmp_path / "out")
    with pytest.warns(RankhouseWarning, match=r"made with other inputs \(split\); starting afresh"):
        work(world, taught(teacher), tmp_path / "out", split=Whole(), negatives=none())
    assert len(teacher.asked) == 48
    interrupted(world, teacher, tmp_path / "out")
    world.queries[0] = Query("q1", "tides")
    with pytest.warns(RankhouseWarning, match=r"other inputs \(queries\)"):
        done = work(world, taught(teacher), tmp_path / "out", negatives=none())
    assert done.resumed == 0


KILLED = """
import signal, sys, time
sys.path.insert(0, {tests!r})
from conftest import Overlap, World
from rankhouse.labels.label import LabelPlan, label
from rankhouse.labels.leaf_rules import judged, taught

class Slow(Overlap):
    def score(self, pairs):
        time.sleep(0.004)
        return super().score(pairs)

world = World()
rule = taught(Slow(), 0.4) | judged(world.qrels)
plan = LabelPlan(split=world.split, chunk=3)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))  # the system ends the process then, wherever it is
label(rule, world.run, world.queries, world.documents, {out!r}, plan)
"""


@pytest.mark.kill
def test_a_labelling_killed_at_random_ends_with_the_same_file(world, teacher, tmp_path):
    rule = taught(teacher, 0.4) | judged(world.qrels)
    work(world, rule, tmp_path / "whole")
    code = textwrap.dedent(KILLED).format(tests=str(Path(__file__).parent), out=str(tmp_path / "out"))
    generator = np.random.default_rng(0)
    kills, finished = 0, False
    while not finished:
        seconds = generator.uniform(0.005, 0.02 * (kills + 1))  # longer each time, for slow machines
        ended = subprocess.run([sys.executable, "-c", code, str(seconds)], check=False)
        assert ended.returncode in (0, -signal.SIGALRM)
        finished = ended.returncode == 0
        kills += not finished
    assert kills >= 2
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "whole"]


def test_a_cached_teacher_never_reads_twice(world, teacher, tmp_path):
    with CachedRanker(teacher, tmp_path / "cache") as cached:
        work(world, taught(cached), tmp_path / "a")
        asked = len(teacher.asked)
        work(world, taught(cached, 0.4), tmp_path / "b", chunk=7)
    assert len(teacher.asked) == asked


def test_what_is_missing_is_counted_and_said(world, teacher, tmp_path):
    del world.documents["d3"]
    world.documents["d5"] = Document("d5", " ")
    world.qrels["q1"]["elsewhere"] = 1
    with pytest.warns(RankhouseWarning) as caught:
        done = work(world, label_transfer(world, teacher), tmp_path / "p")
    said = " ".join(str(one.message) for one in caught)
    assert "4 rows of the run name documents that are not in the collection" in said
    assert "4 rows of the run name documents without text" in said
    assert (done.unknown, done.without_text, done.missed) == (4, 4, 1)


def test_a_teacher_that_labels_nothing_is_reported_with_its_highest_score(world, teacher, tmp_path):
    world.qrels = {"q4": {"d1": 1}}
    with pytest.warns(
        RankhouseWarning, match="says yes to none of the 3 pairs it read: its highest prob.* is 0"
    ):
        done = work(world, label_transfer(world, teacher), tmp_path / "p")
    assert (done.relevant, done.non_relevant) == (0, 0)
    assert (tmp_path / "p").read_text() == ""


def test_a_rule_that_says_yes_to_nothing_is_reported(world, tmp_path):
    with pytest.warns(RankhouseWarning) as caught:
        work(world, judged({"q1": {"unknown": 1}}, name="x"), tmp_path / "p")
    assert "says yes to none of" in str(caught[0].message)
    assert "do its document ids belong to this collection" in str(caught[1].message)


class LikesOne:
    """A teacher that is sure of one document and of no other."""

    scale, fingerprint = "probability", "likes-d0"

    def score(self, pairs):
        return np.array([float(p.passage.doc_id == "d0") for p in pairs], np.float32)


def test_a_teacher_that_takes_most_judged_documents_away_is_reported_with_the_share(world, tmp_path):
    strict = judged(world.qrels) & taught(LikesOne(), 0.8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = judged(world.qrels) & ranked(world.run, 1)
        work(world, first, tmp_path / "a.jsonl", negatives=none(), split=Whole())  # no teacher's threshold
        work(world, strict, tmp_path / "b.jsonl", negatives=none())  # of passages, most should go
    with pytest.warns(RankhouseWarning, match=r"keeps 1 of the 9 pairs .* \(11%\).*rankhouse threshold"):
        work(world, strict, tmp_path / "c.jsonl", negatives=none(), split=Whole())


def test_judgements_of_other_queries_are_refused_with_ids_of_both(world, teacher, tmp_path):
    with pytest.raises(BadData, match='judges none of the run\'s 4 queries: the run has "q1", .*"t7"'):
        work(world, taught(teacher) & judged({"t7": {"d1": 1}}), tmp_path / "p")
    assert not list(tmp_path.iterdir())


def test_bad_input_is_refused(world, teacher, tmp_path):
    with pytest.raises(BadData, match='1 of the run\'s 4 queries have no text .*"q4"'):
        label(taught(teacher), world.run, world.queries[:3], world.documents, tmp_path / "p")
    with pytest.raises(DuplicateId, match='"q1" is given twice'):
        label(taught(teacher), world.run, world.queries * 2, world.documents, tmp_path / "p")
    with pytest.raises(BadData, match="the run has no rows"):
        label(taught(teacher), Run.of([]), world.queries, world.documents, tmp_path / "p")
    with pytest.raises(WrongUse, match="depth=0"):
        LabelPlan(depth=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFailed):
        label(taught(teacher), world.run, world.queries, world.documents, tmp_path / "file" / "p")


def test_a_teacher_that_breaks_leaves_nothing_half_written(world, teacher, tmp_path):
    class Broken:
        scale = "logit"

        def score(self, pairs):
            return np.full(len(pairs), np.nan, np.float32)

    (tmp_path / "p").write_text("old")
    with pytest.raises(BadModel, match="is not a number"):
        work(world, taught(Broken()), tmp_path / "p")
    assert (tmp_path / "p").read_text() == "old"


def test_progress_counts_documents_to_the_end(world, teacher, tmp_path):
    told = []
    work(world, taught(teacher), tmp_path / "p", lambda *so_far: told.append(so_far), chunk=10, depth=7)
    assert told[-1] == (28, 28)
    assert told == sorted(told)
    assert len(told) > 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [("random(0)", "from 1 up"), ("random(1.5)", "a whole number"),
     ("random(1, depths=(5, 2))", "depths=.5, 2."), ("all(depths=3)", "depths=3"),
     ('random(1, scope="world")', "takes 'query' or 'collection'"),
     ('random(1, seed="x")', "takes a whole number"), ("some", "choose from: all, none, random")],
)  # fmt: skip
def test_a_faulty_choice_of_negatives_is_refused(text, reason):
    from rankhouse.core.notation import make

    with pytest.raises(WrongUse, match=reason):
        make(text, NEGATIVES, "way to choose negatives")


@pytest.mark.parametrize(
    "how",
    [none(), every(), every((2, None)), random(), random(3, depths=(2, 9)), random(2, seed=4),
     random(scope="collection"), random(2, scope="document")],
)  # fmt: skip
def test_a_choice_of_negatives_reads_back(how):
    from rankhouse.core.notation import make

    assert make(str(how), NEGATIVES, "") == how
