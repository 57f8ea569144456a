"""No module needs, at once or later, a module that needs it, but for those that are named here.

Imports inside functions count, those that only a type checker sees, and those by a text, where it says which.
"""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"

# (importing module, what it imports, as a pattern): why
EXCEPTIONS = {
    ("rankhouse", ".*"): "the names of the public API, looked up when they are asked for",
    ("rankhouse.cli.main", r".*\.cli\.commands\..*"): "the table of commands; run lists those it can run",
    ("rankhouse.jobs.jobs", r".*\.jobs\..*"): "the table of jobs that have shards, which are made by it",
    ("rankhouse.models.families", r".*\.models\..*"): "the table of families, which loads none of them",
    ("rankhouse.systems.system", r".*\.systems\.(execution|explaining)"): (
        "a system ranks and explains itself by what knows all kinds of systems"
    ),
    ("rankhouse.systems.stage", r".*\.systems\.notation"): (
        "what stands right of >> in Python is read as in an expression, which has stages in it"
    ),
    # The rest are type hints alone: the importing module gets an object, or returns one, of the other.
    ("rankhouse.models.bundle", r".*\.models\.ranker"): "opens rankers, which save themselves as bundles",
    ("rankhouse.index.lexical.store", r".*\.index\.index"): "reads texts for an index, which holds it",
    ("rankhouse.evaluation.report", r".*\.evaluation\.compare"): "shows a comparison, which shows itself",
    ("rankhouse.explanation.answer", r".*\.explanation\.contrast"): "the parts that both print alike",
    ("rankhouse.serve.judging.training", r".*\.judging\.collection"): "trains from what holds its trainings",
}


def modules():
    names = {
        path: ".".join(path.relative_to(SOURCES).with_suffix("").parts) for path in SOURCES.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def by_text(call):
    """Return a pattern of the modules that a call imports; None where it is no import or has no text."""
    if ast.unparse(call.func).rpartition(".")[2] != "import_module":
        return None
    match call.args[0]:
        case ast.Constant(value=str(name)):
            return re.escape(name)
        case ast.JoinedStr(values=parts):
            texts = [re.escape(one.value) if isinstance(one, ast.Constant) else ".+" for one in parts]
            return "".join(texts)
    return None


def needed(path, known):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module
        elif isinstance(node, ast.Call) and (pattern := by_text(node)):
            yield from (name for name in known if re.fullmatch(pattern, name))


def graph():
    known = modules()
    # A class that travels to another process by value imports its own module there.
    return {name: set(needed(path, known)) & known.keys() - {name} for name, path in known.items()}


def without(edges, exceptions):
    left = {name: set(found) for name, found in edges.items()}
    for name, pattern in exceptions:
        left[name] -= {one for one in left[name] if re.fullmatch(pattern, one)}
    return left


def circle(edges):
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return " <- ".join(error.args[1])
    return ""


def test_no_import_runs_in_a_circle():
    edges = graph()
    found = circle(without(edges, EXCEPTIONS))
    assert not found, f"imports in a circle: {found}"
    for one in EXCEPTIONS:
        assert circle(without(edges, EXCEPTIONS.keys() - {one})), f"{one} is in no circle: leave it out"


def test_imports_by_a_text_and_for_types_are_seen(tmp_path):
    (tmp_path / "a.py").write_text(
        "if TYPE_CHECKING:\n    from x.b import B\n"
        "def later():\n    import x.c\n    import_module('x.d')\n    importlib.import_module(f'x.e.{name}')\n"
    )
    known = ["x.a", "x.b", "x.c", "x.d", "x.d2", "x.e.one", "x.f"]
    assert sorted(needed(tmp_path / "a.py", known)) == ["x.b", "x.c", "x.d", "x.e.one"]
