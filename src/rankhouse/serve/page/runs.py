"""Runs: systems and runs compared on judged questions, with significance, and where they differ most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.run import Run
from rankhouse.evaluation.measure_notation import parse
from rankhouse.evaluation.tables import differences_table, means_table, records
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.compare import (
    MEASURES,
    MOST_COMPARED,
    ComparedRuns,
    CompareRequest,
    comparable,
    compare_runs,
)
from rankhouse.serve.judging.runs import trec_run
from rankhouse.serve.page.curves import Chart, across, drawn, hover_data, thinned, upwards
from rankhouse.serve.page.render import Line, address, csv_of, download, exports, fault_page, page

_ROWS = 100
_FEW_QUESTIONS = 3
_Test = Literal["randomization", "t"]
_Correction = Literal["holm", "bonferroni", "none"]


class RunsFields(Struct):
    """What is compared, how, and as what file it is shown."""

    system: Annotated[list[Line], Meta(max_length=MOST_COMPARED)] = []
    baseline: Line = ""
    index: Line = ""
    measures: Annotated[str, Meta(max_length=200)] = MEASURES
    test: _Test = "randomization"
    correction: _Correction = "holm"
    versus: Line = ""
    export: Literal["html", "csv", "json", "run"] = "html"


def show(service: ServedCollection, request: Request, asked: RunsFields) -> Response:
    """Return the comparison of chosen runs, or how far it is."""
    view = service.catalogue.view(asked.index)
    known = comparable(service, view.name)
    chosen = sorted(asked.system, key=lambda name: name != asked.baseline)
    wanted = CompareRequest(
        tuple(chosen), asked.measures, asked.test, asked.correction, index=view.name, against=asked.versus
    )
    if asked.export == "run":
        return export_run(service, wanted)
    content = _form(service, wanted, known)
    if not chosen:
        return page(request, "runs.html.j2", content)
    try:
        parse(wanted.measures)  # before systems are asked for nothing
        compared = compare_runs(service, wanted)
    except RankhouseError as error:  # the form stays, with what is wrong
        failed = fault_page(request, error)
        return page(request, "runs.html.j2", content | {"notes": (str(error),)}, failed.status_code)
    if asked.export != "html":
        return export(compared, asked.export)
    return page(request, "runs.html.j2", content | _shown(service, request, compared))


def _form(service: ServedCollection, wanted: CompareRequest, known: Sequence[str]) -> dict[str, object]:
    judged = sum(1 for said in service.known_qrels().values() if said)
    return {
        "title": "Compare runs",
        "runs": list(service.runs),
        "systems": [name for name in dict.fromkeys([*known, *wanted.names]) if name not in service.runs],
        "chosen": wanted.names,
        "index": wanted.index,
        "measures": wanted.measures,
        "baseline": wanted.names[0] if wanted.names else "",
        "baselines": [("", "First selected"), *((one, _told(service, one)) for one in known)],
        "test": wanted.test,
        "tests": [(name, {"t": "Paired t-test"}.get(name, name.capitalize())) for name in get_args(_Test)],
        "correction": wanted.correction,
        "corrections": [(name, name.capitalize()) for name in get_args(_Correction)],
        "judged": judged,
        "notes": (), "comparison": None, "progress": (), "exports": [],
    }  # fmt: skip


def _told(service: ServedCollection, name: str) -> str:
    return f"{name} (run)" if name in service.runs else name


def _shown(service: ServedCollection, request: Request, compared: ComparedRuns) -> dict[str, object]:
    if (comparison := compared.comparison) is None:
        return {"notes": compared.notes, "progress": compared.progress, "is_going": not compared.notes}
    shared = {"index": compared.request.index, "export": "run"}
    files = [(f"run of {name}", address("/runs", system=name, **shared)) for name in compared.request.names]
    given = request.query_params.multi_items()
    rest = [(name, value) for name, value in given if name not in ("export", "versus")]
    return {
        "comparison": comparison,
        "means": means_table(comparison),
        "differences": differences_table(comparison) if comparison.challengers else None,
        "pair": compared.pair,
        "versus": [(name, address("/runs", *rest, versus=name)) for name in comparison.challengers],
        "rows": compared.rows[:_ROWS],
        "largest": max((abs(row.difference) for row in compared.rows), default=0.0) or 1.0,
        "more": max(0, len(compared.rows) - _ROWS),
        "counts": _counts(compared),
        "profile": profile(compared),
        "columns": [
            name for name in compared.pair if name in service.catalogue.systems(compared.request.index)
        ],
        "notes": compared.notes,
        "exports": exports(request, "html", "csv", "json") + files,
    }


def profile(compared: ComparedRuns) -> Chart | None:
    """Return each run's values of the first measure from its best question to its worst; None for few."""
    values = {name: sorted((row.values[name] for row in compared.rows), reverse=True)
              for name in compared.request.names}  # fmt: skip
    count = len(compared.rows)
    if count < _FEW_QUESTIONS:
        return None
    curves = {name: thinned([(place + 1, value) for place, value in enumerate(column)])
              for name, column in values.items()}  # fmt: skip
    x, y = across(1, count), upwards([column[0] for column in values.values()])
    return Chart(
        tuple(
            drawn(name, f"line{n}", points, (x, y))._replace(dots=())
            for n, (name, points) in enumerate(curves.items())
        ),
        level=None,
        below=x.ticks(",g"),
        left=y.ticks(".2f"),
        right=(),
        sentence=f"{compared.comparison.measures[0]} of each run, its questions ordered from best to worst"
        if compared.comparison
        else "",
        data=hover_data(x, "Place {}", {name: (points, ".4f") for name, points in curves.items()}),
    )


def _counts(compared: ComparedRuns) -> str:
    better = sum(row.difference > 0 for row in compared.rows)
    worse = sum(row.difference < 0 for row in compared.rows)
    return f"{better:,} better, {worse:,} worse, {len(compared.rows) - better - worse:,} equal"


def export(compared: ComparedRuns, kind: str) -> Response:
    """Return a comparison as a file: "csv" or "json"."""
    if compared.comparison is None:
        raise WrongUse("the systems are still answering the questions; try again in a moment")
    if kind == "json":
        rows = [{"query": row.id, "text": row.text, "judged": row.judged, **row.values}
                for row in compared.rows]  # fmt: skip
        text = msgspec.json.encode({**compared.comparison.to_dict(), "queries": rows}).decode()
    else:
        cells = records(compared.comparison)
        head = list(dict.fromkeys(name for cell in cells for name in cell))
        text = csv_of(head, ([cell.get(name, "") for name in head] for cell in cells))
    return download(f"runs.{kind}", text)


def export_run(service: ServedCollection, wanted: CompareRequest) -> Response:
    """Return the run of one system over the judged questions."""
    if len(wanted.names) != 1:
        raise WrongUse(f"{len(wanted.names)} systems were named; a run file holds one, so name one")
    name = wanted.names[0]
    run: Run | None = service.runs.get(name)
    if run is None:
        qrels = service.known_qrels()
        judged = [query for query in service.known_queries() if qrels.get(query.id)]
        run = service.system_runs.finished(name, judged, wanted.index, patience=60.0).run
    if run is None:
        raise WrongUse(f'"{name}" is still answering the questions; try again in a moment')
    return download(f"{name}.run", trec_run(run, name))
