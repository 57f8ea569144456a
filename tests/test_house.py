"""The house rules that a program can measure: sizes of files and functions, where print may stand."""

import ast
import subprocess
import sys
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
