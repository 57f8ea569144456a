"""Each package imports only packages of lower layers; the picture in the README is this list."""

import ast
from pathlib import Path

FLOORS = (
    {"core"},
    {"io"},
    {"text", "nn", "page"},
    {"index", "models", "ranking", "labels", "evaluation"},
    {"training", "explanation", "stores"},
    {"systems"},
    {"jobs", "adapt"},
    {"api", "serve", "recipes", "demo"},
    {"cluster"},
    {"cli"},
)
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
HOUSE = Path(__file__).parents[1] / "src" / "rankhouse"

# Imports that still point upwards or sideways since the command's package was divided; the list only shrinks.
KNOWN = frozenset(
    line.strip()
    for line in """
    serve/folder/prepare.py -> cli
    serve/folder/prepare.py -> demo
    serve/host/cluster.py -> cluster
    serve/host/journal.py -> cli
    serve/host/serving.py -> cli
    serve/judging/process.py -> cli
    """.strip().splitlines()
)


def packages_entered(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.update({node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names})
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {name.split(".")[1] for name in names if name.startswith("rankhouse.")} & set(LEVEL)


def upward_imports() -> set[str]:
    wrong = set()
    for path in HOUSE.rglob("*.py"):
        room = path.relative_to(HOUSE).parts[0]
        for entered in packages_entered(path) if room in LEVEL else ():
            if entered != room and LEVEL[entered] >= LEVEL[room]:
                wrong.add(f"{path.relative_to(HOUSE)} -> {entered}")
    return wrong


def test_every_package_has_a_floor():
    rooms = {p.name for p in HOUSE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms == set(LEVEL)


def test_imports_point_downwards():
    wrong = upward_imports()
    assert not wrong - KNOWN, f"upward or sideways imports: {sorted(wrong - KNOWN)}"
    assert not KNOWN - wrong, f"mended; take them off the list: {sorted(KNOWN - wrong)}"
