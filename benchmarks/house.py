"""The house in figures: lines, files, functions, sniffing, import time, names at the front door.

python benchmarks/house.py [CHECKOUT]
"""

import ast
import json
import statistics
import subprocess
import sys
from pathlib import Path

SNIFFERS = ("getattr", "hasattr")


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def undocumented_args(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [a.arg for a in node.args.args + node.args.kwonlyargs if a.arg not in ("self", "cls")]
    text = ast.get_docstring(node) or ""
    return len(names) >= 2 and bool(text) and "Args:" not in text


def import_seconds(source: Path) -> float:
    code = "import time; t = time.perf_counter(); import rankhouse; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(source), "PATH": ""},
                             capture_output=True, text=True, check=True).stdout)
        for _ in range(7)
    ]  # fmt: skip
    return statistics.median(runs)


def main() -> None:
    checkout = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])
    source = checkout / "src"
    files = sorted((source / "rankhouse").rglob("*.py"))
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    found = [node for tree in trees for node in functions(tree)]
    lengths = sorted(node.end_lineno - node.lineno + 1 for node in found)
    calls = [
        node.func.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    init = ast.parse((source / "rankhouse" / "__init__.py").read_text(encoding="utf-8"))
    names = [
        len(node.value.elts)
        for node in ast.walk(init)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    # a command's parameters are its options, which --help explains
    public = [node for node in found if not node.name.startswith("_") and node.name != "command"]
    largest = max(lines, key=lambda path: lines[path])
    figures = {
        "lines of Python": sum(lines.values()),
        "files": len(files),
        "largest file": f"{largest.relative_to(source)} ({lines[largest]})",
        "files above 360 lines": sum(n > 360 for n in lines.values()),
        "functions": len(found),
        "function length, 90th percentile": lengths[int(0.9 * len(lengths))],
        "names at the top level": (names or [1])[0],
        "getattr and hasattr": sum(calls.count(name) for name in SNIFFERS),
        "isinstance": calls.count("isinstance"),
        "public functions of two or more parameters without Args": sum(map(undocumented_args, public)),
        "import rankhouse, median of 7, ms": round(1000 * import_seconds(source), 1),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
