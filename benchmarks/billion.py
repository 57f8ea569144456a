"""Costs of a billion passages, computed from measured constants; writes docs/scale.md.

    python benchmarks/billion.py                      # docs/scale.md
    python benchmarks/billion.py --print --rate 100 --price 0.40 --cores 32 --memory 256
    python benchmarks/billion.py --print --set cross.pair.seconds.bf16=0.0001      # what a GPU's pair costs

The constants are those of benchmarks/constants.json (``measure_constants.py``), the measured growth that of
benchmarks/scale.jsonl (``scale.py``). Everything else is arithmetic and stands in :func:`ways`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "scale.md"
SIZES = (10_000_000, 100_000_000, 1_000_000_000)
DEPTH = 100
BUSY = 2.0
"""Load a core from which a measurement is marked as taken on a busy machine."""


@dataclass(frozen=True)
class Plan:
    """Assumptions, all of them parameters.

    Attributes:
        price: Dollars an hour of a machine.
        cores: Of a machine.
        memory: Of a machine, in GB.
        disk: Of a machine, in GB.
        rate: Queries a second that are served.
        part: Passages of a part of the index.
        busy: Share of processors, memory and disks that is planned to be used.
    """

    price: float = 0.80
    cores: int = 16
    memory: float = 64
    disk: float = 2000
    rate: float = 10
    part: int = 10_000_000
    busy: float = 0.7


class Need(NamedTuple):
    """Needs of one way of ranking for a collection.

    Attributes:
        disk: GB.
        memory: GB that have to be in memory to answer.
        hours: Processor hours to build.
        seconds: Processor seconds of a query.
    """

    disk: float
    memory: float
    hours: float
    seconds: float


Constants = Mapping[str, float]


def ways(n: int, c: Constants, plan: Plan) -> dict[str, Need]:
    """Return what every way of ranking needs.

    Args:
        n: Passages.
        c: Constant -> its value.
        plan: What is assumed.
    """
    parts = math.ceil(n / plan.part)
    rows = n / parts
    texts = n * (c["index.bytes.texts"] + c["index.bytes.ids"]) / 1e9
    postings = n * (c["index.bytes.postings"] + c["index.bytes.ids"]) / 1e9
    lexical = texts + n * (c["index.bytes.postings"] + c["index.bytes.forward"]) / 1e9
    indexing = n * c["index.seconds"] / 3600
    bm25 = n * c["bm25.seconds.passage"] + parts * c["bm25.seconds.query"]
    pair = min(c["cross.pair.seconds.bf16"], c["cross.pair.seconds.int8"])
    found = {
        "BM25": Need(lexical, postings, indexing, bm25),
        "BM25, TK on stored int8 vectors": Need(
            lexical + n * c["tk.bytes.int8"] / 1e9,
            postings,
            indexing + n * c["tk.encode.seconds"] / 3600,
            bm25 + DEPTH * c["tk.pair.seconds"],
        ),
        "BM25, cross-encoder": Need(lexical, postings, indexing, bm25 + DEPTH * pair),
    }
    encoding = n * c["dense.encode.seconds"] / 3600
    vectors = n * c["dense.bytes.vectors"] / 1e9
    asked = n * c["exact.search.seconds"]
    found["dense, exact in batches of 64"] = Need(texts + vectors, vectors, encoding, asked)
    for name in ("flat", "sq8", "ivf"):
        root = rows**0.5 if name == "ivf" else 1.0
        per_row = c["ivf.build.seconds"] * root if name == "ivf" else c[f"{name}.build.seconds"]
        asked = parts * c["ivf.search.seconds"] * root if name == "ivf" else n * c[f"{name}.search.seconds"]
        held = n * c[f"{name}.bytes"] / 1e9
        found[f"dense, {name}"] = Need(texts + vectors + held, held, encoding + n * per_row / 3600, asked)
    return found


class Bill(NamedTuple):
    """Machines and money of a need.

    Attributes:
        machines: To serve.
        monthly: Dollars a month to serve.
        building: Dollars to build once.
        hours: To build on the machines that serve.
        milliseconds: Of a query alone, if all processors of those machines work on it.
        bottleneck: What the most machines are needed for, or the building.
    """

    machines: int
    monthly: float
    building: float
    hours: float
    milliseconds: float
    bottleneck: str


def bill(need: Need, plan: Plan) -> Bill:
    """Return how many machines a need takes, what they cost, and what of it is scarce.

    Args:
        need: Of one way.
        plan: What is assumed.
    """
    share = {
        "memory": need.memory / (plan.memory * plan.busy),
        "processors": plan.rate * need.seconds / (plan.cores * plan.busy),
        "disk": need.disk / (plan.disk * plan.busy),
    }
    machines = math.ceil(max(share.values()))
    hours = need.hours / (machines * plan.cores * plan.busy)
    alone = 1000 * need.seconds / (machines * plan.cores)
    scarce = max(share, key=lambda name: share[name])
    monthly, building = machines * plan.price * 730, need.hours / plan.cores / plan.busy * plan.price
    scarce = "building" if hours > 30 * 24 else scarce
    return Bill(machines, monthly, building, hours, alone, scarce)


def short(value: float) -> str:
    """Write a number with two or three digits that count."""
    if value == 0:
        return "0"
    digits = max(0, 1 - math.floor(math.log10(abs(value))))
    rounded = round(value, digits) if value < 100 else float(f"{value:.3g}")
    return f"{rounded:,.{digits if value < 100 else 0}f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Write a table of Markdown, numbers to the right."""
    rule = ["---", *(["---:"] * (len(head) - 1))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def costs(n: int, c: Constants, plan: Plan) -> str:
    """Write the table of one size."""
    rows = []
    for name, need in ways(n, c, plan).items():
        paid = bill(need, plan)
        built = [short(need.disk), short(need.memory), short(need.hours), f"${short(paid.building)}"]
        serves = [short(need.seconds), f"{paid.machines:,}", f"${short(paid.monthly)}", short(paid.hours)]
        serves.append(short(paid.milliseconds))
        rows.append([name, *built, *serves, paid.bottleneck])
    head = ["", "disk GB", "memory GB", "core hours to build", "building", "core s a query", "machines",
            "a month", "hours to build on them", "ms a query, alone", "bottleneck"]  # fmt: skip
    return table(head, rows)


def measured(constants: Mapping[str, Mapping[str, object]]) -> str:
    """Write the table of constants; those of a busy machine are marked."""
    rows = []
    for name, one in constants.items():
        load = float(str(one["load"])) / float(str(one["cores"]))
        mark = " *" if load > BUSY else ""
        rows.append(
            [f"`{name}`", f"{float(str(one['value'])):.4g}{mark}", str(one["unit"]), str(one["command"])]
        )
    return table(["constant", "value", "unit", "measured by"], rows)


def growth(lines: list[dict[str, float | str]]) -> str:
    """Write the table of what was measured with 1, 2, 4 ... workers."""
    rows = []
    for one in lines:
        unit = "documents" if "documents" in one else "pairs"
        count, seconds, used = float(one[unit]), float(one["seconds"]), float(one["processor"])
        mark = " *" if float(one["load"]) > BUSY * float(one["cores"]) else ""
        rows.append([str(one["station"]), f"{count:,.0f} {unit}", str(one["way"]), str(one["workers"]),
                     f"{short(seconds)}{mark}", short(used), short(count / seconds), short(count / used),
                     short(float(one["memory"])), short(float(one["bytes"]) / count)])  # fmt: skip
    head = [
        "",
        "",
        "way",
        "workers",
        "wall s",
        "core s",
        "a second",
        "a core second",
        "memory MB",
        "bytes each",
    ]
    return table(head, rows)


def page(
    constants: Mapping[str, Mapping[str, object]], lines: list[dict[str, float | str]], plan: Plan
) -> str:
    """Write docs/scale.md.

    Args:
        constants: Content of constants.json.
        lines: Content of scale.jsonl.
        plan: What is assumed.
    """
    c = {name: float(str(one["value"])) for name, one in constants.items()}
    text = (HERE / "scale_page.md").read_text(encoding="utf-8")
    loads = [float(str(one["load"])) for one in constants.values()] + [float(one["load"]) for one in lines]
    fields = {
        "growth": growth(lines), "constants": measured(constants),
        "loads": f"{min(loads):.0f} to {max(loads):.0f}",
        "processor": str(next(iter(constants.values()))["processor"]),
        "cores": str(next(iter(constants.values()))["cores"]),
        "price": f"{plan.price:.2f}", "machine": f"{plan.cores} cores, {plan.memory:.0f} GB of memory and "
        f"{plan.disk:,.0f} GB of disk", "rate": f"{plan.rate:g}", "busy": f"{plan.busy:.0%}",
        "part": f"{plan.part:,}",
    }  # fmt: skip
    fields |= {f"costs {n}": costs(n, c, plan) for n in SIZES}
    for name, value in fields.items():
        text = text.replace(f"<!-- {name} -->", value)
    return text


def kept() -> tuple[dict[str, dict[str, object]], list[dict[str, float | str]]]:
    """Read the constants and the measured growth."""
    constants = json.loads((HERE / "constants.json").read_text(encoding="utf-8"))
    results = HERE / "scale.jsonl"
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return constants, [json.loads(line) for line in lines]


def main() -> None:
    """Read the arguments, and write the page or print the tables."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    for name, value in vars(Plan()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--set", action="append", default=[], metavar="CONSTANT=VALUE", dest="changes")
    parser.add_argument("--print", action="store_true", dest="prints", help="the tables, and no page")
    options = parser.parse_args()
    plan = Plan(**{name: getattr(options, name) for name in vars(Plan())})
    constants, lines = kept()
    for change in options.changes:
        name, _, value = change.partition("=")
        constants[name] = constants[name] | {"value": float(value)}
    if options.prints:
        c = {name: float(str(one["value"])) for name, one in constants.items()}
        print("\n\n".join(f"{n:,} passages\n\n{costs(n, c, plan)}" for n in SIZES))
        return
    PAGE.write_text(page(constants, lines, plan), encoding="utf-8")


if __name__ == "__main__":
    main()
