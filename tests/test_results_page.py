"""The page of results says what the recipes expect and what the kept result files hold, and nothing else."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import results

sys.path.pop(0)

ROOT = Path(__file__).parents[1]

KEPT = sorted(results.KEPT.glob("*.json"))


def test_the_page_says_what_the_script_writes():
    assert results.PAGE.read_text(encoding="utf-8") == results.page(), "run  python benchmarks/results.py"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_result_says_how_it_was_obtained_and_is_still_expected(path):
    text = path.read_text(encoding="utf-8")
    result = json.loads(text)
    assert result["command"].startswith(f"rankhouse run recipes/{result['recipe']}")
    assert all(result[key] for key in ("commit", "data", "machine", "versions", "numbers"))
    assert '"/' not in text
    assert not any(place in text for place in ("/home/", "/root/", "/tmp/", "/work/"))
    wanted = {
        (row.table, row.row, row.measure) for row in results.expected(results.RECIPES / result["recipe"])
    }
    assert {tuple(key) for *key, _ in result["numbers"]} <= wanted


@pytest.mark.slow
def test_kept_numbers_are_those_of_the_result_folder(tmp_path, run, monkeypatch):
    recipe = ROOT / "recipes" / "beir.toml"
    beir = ROOT / "tests" / "tiny" / "beir"
    done = run("run", recipe, "--only", "scifact", "--set", f"data.scifact={beir}", "--out", "o")
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    path = results.keep(tmp_path / "o", "rankhouse run recipes/beir.toml --only scifact", "four notes")
    kept = json.loads(path.read_text())
    assert kept["numbers"] == [["scifact", "BM25", "nDCG@10", 0.777407], ["scifact", "BM25", "R@100", 1.0]]
    page = results.page()
    assert "| scifact | BM25 | nDCG@10 | 0.6789 | 0.001 | 0.7774 | differs by +0.0985 | Pyserini" in page
    assert run("run", recipe, "--smallest", "--out", "s").returncode == 0
    with pytest.raises(SystemExit, match="nothing to keep"):
        results.keep(tmp_path / "s", "rankhouse run recipes/beir.toml --smallest", "four notes")


def test_the_table_of_hosts_has_the_versions_that_are_installed_for_it():
    """``python benchmarks/hosts.py`` writes it anew when the pins move."""
    text = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| \d+ of \d+ \|", text, re.MULTILINE))
    pins = (ROOT / "tests" / "hosts" / "requirements" / "hosts.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", pins, re.MULTILINE))
    names = {"LangChain": "langchain-core", "LlamaIndex": "llama-index-core", "Haystack": "haystack-ai"}
    assert len(shown) == 7
    assert shown == {name: pinned[names.get(name, name.lower())] for name in shown}
