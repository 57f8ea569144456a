"""rankhouse run: what is done is kept, what changed is made again, what is expected is compared."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from rankhouse.io.outputs import only_writer
from rankhouse.recipes import execute as work
from rankhouse.recipes.parse import Recipe, read_recipe

NOTES = Path(__file__).parents[1] / "tiny" / "notes"
RECIPE = """title = "Two rankings"

[data]
notes = { path = "notes", get = "copy the notes here" }

[loop]
k1 = [0.5, 2.0]

[steps.index]
command = "index"
corpus = "@notes/corpus.jsonl"
workers = 1

[steps.bm25]
command = "search"
index = "@index"
queries = "@notes/queries.jsonl"
model = "bm25(k1={k1})"

[steps.ql]
command = "search"
index = "@index"
queries = "@notes/queries.jsonl"
model = "ql"

[[table]]
name = "Rankings"
rows = { QL = "@ql", BM25 = "@bm25" }
qrels = "@notes/qrels.txt"
measures = "AP P@5"
baseline = "QL"

[[table.expect]]
source = "counted by hand"
within = 0.5
rows.QL = { AP = 0.9 }

[[table]]
name = "Said"
rows = { QL = "@ql" }
numbers = { asked = "queries" }
"""


@pytest.fixture
def world(tmp_path):
    """A copy of the notes that a test may change, and the recipe."""
    (tmp_path / "notes").mkdir()
    for path in NOTES.iterdir():
        (tmp_path / "notes" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "r.toml").write_text(RECIPE)
    return tmp_path


def states(run, *more):
    """Plan, and give step -> state."""
    done = run("run", "r.toml", "--dry-run", "--json", *more)
    assert done.returncode == 0, done.stderr
    return {
        " ".join([s["step"], *map(str, s["loop"].values())]): s["state"]
        for s in json.loads(done.stdout)["steps"]
    }


def folders(world):
    return {path.name: path.stat().st_mtime_ns for path in (world / "r.out" / "work").iterdir()}


def test_a_run_writes_tables_numbers_page_and_manifest(world, run):
    done = run("run", "r.toml", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "Of 1 expected numbers: 1 reproduced."
    cells = {(c["system"], c["measure"]): c for c in result["tables"][0]["cells"]}
    both = cells["BM25", "AP"]["passes"]
    assert list(both) == ["k1=0.5", "k1=2.0"]
    assert cells["BM25", "AP"]["mean"] == pytest.approx(sum(both.values()) / 2)
    assert result["tables"][1]["cells"][0]["mean"] == 24
    out = world / "r.out"
    assert json.loads((out / "results.json").read_text())["tables"] == result["tables"]
    assert "## Rankings" in (out / "results.md").read_text()


def test_the_doctor_compares_what_steps_left(world, run):
    assert run("run", "r.toml").returncode == 0
    sound = run("doctor", "r.out", "--json")
    assert sound.returncode == 0, sound.stdout
    (found,) = json.loads(sound.stdout)
    assert (found["kind"], found["facts"]["steps done"]) == ("recipe output", "4")
    changed = next((world / "r.out" / "work").glob("ql*/*.run"))
    was = changed.stat()
    changed.write_bytes(changed.read_bytes().replace(b"Q0", b"Q1"))
    os.utime(changed, ns=(was.st_atime_ns, was.st_mtime_ns))  # no time and no size tells
    ill = run("doctor", "r.out", "--json")
    assert ill.returncode == 1
    assert [str(changed.relative_to(world)) in fault for fault in json.loads(ill.stdout)[0]["faults"]] == [
        True
    ]
    changed.unlink()
    assert "is missing" in json.loads(run("doctor", "r.out", "--json").stdout)[0]["faults"][0]


def test_the_report_page_shows_tables_and_pictures(world, run):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    assert run("run", "r.toml").returncode == 0
    page = (world / "r.out" / "report.html").read_text()
    for part in ("BM25 <span", "<svg", "counted by hand"):
        assert part in page


def test_the_manifest_gives_the_recipe_back_and_every_option(world, run):
    assert run("run", "r.toml", "--set", "steps.ql.k=5").returncode == 0
    manifest = json.loads((world / "r.out" / "manifest.json").read_text())
    assert (
        msgspec.convert(manifest["recipe"], Recipe) == read_recipe(world / "r.toml", ["steps.ql.k=5"]).recipe
    )
    ql = next(step for step in manifest["steps"] if step["step"] == "ql")
    assert (ql["options"]["k"], ql["options"]["fusion"]) == ("5", "None")
    assert "threads" not in ql["options"]
    assert manifest["data"]["notes/corpus.jsonl"]["identity"].endswith(".jsonl")
    assert {"python", "rankhouse", "numpy"} <= manifest["versions"].keys()
    assert manifest["machine"]["cores"] > 0


def test_the_command_lines_of_a_manifest_repeat_its_files(world, run, monkeypatch, tmp_path):
    import shlex

    assert run("run", "r.toml").returncode == 0
    steps = json.loads((world / "r.out" / "manifest.json").read_text())["steps"]
    monkeypatch.chdir(world / "r.out")
    for step in steps:
        before = (world / "r.out" / step["output"]).read_bytes() if step["station"] == "search" else None
        words = shlex.split(step["command"])
        assert words[0] == "rankhouse"
        again = run(*words[1:], *(["--overwrite"] if step["station"] == "index" else []))
        assert again.returncode == 0, again.stderr
        if before is not None:
            assert (world / "r.out" / step["output"]).read_bytes() == before


def test_a_second_run_does_nothing(world, run):
    assert run("run", "r.toml").returncode == 0
    before = folders(world)
    assert set(states(run).values()) == {"kept"}
    again = run("run", "r.toml")
    assert again.returncode == 0
    assert "(4 kept)" in again.stderr
    assert folders(world) == before


def test_a_changed_option_redoes_that_step_only(world, run):
    assert run("run", "r.toml").returncode == 0
    assert states(run, "--set", "steps.ql.k=3") == {
        "index": "kept",
        "bm25 0.5": "kept",
        "bm25 2.0": "kept",
        "ql": "to do",
    }
    assert states(run, "--set", "loop.k1=[2.0, 3.0]")["bm25 3.0"] == "to do"
    assert states(run, "--set", "loop.k1=[2.0, 3.0]")["bm25 2.0"] == "kept"


def test_options_that_cannot_change_the_result_redo_nothing(world, run):
    assert run("run", "r.toml").returncode == 0
    changes = [
        "--set",
        "steps.ql.threads=1",
        "--set",
        "steps.index.workers=2",
        "--set",
        "steps.ql.device=cpu",
    ]
    assert set(states(run, *changes).values()) == {"kept"}


def test_a_changed_input_redoes_what_read_it(world, run):
    assert run("run", "r.toml").returncode == 0
    queries = world / "notes" / "queries.jsonl"
    queries.write_text("".join(queries.read_text().splitlines(keepends=True)[:-1]))
    assert states(run) == {"index": "kept", "bm25 0.5": "to do", "bm25 2.0": "to do", "ql": "to do"}
    assert run("run", "r.toml").returncode == 0
    (world / "notes" / "corpus.jsonl").write_text('{"id": "q1d1", "text": "other"}\n')
    assert set(states(run).values()) == {"to do"}


def test_the_same_content_under_a_new_date_redoes_nothing(world, run):
    assert run("run", "r.toml").returncode == 0
    os.utime(world / "notes" / "corpus.jsonl", (1, 1))
    assert set(states(run).values()) == {"kept"}


@pytest.mark.slow
def test_an_output_changed_by_hand_is_made_again(world, run):
    assert run("run", "r.toml").returncode == 0
    (changed,) = (world / "r.out" / "work").glob("ql-*/ql.run")
    whole = changed.read_bytes()
    changed.write_bytes(whole[:-20])
    assert states(run)["ql"] == "to do"
    assert run("run", "r.toml").returncode == 0
    assert changed.read_bytes() == whole


def test_an_input_changed_during_the_run_is_refused(world, run, monkeypatch):
    call = work.call

    def meddling(task, out):
        said = call(task, out)
        if task.step == "ql":
            with (world / "notes" / "queries.jsonl").open("a") as queries:
                queries.write('{"id": "late", "text": "one more"}\n')
        return said

    monkeypatch.setattr(work, "call", meddling)
    done = run("run", "r.toml")
    assert done.returncode == 1
    assert "queries.jsonl: changed during the run" in done.stderr
    monkeypatch.undo()
    monkeypatch.chdir(world)
    monkeypatch.setenv("COLUMNS", "110")


def test_a_failing_step_is_named_with_its_line(world, run):
    done = run("run", "r.toml", "--set", "steps.bm25.field=subject")
    assert done.returncode == 1
    assert "r.toml, line 14: step bm25 k1=0.5: " in done.stderr
    assert "subject" in done.stderr


def test_absent_data_stops_before_anything_is_done(world, run):
    (world / "notes" / "queries.jsonl").unlink()
    done = run("run", "r.toml")
    assert done.returncode == 1
    assert "r.toml, line 4: " in done.stderr
    assert "queries.jsonl is not there; get it: copy the notes here" in done.stderr
    assert not (world / "r.out").exists()
    assert states(run)["ql"] == "data absent"


def test_with_partial_the_rest_is_done_and_the_absence_reported(world, run):
    text = RECIPE.replace("[loop]", 'more = "more.jsonl"\n\n[loop]').replace(
        'queries = "@notes/queries.jsonl"\nmodel = "ql"', 'queries = "@more"\nmodel = "ql"'
    )
    (world / "r.toml").write_text(text)
    done = run("run", "r.toml", "--partial", "--strict")
    assert done.returncode == 0, done.stderr
    assert "rankhouse skipped these steps, whose data are absent: ql" in done.stderr
    assert "Of 1 expected numbers: 1 data absent." in done.stdout
    assert "BM25" in done.stdout


def test_a_number_that_differs_is_told_and_strict_fails(world, run):
    wrong = ["--set", "table.0.expect.0.rows.QL.AP=0.1"]
    done = run("run", "r.toml", *wrong, "--json")
    assert done.returncode == 0
    (check,) = json.loads(done.stdout)["tables"][0]["expected"]
    assert check["status"] == f"differs by {check['found'] - 0.1:+.4f}"
    assert run("run", "r.toml", *wrong, "--strict").returncode == 1


def test_expected_numbers_of_one_size_are_not_those_of_the_other(world, run):
    (world / "r.toml").write_text(
        RECIPE
        + """
