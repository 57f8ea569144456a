"""The house rules that a program can measure: sizes of files and functions, where print may stand."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

HOUSE = Path(__file__).parents[1] / "src" / "rankhouse"
FILES = sorted(HOUSE.rglob("*.py"))
MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 400, 60, 7


def functions(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(node: ast.FunctionDef) -> int:
    """Lines of a function without its docstring."""
    first = node.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    documented = (first.end_lineno - first.lineno + 1) if has_docstring else 0
    return node.end_lineno - node.lineno + 1 - documented


def test_files_are_short():
    long = {
        str(p.relative_to(HOUSE)): n for p in FILES if (n := len(p.read_text().splitlines())) > MOST_LINES
    }
    assert not long


def test_functions_are_short():
    long = [
        f"{path.relative_to(HOUSE)}:{node.lineno} {node.name} {lines}"
        for path in FILES
        for node in functions(path)
        if (lines := body_lines(node)) > MOST_FUNCTION_LINES
    ]
    assert not long


def test_functions_take_few_parameters():
    """Commands and the front door are left out: there, a parameter is an option that the person names."""
    many = [
        f"{path.relative_to(HOUSE)}:{node.lineno} {node.name} {count}"
        for path in FILES
        if not {"commands", "api"} & set(path.parts)
        for node in functions(path)
        if (count := len([a for a in node.args.args + node.args.kwonlyargs if a.arg not in ("self", "cls")]))
        > MOST_PARAMETERS
    ]
    assert not many


MOST_POSITIONS = 4
SEVERAL_ALIKE = {
    "check_least",
    "ending_of",
    "idle",
    "unused",
    "write",
    "Sequential",
    "TypeVar",
    "view",
    "permute",
}
"""Functions that take any number of like values; those of the compiled kernels have no names to call by."""
LEFT = {
    "adaptation": 30,
    "cli": 1,
    "cluster": 6,
    "core": 6,
    "evaluation": 9,
    "explanation": 1,
    "index": 32,
    "io": 1,
    "labels": 16,
    "models": 23,
    "nn": 22,
    "ranking": 12,
    "serve": 73,
    "stores": 1,
    "systems": 24,
    "text": 2,
}
"""Package -> calls that still pass more; it only shrinks."""


def bare_calls(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and len(node.args) > MOST_POSITIONS:
            *_, owner, name = ["", "", *ast.unparse(node.func).split(".")]
            if name not in SEVERAL_ALIKE and owner not in {"_kernel", "ctx"}:
                yield node


def test_calls_name_what_they_pass():
    calls = [f"{path.relative_to(HOUSE)}:{node.lineno}" for path in FILES for node in bare_calls(path)]
    counts = Counter(call.partition("/")[0] for call in calls)
    assert counts <= Counter(LEFT), f"more than {MOST_POSITIONS} arguments without names: {calls}"


def test_print_stands_in_the_command_line_only():
    printing = [
        f"{path.relative_to(HOUSE)}:{node.lineno}"
        for path in FILES
        if path.relative_to(HOUSE).parts[0] not in {"cli", "demo", "cluster", "jobs", "serve"}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ]
    assert not printing


def test_the_light_rooms_never_import_torch():
    rooms = (
        "io.corpora io.trec text.analyze index.lexical.build index.lexical.search "
        "evaluation.tables ranking.fuse explanation.lexical explanation.stages cli.main api.index"
    )
    code = (
        "import importlib, sys\n"
        f"for room in {rooms.split()!r}: importlib.import_module('rankhouse.' + room)\n"
        "heavy = {'torch', 'transformers', 'matplotlib', 'faiss'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
