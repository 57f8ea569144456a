"""Recipes of rows that do not need each other: one value of a loop, absent data, places to look instead."""

import json
import shutil
from pathlib import Path

import pytest

BEIR = Path(__file__).parents[1] / "tiny" / "beir"
RECIPE = """title = "Rows"
partial = true

[data]
root = { path = "sets", get = "unpack them there" }
one = { path = "@root/one", otherwise = "elsewhere" }
two = "@root/two"

[loop]
set = ["one", "two"]

[steps.index]
command = "index"
corpus = "@{set}"
workers = 1

[steps.bm25]
command = "search"
index = "@index"
queries = "@{set}"

[[table]]
name = "{set}"
rows = { BM25 = "@bm25" }
qrels = "@{set}"
measures = "R@10"

[[table.expect]]
when = { set = "one" }
source = "counted by hand"
rows.BM25 = { "R@10" = 1.0 }

[[table.expect]]
when = { set = "two" }
source = "counted by hand"
rows.BM25 = { "R@10" = 0.5 }
"""


@pytest.fixture
def world(tmp_path):
    (tmp_path / "r.toml").write_text(RECIPE)
    shutil.copytree(BEIR, tmp_path / "sets" / "one")
    return tmp_path


def outcomes(done):
    assert done.returncode == 0, done.stderr
    return {
        table["name"]: check["status"]
        for table in json.loads(done.stdout)["tables"]
        for check in table["expected"]
    }


def test_rows_whose_data_are_absent_are_skipped_with_the_reason(world, run):
    assert outcomes(run("run", "r.toml", "--json")) == {"one": "reproduced", "two": "data absent"}
    shown = run("run", "r.toml")
    assert shown.returncode == 0
    assert "reproduced │ counted by hand" in shown.stdout
    assert "two" not in shown.stdout
    assert "sets/two is not there" in shown.stderr
    assert "1 reproduced, 1 data absent" in shown.stdout


def test_only_keeps_one_value_of_a_loop(world, run):
    assert outcomes(run("run", "r.toml", "--json", "--only", "one")) == {"one": "reproduced"}
    assert outcomes(run("run", "r.toml", "--json", "--only", "two")) == {"two": "data absent"}
    assert len(outcomes(run("run", "r.toml", "--json", "--only", "one", "--only", "two"))) == 2


def test_an_unknown_value_is_answered_with_those_there_are(world, run):
    done = run("run", "r.toml", "--only", "onee")
    assert done.returncode == 2
    assert 'did you mean "one"' in done.stderr
    (world / "r.toml").write_text(
        RECIPE.replace('set = ["one", "two"]', "").replace("{set}", "one").split("[[table.expect]]")[0]
    )
    assert "none, as the recipe has no [loop]" in run("run", "r.toml", "--only", "one").stderr


def test_a_number_outside_its_tolerance_is_said(world, run):
    shutil.copytree(BEIR, world / "sets" / "two")
    assert outcomes(run("run", "r.toml", "--json"))["two"] == "differs by +0.5000"
    assert run("run", "r.toml", "--strict").returncode == 1


def test_data_may_have_another_place(world, run):
    shutil.move(world / "sets" / "one", world / "elsewhere")
    assert outcomes(run("run", "r.toml", "--json", "--only", "one")) == {"one": "reproduced"}
    shutil.rmtree(world / "elsewhere")
    done = run("run", "r.toml", "--only", "one")
    assert "elsewhere is not there" in done.stderr
