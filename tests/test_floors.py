"""Each room opens doors only to floors below it; the picture in the README is this list."""

import ast
from pathlib import Path

FLOORS = (
    {"core"},
    {"text", "nn", "page"},
    {"index", "models", "ranking", "labels", "evaluation"},
    {"training", "explanation"},
    {"app"},
)
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
HOUSE = Path(__file__).parents[1] / "src" / "rankhouse"


def rooms_entered(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {name.split(".")[1] for name in names if name.startswith("rankhouse.")}


def test_every_room_has_a_floor():
    rooms = {p.name for p in HOUSE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms <= set(LEVEL)
    assert {"core", "text", "index", "evaluation", "ranking", "app"} <= rooms


def test_doors_open_downwards():
    wrong = []
    for path in HOUSE.rglob("*.py"):
        room = path.relative_to(HOUSE).parts[0]
        for entered in rooms_entered(path) if room in LEVEL else ():
            if entered != room and LEVEL[entered] >= LEVEL[room]:
                wrong.append(f"{path.relative_to(HOUSE)} -> {entered}")
    assert not wrong, f"upward or sideways doors: {wrong}"
