"""Files compared by ids that name other things, pairs given twice, nothing to move: it is said."""

import math
import warnings

import pytest

import rankhouse as rh
from rankhouse.core.errors import BadData, RankhouseWarning
from rankhouse.core.run import Run
from rankhouse.core.sameness import LITTLE, NOTHING, mismatch
from rankhouse.evaluation.measures import evaluate
from rankhouse.evaluation.significance import paired_wins
from rankhouse.explanation.diagnosis import diagnose
from rankhouse.io.pairs import LabelledPair, decode_pair
from rankhouse.jobs.calibration import judged_pairs
from rankhouse.labels.label_noise import move_judgements
from rankhouse.labels.thresholds import scored_pairs, summarise_pairs
from rankhouse.training.tuning import Tuning, fusion_method

QUERIES = [f"q{n}" for n in range(20)]


def pair(query, doc, score=None, label=1, passage=0):
    return LabelledPair(query, "words", doc, passage, "text", label, score, "logit")


def test_queries_and_documents_in_common_are_counted():
    whole = {q: [f"d{n}" for n in range(10)] for q in QUERIES}
    assert not mismatch(whole, "the run", whole, "the judgements")
    assert not mismatch({"q0": ["d0"]}, "the run", whole, "the judgements")  # part of it
    assert not mismatch({}, "the run", whole, "the judgements")
    assert not mismatch({"q0": []}, "the run", whole, "the judgements")
    other = {f"topic{n}": ["d0"] for n in range(20)}
    assert mismatch(other, "the run", whole, "the judgements") == (
        'none of the queries of the run is in the judgements: in the run there are "topic0", "topic1", '
        '"topic2" ..., in the judgements "q0", "q1", "q2" ...; do both name queries alike?'
    )
    assert "hardly any of the queries (1)" in mismatch(other | {"q0": ["d0"]}, "one", whole, "other")
    few = {q: [f"e{n}" for n in range(9)] + ["d0"] * (q == "q0") for q in QUERIES}
    assert "hardly any of the documents (1) of one is" in mismatch(
        few, "one", whole, "other", documents=LITTLE
    )
    assert not mismatch(few, "one", whole, "other", documents=NOTHING)


def test_passages_are_told_from_documents():
    passages, whole = {"q": ["d0#1", "d1#3"]}, {"q": ["d0", "d1"]}
    assert mismatch(passages, "one", whole, "other").endswith("one name passages, other whole documents")
    assert mismatch(whole, "one", passages, "other").endswith("other name passages, one whole documents")


def test_evaluation_says_that_judgements_are_of_passages():
    scores = evaluate(Run.of({"q": {"d": 1.0}}), {"q": {"d#3": 1}}, "AP")
    assert scores.remarks[0].endswith("the judgements name passages, the run whole documents")
    compared = rh.compare({"one": {"q": {"d": 1.0}}}, {"q": {"d#3": 1}}, "AP")
    assert "name passages" in compared.remarks[0]


