"""rankhouse fuse: what is settled on one year's judgements is applied to another's runs."""

import json

import pytest

from rankhouse.core.run import Run
from rankhouse.evaluation.measures import evaluate
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run
from rankhouse.ranking.fuse import linear
from rankhouse.training.tuning import cut_at, mean_of

RELEVANT = {f"q{i}": f"q{i}d{3 * (i % 3)}" for i in range(8)}


def system(shift, queries=range(8), noise=0.0):
    """A run of ten documents a query; ``shift`` is where it puts the relevant one."""
    rows = []
    for i in queries:
        for d in range(10):
            doc_id = f"q{i}d{d}"
            place = shift - 0.5 if RELEVANT[f"q{i}"] == doc_id else d
            rows.append((f"q{i}", doc_id, -place + noise * ((7 * i + 3 * d) % 5)))
    return Run.of(rows)


@pytest.fixture
def years(tmp_path):
    """Three systems on four queries to tune on and on four others, and all judgements."""
    for name, queries in (("valid", range(4)), ("test", range(4, 8))):
        (tmp_path / name).mkdir()
        for system_name, shift, noise in (("a", 2, 0.0), ("b", 1, 1.0), ("c", 9, 3.0)):
            write_run(system(shift, queries, noise), tmp_path / name / f"{system_name}.run", system_name)
    qrels = {q: {d: 1} for q, d in RELEVANT.items()}
    write_qrels({q: qrels[q] for q in list(qrels)[:4]}, tmp_path / "valid.qrels")
    return tmp_path


def runs(year, names="ab"):
    return [f"{year}/{name}.run" for name in names]


def applied(names="ab"):
    return [word for path in runs("test", names) for word in ("--apply", path)]


def test_a_weight_tuned_on_one_year_is_applied_to_another(years, run):
    done = run("fuse", *runs("valid"), "--tune", "valid.qrels", *applied(), "--out", "x.run", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    weights = list(said["weights"].values())
    assert list(said["weights"]) == runs("valid")
    fused = read_run(years / "x.run")
    assert list(fused) == ["q4", "q5", "q6", "q7"]
    test = [read_run(years / path) for path in runs("test")]
    assert fused == linear()(test, weights)
    told = run("fuse", *runs("valid"), "--tune", "valid.qrels", "--out", "v.run").stderr
    given = told.partition("--weights ")[2].split()[0]
    assert [float(w) for w in given.split(",")] == weights
    assert run("fuse", *runs("test"), "--weights", given, "--out", "y.run").returncode == 0
    assert read_run(years / "y.run") == fused


def test_the_mean_of_several_runs_is_the_mean_of_their_scores(years, run):
    assert run("fuse", *runs("test", "abc"), "--method", "mean", "--out", "m.run").returncode == 0
    assert read_run(years / "m.run") == mean_of([read_run(years / path) for path in runs("test", "abc")])


def test_the_greedy_choice_is_told_and_applied(years, run):
    done = run(
        "fuse", *runs("valid", "cab"), "--method", "greedy", "--tune", "valid.qrels", "--measure", "RR",
        *applied("cab"), "--out", "g.run", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert list(said["alone"].values()) == sorted(said["alone"].values(), reverse=True)
    assert said["chosen"][0] == next(iter(said["alone"]))
    assert said["tuned"]["value"] >= max(said["alone"].values())
    assert "valid/c.run" not in said["chosen"]
    chosen = [path.replace("valid", "test") for path in said["chosen"]]
    assert read_run(years / "g.run") == mean_of([read_run(years / path) for path in chosen])
    told = run("fuse", *runs("valid"), "--method", "greedy", "--tune", "valid.qrels", "--out", "h.run")
    assert "the mean of valid/" in told.stderr
    assert "alone: valid/" in told.stderr


def test_the_best_run_of_one_year_is_taken_of_another(years, run):
    asked = ["--method", "best", "--tune", "valid.qrels"]
    done = run("fuse", *runs("valid", "cba"), *asked, *applied("cba"), "--out", "x.run", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["values"][said["place"] - 1] == max(said["values"]) == said["tuned"]["value"]
    assert said["chosen"] == runs("valid", "cba")[said["place"] - 1] != "valid/c.run"
    assert read_run(years / "x.run") == read_run(years / said["chosen"].replace("valid", "test"))


def test_the_depth_is_tuned_told_and_applied_and_nothing_is_lost(years, run):
    asked = ["--method", "depth", "--tune", "valid.qrels", "--depths", "0,2,4,10"]
    done = run("fuse", *runs("valid", "cb"), *asked, *applied("cb"), "--out", "d.run", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(said["values"]) == {"0", "2", "4", "10"}
    assert said["values"][str(said["depth"])] == max(said["values"].values()) == said["tuned"]["value"]
    first, reranked = (read_run(years / path) for path in runs("test", "cb"))
    assert read_run(years / "d.run") == cut_at(reranked, first, said["depth"])
    told = run("fuse", *runs("valid", "cb"), *asked, "--out", "v.run")
    assert f"rankhouse rerank --depth {said['depth']}" in told.stderr
    valid = read_run(years / "v.run")
    value = evaluate(valid, read_qrels(years / "valid.qrels"), "AP").mean("AP")
    assert value == pytest.approx(said["tuned"]["value"])
    given = ["--method", f"depth({said['depth']})"]
    assert run("fuse", *runs("test", "cb"), *given, "--out", "e.run").returncode == 0
    assert read_run(years / "e.run") == read_run(years / "d.run")
    usual = run("fuse", *runs("valid", "cb"), *asked[:4], "--out", "u.run", "--json")
    assert set(json.loads(usual.stdout)["values"]) == {"0", "5", "10"}  # as deep as the runs are


def test_sentences_are_interpolated_with_the_first_stage_by_birchs_grid(years, run):
    asked = ["--method", "sentences", "--tune", "valid.qrels"]
    done = run("fuse", *runs("valid", "cba"), *asked, *applied("cba"), "--out", "s.run", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["tuned"]["tried"] == 100
    alpha, best, second = said["weights"].values()
    assert alpha + best == pytest.approx(1)
    assert 0 <= second < best
    test = [read_run(years / path) for path in runs("test", "cba")]
    assert read_run(years / "s.run") == linear("raw")(test, (alpha, best, second))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "greedy"], "--tune QRELS"),
        (["--method", "sentences"], "--tune QRELS"),
        (["--method", "best"], "--tune QRELS"),
        (["--method", "mean", "--tune", "valid.qrels"], "nothing to tune"),
        (["--method", "depth"], "depth(40)"),
        (["--method", "depth(3)", "--tune", "valid.qrels"], "either name it"),
        (["--method", "mean", "--weights", "1,2"], "takes no weights"),
        (["--method", "average"], "choose from"),
        (["--apply", "test/a.run"], "1 times for 2 runs"),
        (["--method", "depth", "--tune", "valid.qrels", "--depths", "few"], "0,10,50"),
        (["--weights", "1"], "1 weights"),
    ],
)
def test_what_does_not_fit_is_explained(years, run, options, said):
    done = run("fuse", *runs("valid"), *options, "--out", "x.run")
    assert done.returncode == 2
    assert said in done.stderr
    assert not (years / "x.run").exists()


def test_depth_takes_two_runs(years, run):
    done = run("fuse", *runs("valid", "abc"), "--method", "depth(5)", "--out", "x.run")
    assert done.returncode == 2
    assert "the first stage and its re-ranking" in done.stderr
