"""Systems side by side from Python: each stage once, runs among them, and what is refused."""

import numpy as np
import pytest

import rankhouse as rh
from rankhouse.systems import execution

TEXTS = {"pilots": "Pilots steer ships.", "locks": "Locks lift ships.", "moon": "The moon pulls the sea."}
QUERIES = {"q1": "who steers ships?", "q2": "moon and sea"}
QRELS = {"q1": {"pilots": 1}, "q2": {"moon": 1}}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "i"
    return rh.Index.build([rh.Document(*one) for one in TEXTS.items()], folder)


@pytest.fixture
def searches(monkeypatch):
    """The models that were searched with."""
    seen = []
    retrieve = execution.retrieve

    def counted(index, queries, options, show):
        seen.append(options.model)
        return retrieve(index, queries, options, show)

    monkeypatch.setattr(execution, "retrieve", counted)
    return seen


def test_a_stage_of_several_systems_is_run_once_and_that_is_said(index, searches, capsys):
    systems = {"words": "bm25", "few": rh.system("bm25") % 1, "both": "bm25 + 0.5 * ql"}
    found = rh.compare(systems, QUERIES, QRELS, index, "AP RR@10")
    assert sorted(searches) == ["bm25", "ql"]
    assert found.systems == ("words", "few", "both")
    assert "bm25 is part of 3 systems and is run once" in capsys.readouterr().err
    for name, one in systems.items():
        alone = rh.compare({name: rh.system(one).run(QUERIES, index)}, QRELS, "AP RR@10")
        assert [found.cell(name, m).mean for m in ("AP", "RR@10")] == [
            alone.cell(name, m).mean for m in ("AP", "RR@10")
        ]


def test_systems_that_are_equal_share_their_stages_whatever_was_given(index, searches):
    read = []

    class Longest:
        def score(self, pairs):
            read.extend(pairs)
            return np.array([len(pair.passage.text) for pair in pairs], np.float32)

    ranker = Longest()
    texts = "bm25", "bm25(k1=0.9, b=0.4)", "bm25(b=0.4, k1=0.9)"
    systems = [rh.system(text) % 2 >> ranker for text in texts]
    once = systems[0].run(QUERIES, index).rows
    read.clear()
    found = rh.compare(dict(zip(texts, systems, strict=True)), QUERIES, QRELS, index, "AP")
    assert len(read) == once
    assert len(searches) == 2  # the run above, and the comparison
    assert found.systems == texts


def test_a_list_is_called_by_its_notation_and_runs_stand_beside_systems(index, tmp_path):
    assert rh.compare([rh.system("bm25") % 2, "ql"], QUERIES, QRELS, index).systems == ("bm25 % 2", "ql")
    run = rh.system("jm").run(QUERIES, index)
    rh.write_run(run, tmp_path / "jm.run", "jm")
    found = rh.compare({"a": "bm25", "b": run, "c": str(tmp_path / "jm.run")}, QUERIES, QRELS, index, "AP")
    assert found.cell("b", "AP").mean == found.cell("c", "AP").mean
    for path in (tmp_path / "jm.run", str(tmp_path / "jm.run")):
        assert rh.compare(["ql", path], QUERIES, QRELS, index, "AP").systems == ("ql", str(path))


def test_an_expression_too_long_for_the_name_of_a_file_is_a_system(index):
    text = f"bm25 {300 * ' '}% 2"
    assert rh.compare([text], QUERIES, QRELS, index, "AP").systems == (text,)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda index: rh.compare({"a": rh.system("bm25")}, QRELS), "give queries and an index"),
        (lambda index: rh.compare(["bm25"], None, QRELS, index), "no queries"),
        (lambda index: rh.compare(["bm25"], QUERIES, QRELS, measures="AP"), "no index"),
        (lambda index: rh.compare("bm25", QUERIES, QRELS, index), "names and systems"),
        (lambda index: rh.compare({"a": "bm52"}, QUERIES, QRELS, index), "bm25"),
        (lambda index: rh.compare(["bm25", rh.system("bm25")], QUERIES, QRELS, index), "bm25 stands twice"),
        (lambda index: rh.compare([rh.Run.of({"q": {"d": 1.0}})] * 2, QUERIES, QRELS, index), "names, too"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_what_to_do(index, call, said):
    with pytest.raises(rh.RankhouseError, match=said):
        call(index)
