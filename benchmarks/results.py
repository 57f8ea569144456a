r"""docs/results.md: what the recipes expect, beside what was obtained by the runs kept in recipes/results/.

    rankhouse run recipes/beir.toml --only scifact --set data.root=~/beir --out beir.out
    python benchmarks/results.py --keep beir.out --command "rankhouse run recipes/beir.toml --only scifact" \
        --data "BEIR's own archive"
    python benchmarks/results.py                          # writes the page

``--keep`` takes of a result folder the numbers that a recipe expects, with the command, the commit of this
checkout, the versions and the kind of machine; no text of a collection and no path. It writes
recipes/results/RECIPE.json, or --name. Rows that no kept run has are shown as never run here.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rankhouse.page.tables import Table
from rankhouse.recipes.loops import Loops, labels_of, said
from rankhouse.recipes.parse import measure_names, read_recipe
from rankhouse.recipes.tables import REPRODUCED, status

ROOT = Path(__file__).parents[1]
RECIPES, KEPT, PAGE = ROOT / "recipes", ROOT / "recipes" / "results", ROOT / "docs" / "results.md"
PACKAGES = ("rankhouse", "python", "numpy", "torch")

INTRODUCTION = """# Results

What the [recipes](recipes.md) expect, where each number was published, and what was obtained when a
recipe was run on the collection itself. `python benchmarks/results.py` writes this page from the recipes and
from the result files in `recipes/results`, which say by which command, commit and machine they were obtained;
a test compares the page with them.

To repeat a row, put the collection in place (each recipe says where) and run its recipe:

```sh
rankhouse run recipes/beir.toml --only scifact --set data.root=~/beir
```

The table that it prints shows the expected number, the number found and whether they agree within the
tolerance. Rows whose data are not there are skipped, with the reason. "Never run here" means that the
expected number is published, but nobody of this project has compared it with rankhouse yet.

Rows without a published number that was measured likewise are named below the table of a recipe that was
never run here: rerankers on NanoBEIR and on MTEB ([why](recipes.md#nanobeir-and-mteb)). The tests run
recipes at their smallest size, on made-up data, which says that they work and nothing of these numbers.
"""


class Row(NamedTuple):
    """An expected number."""

    table: str
    row: str
    measure: str
    expected: float
    within: float
    source: str


def expected(recipe: Path) -> list[Row]:
    """List the numbers that a recipe expects, but for those of its smallest size."""
    return list(_expected(recipe))


def _expected(recipe: Path) -> Iterator[Row]:
    file = read_recipe(recipe)
    loops = Loops(file)
    for number, table in enumerate(file.recipe.table):
        place = ("table", number)
        for expect in table.expect:
            if expect.smallest:
                continue
            name = loops.fill(table.name, expect.when, place)
            if expect.when and name == table.name:
                name += f" ({said(labels_of(expect.when))})"
            for row, cells in expect.rows.items():
                for column, value in cells.items():
                    measure = measure_names(column, place, file.lines)[0] if table.measures else column
                    yield Row(name, row, measure, value, expect.within, source=expect.source)


def unexpected(recipe: Path) -> list[tuple[str, list[str]]]:
    """List the tables of a recipe with their rows of which nothing is expected."""
    file = read_recipe(recipe)
    named = ((table.name, set(table.rows), table.expect) for table in file.recipe.table)
    return [
        (name, left)
        for name, rows, expect in named
        if (left := sorted(rows - {row for one in expect if not one.smallest for row in one.rows}))
    ]


def kept() -> dict[str, list[dict[str, Any]]]:
    """Read the kept results: recipe -> its runs."""
    results: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(KEPT.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        results.setdefault(result["recipe"], []).append(result)
    return results


def page() -> str:
    """Return the page."""
    results, sections = kept(), []
    summary: list[tuple[str, ...]] = []
    for recipe in sorted(RECIPES.glob("*.toml")):
        rows = expected(recipe)
        if not rows:
            continue
        title = read_recipe(recipe).recipe.title
        runs = results.get(recipe.name, [])
        found = {tuple(key): value for run in runs for *key, value in run["numbers"]}
        lines = [_line(row, found.get((row.table, row.row, row.measure))) for row in rows]
        obtained = [line for line in lines if line[-3] != "–"]
        agreeing = sum(line[-2] == REPRODUCED for line in lines)
        summary.append((f"[{title}](#{_anchor(title)})", str(len(rows)), str(len(obtained)), str(agreeing)))
        sections.append(_section(recipe, title, runs, lines))
    head = Table(("recipe", "expected", "run here", "reproduced"), tuple(summary))
    return "\n".join([INTRODUCTION, head.to_markdown(), *sections])


def _anchor(title: str) -> str:
    """Return the fragment that sites make of a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower()))


