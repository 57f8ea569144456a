"""What evaluate and compare return: printed, shown, converted, saved; a test and a measure of one's own."""

import csv
import doctest
import json

import numpy as np
import pytest

import rankhouse as rh
from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.evaluation import compare as comparing
from rankhouse.evaluation import measures, own_measures
from rankhouse.evaluation.measure_notation import known, parse
from rankhouse.evaluation.own_measures import define_measure
from rankhouse.evaluation.significance import TESTS, SignificanceTest

QRELS = {f"q{i}": {"a": 1, "b": 0} for i in range(12)}
OLD = {f"q{i}": {"a": 1.0, "b": float(i % 3)} for i in range(12)}
NEW = {f"q{i}": {"a": 1.0, "b": 0.5 if i else 2.0} for i in range(11)}


@pytest.fixture
def comparison():
    return rh.compare({"old": OLD, "<new>": NEW}, QRELS, "AP RR@10", baseline="old", correction="holm")


def test_scores_print_and_convert():
    scores = rh.evaluate(NEW, QRELS, "AP RR@10")
    assert str(scores).splitlines()[0].split() == ["AP", f"{scores.mean('AP'):.4f}"]
    assert "1 of 12 judged queries without results" in str(scores)
    assert scores.to_dict() == scores.means
    assert scores.to_markdown().splitlines()[2] == f"| AP | {scores.mean('AP'):.4f} |"
    html = scores._repr_html_()
    assert "<td>" in html
    assert "without results" in html
    assert repr(scores).startswith("<Scores of 12 queries>")


def test_scores_become_a_frame_of_queries():
    pytest.importorskip("pandas")
    scores = rh.evaluate(NEW, QRELS, "AP RR@10")
    frame = scores.to_frame()
    assert list(frame.columns) == ["query_id", "AP", "RR@10"]
    assert frame["AP"].mean() == pytest.approx(scores.mean("AP"))


def test_a_comparison_prints_and_shows_means_tests_and_remarks(comparison):
    lines = str(comparison).splitlines()
    assert lines[0].split() == ["system", "AP", "RR@10"]
    assert any(line.startswith("<new>   AP") for line in lines)
    assert comparison.method in str(comparison)
    assert "note: <new>: 1 of 12 judged queries" in str(comparison)
    html = comparison._repr_html_()
    assert html.count("<table>") == 2
    assert "<new>" not in html
    assert repr(comparison).startswith("<Comparison of old, <new> in AP RR@10>")


def test_a_comparison_converts(comparison):
    assert comparison.to_markdown().count("| system |") == 2
    data = comparison.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["cells"][2]["p"] == comparison.cell("<new>", "AP").paired_test.p
    pytest.importorskip("pandas")
    frame = comparison.to_frame()
    assert list(frame["system"]) == ["old", "old", "<new>", "<new>"]
    assert frame.loc[2, "difference"] == comparison.cell("<new>", "AP").paired_test.difference


def test_a_comparison_is_saved_as_the_ending_says(comparison, tmp_path):
    for name in ("c.md", "c.csv", "c.json"):
        comparison.save(tmp_path / name)
    assert (tmp_path / "c.md").read_text("utf-8") == comparison.to_markdown()
    assert json.loads((tmp_path / "c.json").read_text("utf-8")) == comparison.to_dict()
    with (tmp_path / "c.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[2]["p"]) == comparison.cell("<new>", "AP").paired_test.p
    assert rows[0]["p"] == ""
    with pytest.raises(WrongUse, match=r"\.html, \.md, \.csv, \.json, \.png or \.svg"):
        comparison.save(tmp_path / "c.xlsx")


def test_a_comparison_is_saved_as_page_and_charts(comparison, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    comparison.save(tmp_path / "c.html", title="Both", texts={"q0": "who steers?"})
    page = (tmp_path / "c.html").read_text("utf-8")
    assert "<h1>Both</h1>" in page
    assert "who steers?" in page
    comparison.save(tmp_path / "c.svg")
    assert "AP: &lt;new&gt; against old" in (tmp_path / "c.svg").read_text("utf-8")
    comparison.save(tmp_path / "c.png", measure="RR@10")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    three = rh.compare({"old": OLD, "new": NEW, "more": NEW}, QRELS, "AP", baseline="old")
    with pytest.raises(WrongUse, match="system='new'.*new, more"):
        three.save(tmp_path / "d.svg")
    three.save(tmp_path / "d.svg", system="more")
    with pytest.raises(WrongUse, match="name one of the systems as baseline"):
        rh.compare({"old": OLD}, QRELS, "AP").save(tmp_path / "e.svg")
    with pytest.raises(WrongUse, match="compare it with another system"):
        rh.compare({"old": OLD}, QRELS, "AP", baseline="old").save(tmp_path / "e.svg")


def test_a_test_is_added_in_one_place(monkeypatch):
    def sign(differences, seed):
        return np.full(len(differences), 0.25 + seed)

    monkeypatch.setitem(TESTS, "sign", SignificanceTest(sign, lambda seed: f"sign test {seed}"))
    comparison = rh.compare({"old": OLD, "new": NEW}, QRELS, "AP", baseline="old", test="sign")
    assert comparison.cell("new", "AP").paired_test.p == 0.25
    assert 'two-sided sign test 0 against "old"' in comparison.method


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setattr(own_measures, "_defined", {})
    return own_measures._defined


def depth_of_first(ranked, judged):
    return next((float(rank) for rank, doc in enumerate(ranked, 1) if judged.get(doc, 0) > 0), 100.0)


def test_a_measure_of_ones_own_is_evaluated_beside_the_others(own):
    define_measure("Depth", depth_of_first)
    scores = rh.evaluate(NEW, QRELS, "Depth AP Depth@1")
    assert scores.measures == ("Depth", "AP", "Depth@1")
    assert scores.per_query["q0"] == {"Depth": 2.0, "AP": 0.5, "Depth@1": 100.0}
    assert scores.per_query["q11"]["Depth"] == 0  # no results
    assert rh.compare({"old": OLD, "new": NEW}, QRELS, "Depth", baseline="old").cell("new", "Depth").mean > 0
    assert "Depth" in known()
    assert str(parse("Depth@3")[0]) == "Depth@3"
    define_measure("Depth", lambda ranked, judged: len(ranked))  # redefined, as in a notebook
    assert rh.evaluate(NEW, QRELS, "Depth").per_query["q0"]["Depth"] == 2


def test_wrong_measures_of_ones_own_are_refused(own):
    for name, fault in (("AP", "measure of ir_measures"), ("a b", "letters, digits")):
        with pytest.raises(WrongUse, match=fault):
            define_measure(name, depth_of_first)
    define_measure("Fails", lambda ranked, judged: judged["nobody"])
    with pytest.raises(RankhouseError, match='"Fails" failed with KeyError'):
        rh.evaluate(NEW, QRELS, "Fails")
    define_measure("Nothing", lambda ranked, judged: float("nan"))
    with pytest.raises(RankhouseError, match='"Nothing" failed with ValueError: it returned nan, for query'):
        rh.evaluate(NEW, QRELS, "Nothing")
    with pytest.raises(WrongUse, match='no parameter "rel"'):
        parse("Fails(rel=2)")
    with pytest.raises(WrongUse, match="from 1 to"):
        parse("Fails@0")
    with pytest.raises(WrongUse, match='did you mean "Fails"'):
        parse("fails")


@pytest.mark.parametrize("module", [comparing, measures, own_measures])
def test_the_examples_run(module, own):
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted > 0
