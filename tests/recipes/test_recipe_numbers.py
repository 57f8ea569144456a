"""Means, intervals and tests over loops; curves and fields."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import ttest_rel

from rankhouse.evaluation.measures import Scores, evaluate
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.recipes.values import Sample, over_passes, over_queries

NOTES = Path(__file__).parents[1] / "tiny" / "notes"
RECIPE = f"""title = "Settings of BM25"

[data]
notes = "{NOTES}"

[loop]
k1 = [0.2, 0.9, 3.0]
b = [0.0, 0.8]

[steps.index]
command = "index"
corpus = "@notes/corpus.jsonl"
workers = 1

[steps.bm25]
command = "search"
index = "@index"
queries = "@notes/queries.jsonl"
model = "bm25(k1={{k1}}, b={{b}})"

[steps.ql]
command = "search"
index = "@index"
queries = "@notes/queries.jsonl"
model = "ql"

[[table]]
name = "All"
rows = {{ QL = "@ql", BM25 = "@bm25" }}
qrels = "@notes/qrels.txt"
measures = "AP"
baseline = "QL"

[[table]]
name = "Rows said"
rows = {{ flat = "@bm25[b=0.0]", long = "@bm25[b=0.8]" }}
numbers = {{ rows = "rows" }}
equal = ["rows"]
baseline = "flat"

[[figure]]
name = "Saturation"
kind = "curve"
x = "k1"
log = true
rows = {{ BM25 = "@bm25", QL = "@ql" }}
qrels = "@notes/qrels.txt"
value = "AP"

[[figure]]
name = "Both"
kind = "matrix"
x = "k1"
y = "b"
rows = {{ BM25 = "@bm25" }}
qrels = "@notes/qrels.txt"
value = "AP"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recipe")


@pytest.fixture(scope="module")
def result(folder):
    """The recipe carried out: its JSON, and every run by step and loop."""
    (folder / "r.toml").write_text(RECIPE)
    command = [sys.executable, "-m", "rankhouse", "run", "r.toml", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps = json.loads((folder / "r.out" / "manifest.json").read_text())["steps"]
    qrels = read_qrels(NOTES / "qrels.txt")
    runs = {
        (step["step"], *step["loop"].values()): evaluate(
            read_run(folder / "r.out" / step["output"]), qrels, "AP"
        )
        for step in steps
        if step["station"] == "search"
    }
    return json.loads(done.stdout), runs


def test_a_table_over_a_loop_is_what_scipy_says(result):
    found, runs = result
    bm25 = np.array([scores.of("AP") for (step, *_), scores in runs.items() if step == "bm25"])
    ql = runs[("ql",)].of("AP")
    assert bm25.shape == (6, 24)
    cell = next(c for c in found["tables"][0]["cells"] if c["system"] == "BM25")
    assert cell["mean"] == pytest.approx(bm25.mean())
    assert cell["p"] == pytest.approx(ttest_rel(bm25.mean(axis=0), ql).pvalue)
    means = bm25.mean(axis=1)
    assert sorted(cell["passes"].values()) == pytest.approx(sorted(means))
    half = student.ppf(0.975, 5) * means.std(ddof=1) / 6**0.5
    assert cell["loop_high"] - cell["mean"] == pytest.approx(half)


def test_numbers_are_paired_by_pass(result):
    found, _ = result
    cells = {c["system"]: c for c in found["tables"][1]["cells"]}
    assert list(cells["flat"]["passes"]) == ["k1=0.2", "k1=0.9", "k1=3.0"]
    assert cells["long"]["difference"] == 0
    assert cells["long"]["p"] == 1


def test_a_table_with_a_baseline_shows_differences_and_p(result, folder):
    found, _ = result
    cell = next(c for c in found["tables"][0]["cells"] if c["system"] == "BM25")
    text = (folder / "r.out" / "results.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| BM25 | AP |"))
    assert "Differences to QL:" in text
    assert f"{cell['difference']:+.4f}" in line
    assert f"{cell['p']:.4f}" in line


