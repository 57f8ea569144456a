"""Every recipe of the repository can be planned, and is carried out at its smallest size."""

import sys
import tomllib
from pathlib import Path

import pytest

from rankhouse.cli.main import main

FOLDER = Path(__file__).parents[2] / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))


def smallest(path: Path) -> dict[str, object]:
    return tomllib.loads(path.read_text(encoding="utf-8")).get("smallest", {})


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call the program in an empty folder; gives exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rankhouse", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code or 0, *capsys.readouterr())

    return call


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_planned_whether_or_not_its_data_are_there(recipe, run):
    code, shown, said = run("run", recipe, "--dry-run")
    assert code == 0, said
    assert "rankhouse " in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [r for r in RECIPES if smallest(r) and r.stem != "product-matching"],  # test_product_recipe.py does it
    ids=lambda path: path.stem,
)
def test_a_recipe_is_carried_out_at_its_smallest_size(recipe, run, tmp_path):
    pytest.importorskip("torch")
    code, _, said = run("run", recipe, "--smallest", "--strict", "--out", tmp_path / "out")
    assert code == 0, said
    assert (tmp_path / "out" / "results.md").stat().st_size > 0


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_says_what_it_is_and_how_long_it_takes(recipe):
    written = tomllib.loads(recipe.read_text(encoding="utf-8"))
    for key in ("title", "about", "source", "time"):
        assert written.get(key), f"{recipe.name} has no {key}"
