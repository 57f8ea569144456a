"""No module needs, at once or later, a module that needs it: imports inside functions count."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"


def modules():
    names = {
        path: ".".join(path.relative_to(SOURCES).with_suffix("").parts) for path in SOURCES.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def for_types_only(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(node):
    """Walk over the imports of a module, but for those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not for_types_only(child):
            yield from imports(child)


def needed(path, known):
    for node in imports(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
            continue
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in known else node.module


def test_no_import_runs_in_a_circle():
    known = modules()
    # A class that travels to another process by value imports its own module there.
    graph = {name: set(needed(path, known)) & known.keys() - {name} for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("imports in a circle: " + " <- ".join(error.args[1])) from None
