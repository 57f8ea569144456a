"""Label transfer (recipes/qa-docrank.toml) at a size for one machine: one student, one budget, the pool Max.

    python benchmarks/label_transfer.py DATA MINILM OUT [--student "bi-encoder"] [--seeds 1 2 3]
        [--labels "DOC-LABELLED" "best 5"] [--budget "equal steps"] [--steps 200] [--every 100] [--patience 4]
        [--valid 20] [--test 100] [--students]

DATA holds the collections that the recipe names, MINILM is a folder of all-MiniLM-L6-v2. OUT is the
result's folder: the same command goes on there, and more seeds join those that are finished. ``--valid`` and
``--test`` sample that many questions; numbers that are not given are the recipe's. ``--students`` leaves out
what is the same for every student: the teacher itself, BERT-3S, PACRR-DRMM, and the time of a query.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "qa-docrank.toml"
OTHERS = {
    "teacher": ("teacher_alone",),
    "BERT-3S": ("sentences_valid", "sentences_test", "bert_3s", "sentences_timed"),
    "PACRR-DRMM": ("pacrr_drmm_ranker", "pacrr_drmm"),
    "time": ("timed",),
}
"""Row of a table -> the steps that make it."""
RANKHOUSE = [sys.executable, "-m", "rankhouse.cli.main"]


def toml(value: object) -> str:
    """Write a value as TOML in one line; of what recipes hold, only tables differ from JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(name)} = {toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return msgspec.json.encode(value).decode()


def among(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """Return the entries of a loop that have these names."""
    absent = set(names) - {row["name"] for row in rows}
    if absent:
        known = ", ".join(row["name"] for row in rows)
        raise SystemExit(f"{RECIPE.name} has no {', '.join(sorted(absent))}; it has: {known}")
    return [row for row in rows if row["name"] in names]


def changes(recipe: dict[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    """Return what to lay over the recipe: what is left of its loops, and the tables of that."""
    loop = recipe["loop"]
    budget = among(loop["budget"], [chosen.budget])[0]
    if chosen.steps:
        budget["steps"] = chosen.steps
    if chosen.patience:
        budget["patience"] = chosen.patience
    laid: dict[str, Any] = {
        "loop.labels": among(loop["labels"], chosen.labels),
        "loop.student": among(loop["student"], [chosen.student]),
        "loop.budget": [budget],
        "loop.pool": among(loop["pool"], ["Max"]),
        "loop.seed": chosen.seeds,
    }
    if chosen.every:
        laid["steps.taught.set.validate_every"] = chosen.every
    if chosen.valid:
        laid["steps.valid.sample"] = chosen.valid
    transferred = [name for name in chosen.labels if name != "DOC-LABELLED"]
    for step in ("transferred", "transferred_valid"):
        laid[f"steps.{step}.runs"] = [f"@chosen_valid[labels={name}]" for name in transferred]
    laid["steps.transferred.apply"] = [f"@chosen[labels={name}]" for name in transferred]
    kept = (*chosen.labels, chosen.budget)
    gone = [f"={row['name']}" for row in (*loop["labels"], *loop["budget"]) if row["name"] not in kept]
    if chosen.students:
        for step in (step for steps in OTHERS.values() for step in steps):
            laid[f"steps.{step}"] = {"command": "subset", "run": "@test_found"}  # in no table
        gone += [f"@{step}" for steps in OTHERS.values() for step in steps]
    else:
        laid["steps.timed.ranker"] = f"@taught[budget={chosen.budget},seed={chosen.seeds[0]}]"
    tables = []
    for table in recipe["table"]:
        rows = {name: row for name, row in table["rows"].items() if not any(word in row for word in gone)}
        if rows and table.get("baseline", next(iter(rows))) in rows:
            tables.append(table | {"rows": rows})
    laid["table"] = tables
    return laid


def subset(*words: object) -> None:
    """Run rankhouse subset."""
    subprocess.run([*RANKHOUSE, "subset", *map(str, words)], check=True)


def main() -> None:
    """Read the command line and run the recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("minilm")
    parser.add_argument("out", type=Path)
    parser.add_argument("--student", default="bi-encoder")
    parser.add_argument("--labels", nargs="+", default=["DOC-LABELLED", "best 5"])
    parser.add_argument("--budget", default="equal steps")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, help="Most of a training.")
    parser.add_argument("--every", type=int, help="Steps between validations.")
    parser.add_argument("--patience", type=int, help="Validations without gain that end it.")
    parser.add_argument("--students", action="store_true", help="Leave out all other rows.")
    parser.add_argument("--valid", type=int, help="Validation questions.")
    parser.add_argument("--test", type=int, help="Test questions.")
    chosen = parser.parse_args()
    laid = changes(tomllib.loads(RECIPE.read_text(encoding="utf-8")), chosen)
    laid |= {"data.root": str(chosen.data.resolve()), "data.encoder": chosen.minilm}
    if chosen.test:
        given, place = chosen.data / "qmsum", chosen.out.resolve()
        asked, judged = (place.with_name(f"{place.name}.{end}") for end in ("jsonl", "qrels"))
        if not judged.exists():
            sample = ("--sample", chosen.test, "--seed", 1)
            subset("--queries", given / "queries.dev.jsonl", *sample, "--out", asked)
            subset("--qrels", given / "qrels.dev.txt", "--ids", asked, "--out", judged)
        laid |= {"data.test_queries": str(asked), "data.test_qrels": str(judged)}
    sets = [f"--set={key}={toml(value)}" for key, value in laid.items()]
    words = [*RANKHOUSE, "run", str(RECIPE), "--out", str(chosen.out), *sets]
    raise SystemExit(subprocess.run(words, check=False).returncode)


if __name__ == "__main__":
    main()