[smallest]
loop.k1 = [0.5]
"""
    )
    done = run("run", "r.toml", "--smallest")
    assert done.returncode == 0, done.stderr
    assert "No numbers were expected." in done.stdout
    assert (world / "r.smallest.out" / "results.md").exists()


def test_a_number_that_is_not_there_is_named_with_what_is(world, run):
    done = run("run", "r.toml", "--set", 'table.1.numbers={ x = "quries" }')
    assert done.returncode == 1
    assert 'there is no "quries"; there is: run, queries' in done.stderr


def test_rows_on_different_queries_cannot_be_paired(world, run):
    said = 'numbers = { asked = "queries" }'
    text = RECIPE.replace(said, f'{said}\nbaseline = "QL"')
    (world / "r.toml").write_text(text.replace('rows = { QL = "@ql" }', 'rows = { QL = "@ql", B = "@bm25" }'))
    done = run("run", "r.toml")
    assert done.returncode == 2
    assert "measured on different passes of the loop" in done.stderr


def test_two_runs_in_one_folder_exclude_each_other(world, run):
    with ThreadPoolExecutor(1) as other, only_writer(world / "r.out"):
        done = other.submit(run, "run", "r.toml").result()
    assert done.returncode == 2
    assert "another process is writing it" in done.stderr


def test_tables_made_for_each_value_compare_with_that_values_numbers(world, run):
    text = RECIPE.replace('name = "Rankings"', 'name = "Rankings with {k1}"').replace(
        "[[table.expect]]", "[[table.expect]]\nwhen = { k1 = 2.0 }"
    )
    (world / "r.toml").write_text(text)
    done = run("run", "r.toml", "--json")
    assert done.returncode == 0, done.stderr
    tables = json.loads(done.stdout)["tables"]
    assert [t["name"] for t in tables] == ["Rankings with 0.5", "Rankings with 2.0", "Said"]
    assert [len(t["expected"]) for t in tables] == [0, 1, 0]


def test_values_of_a_loop_may_be_tables(world, run):
    text = RECIPE.replace(
        "k1 = [0.5, 2.0]",
        'k1 = [{ name = "low", model = "bm25(k1=0.5)" }, { name = "lm", model = "ql" }]',
    ).replace('"bm25(k1={k1})"', '"{k1.model}"')
    (world / "r.toml").write_text(text)
    done = run("run", "r.toml", "--json")
    assert done.returncode == 0, done.stderr
    passes = json.loads(done.stdout)["tables"][0]["cells"]
    by_name = {(c["system"], c["measure"]): c for c in passes}
    assert by_name["BM25", "AP"]["passes"]["k1=lm"] == by_name["QL", "AP"]["mean"]


@pytest.fixture
def public(world, monkeypatch):
    """The notes as a collection of ir_datasets, registered as the library registers its own."""
    ir_datasets = pytest.importorskip("ir_datasets")
    (world / "docs.tsv").write_text("d1\tpilots steer ships\nd2\thigh water\n")
    (world / "queries.tsv").write_text("q1\tpilots\n")
    (world / "qrels.txt").write_text("q1 0 d1 1\n")
    made = ir_datasets.create_dataset(
        docs_tsv=str(world / "docs.tsv"),
        queries_tsv=str(world / "queries.tsv"),
        qrels_trec=str(world / "qrels.txt"),
    )
    monkeypatch.setitem(ir_datasets.registry._registered, "made-up", made)
    monkeypatch.setenv("IR_DATASETS_HOME", str(world / "home"))
    text = RECIPE.replace(
        'notes = { path = "notes", get = "copy the notes here" }', 'notes = "ir_datasets:made-up"'
    )
    for inner in ("corpus.jsonl", "queries.jsonl", "qrels.txt"):
        text = text.replace(f"@notes/{inner}", "@notes")
    (world / "r.toml").write_text(
        text.replace("within = 0.5\nrows.QL = { AP = 0.9 }", "rows.QL = { AP = 1.0 }")
    )
    return world


def test_public_collections_are_read_by_their_name(public, run):
    done = run("run", "r.toml")
    assert done.returncode == 1
    assert "r.toml, line 4: ir_datasets:made-up is not in" in done.stderr
    assert "--download" in done.stderr
    done = run("run", "r.toml", "--download", "--strict")
    assert done.returncode == 0, done.stderr
    assert "1 reproduced" in done.stdout
    (public / "home" / "made-up").mkdir(parents=True)
    (public / "home" / "made-up" / "collection.tsv").write_text("there")
    assert set(states(run).values()) == {"kept"}


def test_unknown_collections_and_absent_checkpoints_are_told(world, run):
    pytest.importorskip("ir_datasets")
    pytest.importorskip("huggingface_hub")
    done = run("run", "r.toml", "--dry-run", "--set", "data.notes=ir_datasets:nonsense")
    assert done.returncode == 2
    assert '--set data.notes=ir_datasets:nonsense: ir_datasets knows no collection "nonsense"' in done.stderr
    done = run("run", "r.toml", "--set", "data.notes=hub:nobody/nothing")
    assert done.returncode == 1
    assert "the checkpoint nobody/nothing is not on this machine" in done.stderr


def test_the_example_of_the_documentation_can_be_planned(tmp_path, run):
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    (tmp_path / "example.toml").write_text(example)
    for more in ([], ["--smallest"]):
        done = run("run", "example.toml", "--dry-run", "--json", *more)
        assert done.returncode == 0, done.stderr
        steps = [step["step"] for step in json.loads(done.stdout)["steps"]]
        assert steps.count("knrm") == (2 if more else 15)