def _section(recipe: Path, title: str, runs: list[dict[str, Any]], lines: list[tuple[str, ...]]) -> str:
    source = read_recipe(recipe).recipe.source
    parts = [f"## {title}\n", f"`recipes/{recipe.name}`. Source: {source}.\n"]
    for run in runs:
        versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
        parts.append(
            f"Run here: `{run['command']}`, commit {run['commit']}, on {run['machine']} ({versions}). "
            f"Data: {run['data']}.\n"
        )
    if not runs:
        parts.append("Never run here.\n")
    columns = ("table", "row", "measure", "expected", "within", "obtained", "outcome", "source")
    parts.append(Table(columns, tuple(lines)).to_markdown())
    if not runs and (left := unexpected(recipe)):
        named = "; ".join(f"{', '.join(f'`{row}`' for row in rows)} of `{name}`" for name, rows in left)
        parts.append(f"Without a published number, and never run here either: {named}.\n")
    return "\n".join(parts)


def _line(row: Row, obtained: float | None) -> tuple[str, ...]:
    outcome = "never run here" if obtained is None else status(row.expected, obtained, row.within)
    shown = "–" if obtained is None else f"{obtained:.4f}"
    texts = (row.table, row.row, row.measure, f"{row.expected:g}", f"{row.within:g}", shown, outcome)
    return (*texts, row.source)


def keep(out: Path, command: str, data: str, name: str = "") -> Path:
    """Take the numbers of a result folder; return the file that was written."""
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    tables = json.loads((out / "results.json").read_text(encoding="utf-8"))["tables"]
    numbers = [
        [table["name"], check["row"], check["column"], round(check["found"], 6)]
        for table in tables
        for check in table["expected"]
        if check["found"] is not None
    ]
    if not numbers or manifest["smallest"]:
        raise SystemExit(f"{out}: holds no number that a recipe expects of a collection; nothing to keep")
    machine = manifest["machine"]
    recipe = Path(manifest["file"]).name
    result = {
        "recipe": recipe,
        "command": command,
        "data": data,
        "commit": _git("rev-parse", "--short=10", "HEAD"),
        "machine": f"{machine['processor']}, {machine['cores']} cores",
        "versions": {name: manifest["versions"][name] for name in PACKAGES if name in manifest["versions"]},
        "numbers": numbers,
    }
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{name or Path(recipe).stem}.json"
    path.write_text(_json(result), encoding="utf-8")
    return path


def _json(result: dict[str, Any]) -> str:
    """Write a result with one number a line."""
    numbers = ",\n".join(f"    {json.dumps(one)}" for one in result.pop("numbers"))
    head = json.dumps(result, indent=2).removesuffix("\n}")
    return f'{head},\n  "numbers": [\n{numbers}\n  ]\n}}\n'


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="OUT", help="take the numbers of this result folder")
    parser.add_argument("--command", default="", help="by which command they were obtained")
    parser.add_argument("--data", default="", help="what the data were: archive, version, conversion")
    parser.add_argument("--name", default="", help="of the file in recipes/results; the recipe's by default")
    arguments = parser.parse_args()
    if arguments.keep is not None:
        if not (arguments.command and arguments.data):
            parser.error("--keep needs --command, as it was typed, with ~ for your folders, and --data")
        print(keep(arguments.keep, arguments.command, arguments.data, arguments.name))
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
