"""Results as people take them apart: by index, by name, in a loop, as a table, in tab completion."""

import pytest

import rankhouse as rh

QRELS = {"q": {"b": 1}}
OLD, NEW = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 2.0, "a": 1.0}}


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return rh.Index.build({"a": "ships sail", "b": "a ship sinks", "c": "the moon"}, "i", workers=1)


def test_scores_are_found_by_measure():
    scores = rh.evaluate(OLD, QRELS, "AP RR@10")
    assert scores["AP"] == scores["RR@10"] == 0.5
    assert list(scores) == ["AP", "RR@10"]
    assert len(scores) == 2
    assert dict(scores) == scores.to_dict()
    with pytest.raises(rh.RankhouseError, match='"P@5" was not computed; computed are: AP RR@10'):
        scores["P@5"]


def test_a_comparison_is_found_by_system():
    comparison = rh.compare({"old": OLD, "new": NEW}, QRELS, "AP")
    assert {name: comparison[name]["AP"] for name in comparison} == {"old": 0.5, "new": 1.0}
    assert len(comparison) == 2
    with pytest.raises(rh.RankhouseError, match='did you mean "new"'):
        comparison["nwe"]


def test_an_explanation_is_its_parts(index):
    why = rh.explain("bm25", "sailing ships", "a", index=index)
    assert {part.name for part in why} == {"sail", "ship"}
    assert len(why) == 2
    assert why[0] == why.parts[0]
    assert why[:1] == why.parts[:1]
    table = why.to_frame()
    assert list(table.columns) == ["name", "value", "note"]
    assert table["value"].sum() == pytest.approx(why.score)
    assert rh.explain("bm25", "moon", "a", index=index)  # no part, and yet an answer
    ranked = rh.explain("bm25", "sailing ships", index=index, top=2).to_frame()
    assert list(ranked["doc_id"]) == ["a", "b"]


def test_completion_offers_what_people_need(index):
    offered = [name for name in dir(index) if not name.startswith("_")]
    first = ["append", "build", "delete", "documents", "encode", "fingerprint"]
    assert offered == [*first, "open", "open_parts", "path", "retrieve", "search"]
    assert all(hasattr(index, name) for name in offered)
