"""Each package imports only packages of lower layers; the picture in the README is this list."""

import ast
import re
from pathlib import Path

import pytest

FLOORS = (
    {"core"},
    {"io"},
    {"text", "nn", "page"},
    {"index", "models", "ranking", "labels", "evaluation"},
    {"training", "explanation", "stores"},
    {"systems"},
    {"jobs", "adaptation"},
    {"api", "serve", "recipes", "demo"},
    {"cluster", "hosts"},
    {"cli"},
)
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
HOUSE = Path(__file__).parents[1] / "src" / "rankhouse"

SERVE = (
    ("errors", "folder"),
    ("engine",),
    ("contracts",),
    ("search",),
    ("judging",),
    ("page",),
    ("host", "mcp"),
)
"""The layers inside the service, lowest first."""


def packages_entered(path: Path, package: str = "rankhouse.") -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.update({node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names})
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {name.removeprefix(package).split(".")[0] for name in names if name.startswith(package)}


def upward_imports() -> set[str]:
    wrong = set()
    for path in HOUSE.rglob("*.py"):
        own = path.relative_to(HOUSE).parts[0]
        for entered in packages_entered(path) & set(LEVEL) if own in LEVEL else ():
            if entered != own and LEVEL[entered] >= LEVEL[own]:
                wrong.add(f"{path.relative_to(HOUSE)} -> {entered}")
    return wrong


def test_every_package_has_a_layer():
    packages = {p.name for p in HOUSE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert packages == set(LEVEL)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_pictures_show_the_layers_as_they_are(page):
    lines = (HOUSE.parents[1] / page).read_text(encoding="utf-8").splitlines()
    drawn = [re.fullmatch(r"(?:\| )?(\d)(?:  | \| )(\S.*)", line) for line in lines]
    names = {int(found[1]): re.split(r" \| |  (?=\S+ \S)", found[2])[0] for found in drawn if found}
    for level, packages in enumerate(FLOORS):
        shown = set(re.findall(r"\w+", names[level]))
        assert packages <= shown, f"{page}: layer {level} is {packages}"
        assert not shown & (LEVEL.keys() - packages), f"{page}: layer {level} shows others"


def test_imports_point_downwards():
    assert not upward_imports()


def test_imports_inside_the_service_point_downwards():
    level = {name: place for place, names in enumerate(SERVE) for name in names}
    wrong = set()
    for path in (HOUSE / "serve").rglob("*.py"):
        own = path.relative_to(HOUSE / "serve").parts[0].removesuffix(".py")
        for entered in packages_entered(path, "rankhouse.serve.") & level.keys() if own in level else ():
            if entered != own and level[entered] >= level[own]:
                wrong.add(f"{path.relative_to(HOUSE)} -> serve.{entered}")
    assert not wrong
