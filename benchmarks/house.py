"""Count what the plan of the packages measures: lines, files, layers, names, positional arguments.

    python benchmarks/house.py [CHECKOUT...]

Prints one column a checkout, the present one by default. `files entered` are the files of this package whose
code runs in a command, counted in a process of its own (needs the package's dependencies).
"""

from __future__ import annotations

import ast
import collections
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

_TRACED = """
import sys, threading
entered = set()
def enter(frame, event, arg):
    if event == "call" and frame.f_code.co_flags & 1:  # a function, no module or class body
        entered.add(frame.f_code.co_filename)
threading.setprofile(enter)
sys.setprofile(enter)
from rankhouse.__main__ import main
sys.argv = ["rankhouse", *sys.argv[1:]]
code = 0
try:
    main()
except SystemExit as end:
    code = end.code
sys.setprofile(None)
sys.stderr.write(f"\\nENTERED {len({name for name in entered if '/src/rankhouse/' in name})}\\n")
sys.exit(code)
"""

_RANKER = """
import sys
from pathlib import Path
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast
out = Path(sys.argv[1])
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "who", "ships"]
out.mkdir()
(out / "vocab.txt").write_text("\\n".join(words), encoding="utf-8")
torch.manual_seed(0)
shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=len(words), num_labels=1, **shape))
model.save_pretrained(out)
BertTokenizerFast(str(out / "vocab.txt")).save_pretrained(out)
"""


def modules(top: Path) -> Iterator[tuple[Path, ast.Module, int]]:
    """Yield each file of the package, its tree, its lines."""
    for path in sorted((top / "src" / "rankhouse").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(top / "src" / "rankhouse"), ast.parse(text), len(text.splitlines())


def counted(top: Path) -> dict[str, int]:
    """Count a checkout without running it."""
    files = list(modules(top))
    lines: collections.Counter[str] = collections.Counter()
    classes: collections.Counter[str] = collections.Counter()
    edges: set[tuple[Path, Path]] = set()
    folders = {path.parent for path, _, _ in files}
    bare = 0
    for path, tree, length in files:
        package = path.parts[0] if len(path.parts) > 1 else "."
        lines[package] += length
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rankhouse."):
                edges |= {(path.parent, folder) for folder in _folders(node, folders)}
            elif isinstance(node, ast.Call):
                bare += len([a for a in node.args if not isinstance(a, ast.Starred)]) > 4
    two_way = {
        frozenset(edge) for edge in edges if edge[0] != edge[1] and edge[::-1] in edges and not _nested(*edge)
    }
    return {
        "lines": sum(lines.values()),
        "files": len(files),
        "files under 40 lines": sum(length < 40 for _, _, length in files),
        "pairs of folders that import each other": len(two_way),
        "class names that stand for two things": sum(count > 1 for count in classes.values()),
        "calls with more than 4 bare positions": bare,
    } | {f"lines of {name}": count for name, count in sorted(lines.items()) if name != "."}


def _nested(one: Path, other: Path) -> bool:
    return one in other.parents or other in one.parents


def _folders(node: ast.ImportFrom, folders: set[Path]) -> set[Path]:
    """Return the folders that an import names: of the module, or of modules that it takes from a folder."""
    named = Path(*str(node.module).split(".")[1:])
    return {named if named in folders else named.parent}


def entered(top: Path) -> dict[str, int]:
    """Count the files whose code runs in two commands."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        environment = os.environ | {"PYTHONPATH": str(top / "src")}

        def run(*words: str) -> str:
            done = subprocess.run(
                [sys.executable, *words],
                cwd=work,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            return done.stderr

        (work / "d.tsv").write_text(
            "d1\tships steer into the harbour\nd2\ta lock lifts ships\nd3\twho grows grain\n",
            encoding="utf-8",
        )
        (work / "q.tsv").write_text("q1\twho steers ships\n", encoding="utf-8")
        (work / "first.run").write_text(
            "".join(f"q1 Q0 d{rank} {rank} {4 - rank}.0 first\n" for rank in (1, 2, 3)), encoding="utf-8"
        )
        run("-m", "rankhouse", "index", "d.tsv", "--out", "i")
        run("-c", _RANKER, "ranker")
        ways = {
            "search, one query": "search --index i --query ships",
            "rerank, three passages": "rerank --run first.run --queries q.tsv --index i "
            "--ranker crossencoder('ranker') --out new.run",
        }
        for name, words in ways.items():
            told = run("-c", _TRACED, *words.split())
            found[f"files entered: {name}"] = int(told.rpartition("ENTERED ")[2])
    return found


def main(*tops: str) -> None:
    """Print the table."""
    checkouts = [Path(top).resolve() for top in tops] or [Path(__file__).resolve().parents[1]]
    columns = [counted(top) | _or_nothing(entered, top) for top in checkouts]
    names = list(dict.fromkeys(name for column in columns for name in column))
    for name in names:
        print(f"{name:42}", *(f"{column.get(name, 0):>9,}" for column in columns))


def _or_nothing(count: Callable[[Path], dict[str, int]], top: Path) -> dict[str, int]:
    try:
        return count(top)
    except subprocess.CalledProcessError as error:
        print(error.stderr, file=sys.stderr)
        return {}


if __name__ == "__main__":
    main(*sys.argv[1:])