UNEQUAL = """title = "Two depths"
[data]
notes = "NOTES"
[steps.index]
command = "index"
corpus = "@notes/corpus.jsonl"
workers = 1
[steps.few]
command = "search"
index = "@index"
queries = "@notes/queries.jsonl"
k = 1
[steps.many]
command = "search"
index = "@index"
queries = "@notes/queries.jsonl"
k = 5
[[table]]
name = "Depths"
rows = { few = "@few", many = "@many" }
numbers = { rows = "rows" }
equal = ["rows"]
"""


def test_a_number_expected_of_all_passes_is_not_compared_with_fewer(tmp_path, run):
    expected = """
[[table.expect]]
passes = 2
within = 1000
rows.BM25 = { AP = 0.5 }
"""
    text = RECIPE[: RECIPE.index('[[table]]\nname = "Rows said"')] + expected
    (tmp_path / "r.toml").write_text(text.replace("k1 = [0.2, 0.9, 3.0]", "k1 = [0.9]"))
    for more, status in (([], "reproduced"), (["--only", "0.8"], "data absent")):
        assert run("run", "r.toml", *more).returncode == 0
        first = json.loads((tmp_path / "r.out" / "results.json").read_text())["tables"][0]
        assert [check["status"] for check in first["expected"]] == [status]


def test_rows_that_should_be_equal_and_are_not_are_said_and_warned_of(tmp_path, run, result):
    assert not any(table["remarks"] for table in result[0]["tables"][1:])
    (tmp_path / "u.toml").write_text(UNEQUAL.replace("NOTES", str(NOTES)))
    done = run("run", "u.toml", "--json")
    assert done.returncode == 0, done.stderr
    (remark,) = json.loads(done.stdout)["tables"][0]["remarks"]
    assert remark.startswith("rows should be equal in all rows, but are not: few ")
    assert f"warning: Depths: {remark}" in done.stderr
    assert remark in (tmp_path / "u.out" / "results.md").read_text()
    wrong = run(
        "run", "u.toml", "--set", 'table=[{name="x", rows={a="@few"}, numbers={n="rows"}, equal=["steps"]}]'
    )
    assert wrong.returncode == 2
    assert '"steps" is no column of numbers; there are: n' in wrong.stderr


def test_a_curve_averages_over_what_is_not_its_x(result):
    found, runs = result
    points = {(p["line"], p["x"]): p for p in found["figures"][0]["points"]}
    for k1 in ("0.2", "0.9", "3.0"):
        both = [runs["bm25", k1, b].mean("AP") for b in ("0.0", "0.8")]
        assert points["BM25", k1]["mean"] == pytest.approx(np.mean(both))
        assert points["BM25", k1]["low"] < points["BM25", k1]["mean"] or both[0] == both[1]
        assert points["QL", k1]["mean"] == pytest.approx(runs[("ql",)].mean("AP"))


def test_a_field_has_every_pair_of_values(result):
    found, runs = result
    points = {(p["x"], p["line"]): p["mean"] for p in found["figures"][1]["points"]}
    wanted = {
        loop: scores.mean("AP") for (step, *loop), scores in runs.items() for loop in [tuple(loop)] if loop
    }
    assert points == pytest.approx(wanted)


def test_folds_that_were_not_joined_count_each_query_in_its_own_fold():
    first = Scores(("AP",), ("q1", "q2"), np.array([[0.2, 0.4]]), without_results=("q2",))
    second = Scores(("AP",), ("q3",), np.array([[1.0]]), without_judgements=("q1",))
    again = Scores(("AP",), ("q1", "q2"), np.array([[0.4, 0.4]]))
    merged = over_queries(Sample(("fold=1", "fold=2", "fold=1"), (first, second, again)))
    assert dict(zip(merged.query_ids, merged.of("AP"), strict=True)) == pytest.approx(
        {"q1": 0.3, "q2": 0.4, "q3": 1.0}
    )
    assert merged.without_results == ()
    assert merged.without_judgements == ()
    passes = over_passes(Sample(("fold=1", "fold=2"), (first, second)))
    assert passes.query_ids == ("fold=1", "fold=2")
    assert passes.of("AP") == pytest.approx([0.3, 1.0])
