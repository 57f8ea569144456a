"""What a recipe names to be written stays in its result: nobody's files are lost by running one."""

import json

import click
import pytest

from rankhouse.cli import main as cli
from rankhouse.cli.commands.run import ProgramCommands
from rankhouse.recipes.commands import _NOT_STEPS, StepCommand

GOOD = """title = "Two rankings"

[data]
notes = "notes"

[loop]
k1 = [0.9]

[steps.index]
command = "index"
corpus = "@notes/corpus.jsonl"
workers = 1

[steps.bm25]
command = "search"
index = "@index"
queries = "@notes/queries.jsonl"
model = "bm25(k1={k1})"

[steps.valued]
command = "evaluate"
runs = "@bm25"
qrels = "@notes/qrels.txt"
per_query = "./per-query.tsv"

[steps.labelled]
command = "label"
rule = 'judged("@notes/qrels.txt")'
queries = "@notes/queries.jsonl"
index = "@index"
run = "@bm25"
report = "./labels.html"
cache = "scores"
"""
WORDS = {
    "per_query": 'per_query = "./per-query.tsv"',
    "report": 'report = "./labels.html"',
    "cache": 'cache = "scores"',
}
LINES = {"per_query": 24, "report": 32, "cache": 33}
INPUTS = {
    "delete",
    "apply", "baseline", "before", "ciff", "corpus", "files", "first", "first_stage", "folds", "given",
    "index", "pairs", "parts", "passages", "qrels", "queries", "run", "runs", "second", "test_qrels",
    "test_run", "truth", "tune",
    "valid_qrels", "valid_run", "vocabulary", "weight_qrels", "within",
}  # fmt: skip


@pytest.fixture
def world(tmp_path):
    """A small collection, a recipe beside it, and something precious two folders up from a step's."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "corpus.jsonl").write_text('{"id": "d1", "text": "a pilot"}\n{"id": "d2", "text": "a ship"}\n')
    (notes / "queries.jsonl").write_text('{"id": "q1", "text": "pilot"}\n')
    (notes / "qrels.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years of work")
    return tmp_path


def refused(run, world, key, value):
    """Run a recipe with one key changed; it must be refused with its line, and nothing may be written."""
    (world / "r.toml").write_text(GOOD.replace(WORDS[key], f"{key} = {json.dumps(value)}"))
    done = run("run", "r.toml", "--out", "r.out")
    assert done.returncode == 2, done.stderr
    assert f"r.toml, line {LINES[key]}: " in done.stderr
    assert (world / "precious" / "thesis.tex").read_text() == "years of work"
    assert not (world / "r.out" / "results.md").exists()
    return done.stderr


OUTSIDE = ["./../../../../precious", "./..", ".//tmp/precious", "./a/../../b", "./~/x"]


@pytest.mark.parametrize("value", OUTSIDE)
@pytest.mark.parametrize("key", sorted(WORDS))
def test_no_name_of_its_own_leads_out_of_the_step(world, run, key, value):
    assert "leads out of the step's folder" in refused(run, world, key, value)


@pytest.mark.parametrize("value", ["../precious", "../../x", "/tmp/x", "~/x", "a/../../x"])
def test_no_cache_leads_out_of_the_result(world, run, value):
    assert "leads out of the result's folder" in refused(run, world, "cache", value)
    loop = GOOD.replace("k1 = [0.9]", f'k1 = [{{ name = "{value}", value = 0.9 }}]')
    loop = loop.replace("k1={k1}", "k1={k1.value}").replace(WORDS["cache"], 'cache = "{k1}"')
    (world / "r.toml").write_text(loop)
    done = run("run", "r.toml")
    assert done.returncode == 2
    assert "leads out of the result's folder" in done.stderr


@pytest.mark.parametrize("key", ["per_query", "report"])
def test_nothing_is_written_into_data_other_steps_or_unnamed_places(world, run, key):
    assert "would write into data" in refused(run, world, key, "@notes/qrels.txt")
    assert "would write into data" in refused(run, world, key, "@bm25")
    assert "outside the step's folder" in refused(run, world, key, "../precious")
    assert "outside the step's folder" in refused(run, world, key, str(world / "precious"))


@pytest.mark.parametrize(
    ("link", "key", "value"),
    [
        ("r.out/scores", "cache", "scores"),
        ("r.out/work", "per_query", "./per-query.tsv"),
        ("r.out/a", "cache", "a/b"),
    ],
)
def test_no_symbolic_link_leads_out(world, run, link, key, value):
    (world / "r.out").mkdir()
    (world / link).symlink_to(world / "precious")
    assert "leads out of" in refused(run, world, key, value)


def test_what_stays_inside_is_written_and_a_cache_elsewhere_is_given_by_hand(world, run):
    pytest.importorskip("jinja2")
    (world / "r.toml").write_text(GOOD)
    shared = world / "shared"
    done = run("run", "r.toml", "--set", f"steps.labelled.cache={shared}")
    assert done.returncode == 0, done.stderr
    assert list((world / "r.out" / "work").glob("valued*/per-query.tsv"))
    assert list((world / "r.out" / "work").glob("labelled*/labels.html"))
    by_hand = run("run", "r.toml", "--set", f"steps.labelled.report={world / 'precious'}")
    assert by_hand.returncode == 2
    assert "steps.labelled.report" in by_hand.stderr


def test_a_folder_that_has_a_steps_name_where_one_stands_is_in_nobodys_way(world, run):
    (world / "r.toml").write_text(GOOD)
    for name in ("bm25", "per-query.tsv", "labels.html"):
        (world / name).mkdir()
    before = set(world.iterdir())
    done = run("run", "r.toml", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert set(world.iterdir()) == before


def test_every_option_that_takes_a_path_is_known_as_read_or_written():
    for name in cli.COMMANDS:
        if name in _NOT_STEPS:
            continue
        command = StepCommand(ProgramCommands(), name)
        for key, parameter in command.keys.items():
            if isinstance(parameter.type, click.Path) or command.writes(key):
                assert (key in INPUTS) != command.writes(key), f"{name}: {key}"


def test_a_stopped_run_has_finished_seeds(world, run):
    text = GOOD.replace("k1 = [0.9]", "seed = [1, 2]\nk1 = [0.9, 1.2]")
    text = text.replace('model = "bm25(k1={k1})"', 'model = "bm25(k1={k1})"\nk = "{seed}"')
    text += '\n[steps.all]\nstation = "evaluate"\nruns = "@bm25[k1=*]"\nqrels = "@notes/qrels.txt"\n'
    (world / "r.toml").write_text(text)
    done = run("run", "r.toml", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    steps = [(step["step"], step["loop"].get("seed")) for step in json.loads(done.stdout)["steps"]]
    assert steps[0] == ("index", None)
    seeds = [seed for _, seed in steps[1:]]
    assert seeds == sorted(seeds)
    first = [name for name, seed in steps if seed == "1"]
    assert sorted(first) == ["all", *["bm25"] * 2, *["labelled"] * 2, *["valued"] * 2]
    assert first.index("all") > max(i for i, name in enumerate(first) if name == "bm25")


def test_a_result_at_the_end_of_circular_links_is_refused(tmp_path, run):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "r.toml").write_text('title = "x"\n[steps.f]\ncommand = "folds"\n')
    done = run("run", "r.toml", "--out", "loop")
    assert done.returncode == 1
    assert "its links lead in a circle" in done.stderr
