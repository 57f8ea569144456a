"""The notebook of the documentation runs from its first cell to its last, and holds small outputs."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")  # of a training so small
def test_the_notebook_runs_and_its_story_is_true(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, shown = {}, []
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    assert [type(one).__name__ for one in shown[:2]] == ["Index", "SearchResult"]
    comparison = names["comparison"]
    assert comparison["trained"]["RR@10"] > comparison["BM25"]["RR@10"]
    assert names["losses"][-1] < names["losses"][0]
    assert len(names["why"]) > 0


def test_the_notebook_is_small_and_shows_no_path_of_a_machine():
    text = NOTEBOOK.read_text()
    assert len(text) < 60_000
    assert "/home/" not in text
    assert "site-packages" not in text