def test_paired_wins_of_a_run_of_other_queries_are_remarked_on():
    run, qrels = Run.of({"q": {"d": 1.0}}), {"q": {"d": 1}}
    with pytest.warns(RankhouseWarning, match="none of the queries of new is in the judgements"):
        paired_wins(run, Run.of({"p": {"d": 1.0}}), qrels, ("old", "new"), ranges=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paired_wins(run, run, qrels, ("old", "new"), ranges=1)


def test_label_stats_with_judgements_of_passages_say_so():
    """Right 0 of 458, precision 0.0, without a word."""
    with pytest.warns(RankhouseWarning, match="name passages"):
        counted = summarise_pairs([pair("q", "doc")], {"q": {"doc#3": 1}})
    assert (counted.right, counted.precision) == (0, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert summarise_pairs([pair("q", "doc"), pair("q", "other")], {"q": {"doc": 1}}).right == 1


def test_a_threshold_on_judgements_of_passages_says_so():
    pairs = [pair("q", "doc", 1.0), pair("q", "other", 2.0)]
    with pytest.raises(BadData, match="the judgements name passages, the pairs whole documents"):
        scored_pairs(pairs, {"q": {"doc#3": 1}})


def test_a_pair_twice_counts_once():
    pairs = [pair("q", "a", 1.0), pair("q", "b", 0.0), pair("q", "a", 1.0)]
    with pytest.warns(RankhouseWarning, match="1 pairs are given more than once and count once: query"):
        assert len(scored_pairs(pairs, {"q": {"a": 1}}).values) == 2
    assert len(scored_pairs([*pairs[:2], pair("q", "a", 1.5, passage=1)], {"q": {"a": 1}}).values) == 3
    with pytest.raises(BadData, match='passage 0 of "a" is given twice, with the scores 1.0 and 2.0'):
        scored_pairs([*pairs[:2], pair("q", "a", 2.0)], {"q": {"a": 1}})


def test_label_stats_counts_a_pair_once():
    pairs = [pair("q", "a"), pair("q", "b"), pair("q", "a")]
    with pytest.warns(RankhouseWarning, match="1 pairs are given more than once and count once: query"):
        counted = summarise_pairs(pairs, {"q": {"b": 1}})
    assert (counted.pairs, counted.relevant, counted.precision) == (2, 2, 0.5)
    assert summarise_pairs([*pairs[:2], pair("q", "a", passage=1)]).pairs == 3
    with pytest.raises(BadData, match='passage 0 of "a" is given twice, with the labels 1 and 0'):
        summarise_pairs([*pairs[:2], pair("q", "a", label=0)])


class Ones:
    scale = "logit"

    def score(self, pairs):
        return [1.0] * len(pairs)


def test_calibration_takes_a_pair_once_and_no_undecided_ones():
    rows = [pair("q", "a"), pair("q", "b", label=0), pair("q", "c", 0.3, label=-1)]
    assert judged_pairs(Ones(), rows).relevant.tolist() == [True, False]
    with pytest.warns(RankhouseWarning, match="1 pairs are given more than once"):
        assert len(judged_pairs(Ones(), [*rows, pair("q", "a")]).relevant) == 2
    with pytest.raises(BadData, match="with the labels 1 and 0"):
        judged_pairs(Ones(), [*rows, pair("q", "a", label=0)])


def test_a_score_beyond_32_bits_is_refused():
    """It became infinite on the way, and a threshold of null."""
    line = b'{"query_id":"q","query":"w","doc_id":"a","passage":0,"text":"t","label":1,"score":%s}'
    for text in (b"1e308", b"-1e308", b"3.5e38"):
        with pytest.raises(BadData, match="no finite number of 32 bits"):
            decode_pair(line % text, "pairs.jsonl", 1)
    assert decode_pair(line % b"3.4028234663852886e38", "pairs.jsonl", 1).score < math.inf


def test_noise_of_nothing_is_said():
    run = Run.of({"q": {"a": 3.0, "b": 2.0, "c": 1.0}})
    with pytest.raises(BadData, match="no judgement is relevant"):
        move_judgements({"q": {"a": 0}}, run, 0.5)
    with pytest.raises(BadData, match="no judgement is relevant"):
        move_judgements({}, run, 0.0)
    with pytest.warns(RankhouseWarning, match="0.1 of 1 relevant judgements is none"):
        assert move_judgements({"q": {"a": 1}}, run, 0.1).wrong == 0
    with pytest.warns(RankhouseWarning, match="the judgements name passages"):
        move_judgements({"q": {"a#1": 1}}, run, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert move_judgements({"q": {"a": 1}}, run, 0.0).wrong == 0


@pytest.mark.parametrize("method", ["linear", "rrf", "mean"])
def test_runs_of_other_queries_or_documents_are_joined_with_a_remark(method):
    run = Run.of({"q": {"a": 2.0, "b": 1.0}})
    others = {"queries": Run.of({"p": {"a": 1.0}}), "documents": Run.of({"q": {"x": 1.0}})}
    for kind, other in others.items():
        with pytest.warns(RankhouseWarning, match=f"none of the {kind} of new is in old"):
            fusion_method(method)(["old", "new"], [run, other], None)
    with pytest.warns(RankhouseWarning, match="none of the documents of old is in the judgements"):
        fusion_method("best")(["old", "new"], [run, run], Tuning({"q": {"z": 1}}))


def test_axioms_of_runs_of_other_queries_are_noted(tmp_path):
    index = rh.Index.build([{"id": "a", "text": "ships"}, {"id": "b", "text": "ships ships"}], tmp_path / "i")
    queries = [rh.Query("p", "ships"), rh.Query("q", "ships")]
    runs = {query.id: index.retrieve([query]) for query in queries}
    assert any("none of the queries of p is in q" in note for note in diagnose(runs, queries, index).notes)
