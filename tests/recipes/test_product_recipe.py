"""The recipe of product matching, end to end at its smallest size."""

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

RECIPE = Path(__file__).parents[2] / "recipes" / "product-matching.toml"


def outputs(folder, step):
    """The outputs of a step by the labels of their pass."""
    found = {}
    for made in sorted((folder / "work").glob(f"{step}.set=*")):
        said = re.findall(r"(\w+)=(.+?)(?=\.\w+=|$)", made.name.rpartition("-")[0])
        found[tuple(value for name, value in said if name in ("noise", "policy", "part"))] = made
    return found


def test_the_smallest_run_goes_from_a_catalogue_to_the_papers_tables(tmp_path, run):
    done = run("run", RECIPE, "--smallest", "--strict", "--out", "out")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    text = (tmp_path / "out" / "results.md").read_text()
    assert results
    for said in (
        "Top-1 accuracy on tiny, 0 of the matches wrong",
        "Top-1 accuracy on tiny, 0.2 of the matches wrong",
        "What the threshold keeps on tiny",
        "Annotated pairs on tiny",
        "Who is right on tiny",
        "Differences to human:",
        "cross-encoder",
    ):
        assert said in text
    out = tmp_path / "out"
    policies = ("human", "intersection", "cross-encoder", "top-1")
    counted = said_by(out, "counted")
    assert set(counted) == {(noise, policy) for noise in ("0", "0.2") for policy in policies}
    human, both, cross, first = (counted["0", policy] for policy in policies)
    assert counted["0.2", "human"]["precision"] < human["precision"] == both["precision"] == 1
    assert 0 < both["relevant"] <= min(human["relevant"], cross["relevant"])
    assert both["right"] == cross["right"]  # what the teacher confirms of what people say
    assert first["relevant"] == first["queries_relevant"]
    assert len({one["steps"] for one in said_by(out, "new_bi").values()}) == 1
    assert all(one["wrong"] == 0 for key, one in said_by(out, "judged").items() if key[0] == "0")
    assert all(one["wrong"] > 0 for key, one in said_by(out, "judged").items() if key[0] == "0.2")
    versus = outputs(out, "versus")[("0",)]
    assert (versus / "fifths.svg").exists()
    assert sum(json.loads((versus / "said.json").read_text())[k] for k in ("neither", "both")) > 0
    _no_part_shares_a_product(out)
    _no_query_finds_itself(out)


def said_by(folder, step):
    """Output of a step, by the labels of its pass."""
    return {key: json.loads((made / "said.json").read_text()) for key, made in outputs(folder, step).items()}


def _no_part_shares_a_product(out):
    (parts,) = outputs(out, "parts").values()
    seen = {}
    for name in ("first", "second", "held", "third", "test"):
        for line in (parts / "parts" / f"{name}.qrels").read_text().splitlines():
            query, _, entry, _ = line.split()
            assert entry != query
            assert seen.setdefault(entry, name) == name


def _no_query_finds_itself(out):
    runs = [
        *outputs(out, "found_third").values(),
        *outputs(out, "tested").values(),
        *outputs(out, "bm25").values(),
    ]
    for made in runs:
        (found,) = made.glob("*.run")
        assert all(line.split()[0] != line.split()[2] for line in found.read_text().splitlines())
