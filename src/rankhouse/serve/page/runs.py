"""Runs: systems and runs compared on judged questions, with significance, and where they differ most."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.evaluation.compare import Comparison
from rankhouse.evaluation.measure_notation import parse
from rankhouse.evaluation.report import differences_table, means_table, records
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.compare import (
    MEASURES,
    MOST_COMPARED,
    CompareRequest,
    CompareResponse,
    comparable,
    compare_runs,
)
from rankhouse.serve.judging.runs import trec_run
from rankhouse.serve.page.curves import Chart, lines_chart
from rankhouse.serve.page.render import Line, address, csv_of, download, fault_page, page

_ROWS = 100
_FEW_QUESTIONS = 3
_PATIENCE = 60.0
"""Seconds that the download of a run waits for it."""
_Test = Literal["randomization", "t"]
_Correction = Literal["holm", "bonferroni", "none"]


class RunsFields(Struct):
    """Systems to compare, settings of the comparison, and the form of the answer."""

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
    chosen = sorted(asked.system, key=lambda name: name != asked.baseline)
    wanted = CompareRequest(
        tuple(chosen), asked.measures, asked.test, asked.correction, index=view.name, against=asked.versus
    )
    if asked.export == "run":
        return export_run(service, wanted)
    content = _form(service, wanted)
    if not chosen:
        return page(request, "runs.html.j2", content)
    try:
        parse(wanted.measures)  # before systems are asked for nothing
        result, comparison = compare_runs(service, wanted)
    except RankhouseError as error:  # the form stays, with what is wrong
        failed = fault_page(request, error)
        return page(request, "runs.html.j2", content | {"notes": (str(error),)}, failed.status_code)
    if asked.export != "html":
        return export(result, comparison, asked.export)
    content |= {"notes": result.notes, "progress": result.progress, "is_going": not result.notes}
    if comparison is not None:
        content |= _shown(service, request, wanted, result=result, comparison=comparison)
    return page(request, "runs.html.j2", content)


def _form(service: ServedCollection, wanted: CompareRequest) -> dict[str, object]:
    known, runs = comparable(service, wanted.index), service.runs
    return {
        "title": "Compare runs",
        "wanted": wanted,
        "runs": list(runs),
        "systems": [name for name in dict.fromkeys([*known, *wanted.names]) if name not in runs],
        "chosen": wanted.names,
        "index": wanted.index,
        "baselines": [("", "First selected"),
                      *((name, f"{name} (run)" if name in runs else name) for name in known)],
        "tests": [(name, {"t": "Paired t-test"}.get(name, name.capitalize())) for name in get_args(_Test)],
        "corrections": [(name, name.capitalize()) for name in get_args(_Correction)],
        "judged": sum(1 for said in service.known_qrels().values() if said),
        "notes": (), "comparison": None, "progress": (),
    }  # fmt: skip


def _shown(
    service: ServedCollection, request: Request, wanted: CompareRequest, result: CompareResponse,
    comparison: Comparison,
) -> dict[str, object]:  # fmt: skip
    given, systems = request.query_params.multi_items(), service.catalogue.systems(wanted.index)
    rest = [(name, value) for name, value in given if name not in ("export", "versus")]
    signs = Counter((one.difference > 0) - (one.difference < 0) for one in result.queries)
    return {
        "comparison": comparison,
        "means": means_table(comparison),
        "differences": differences_table(comparison) if comparison.challengers else None,
        "pair": wanted.pair,
        "versus": [(name, address("/runs", *rest, versus=name)) for name in comparison.challengers],
        "rows": result.queries[:_ROWS],
        "largest": max((abs(row.difference) for row in result.queries), default=0.0) or 1.0,
        "more": max(0, len(result.queries) - _ROWS),
        "counts": f"{signs[1]:,} better, {signs[-1]:,} worse, {signs[0]:,} equal",
        "profile": profile(result),
        "columns": [name for name in wanted.pair if name in systems],
    }


def profile(result: CompareResponse) -> Chart | None:
    """Return each run's values of the first measure from its best question to its worst; None for few."""
    if len(result.queries) < _FEW_QUESTIONS:
        return None
    curves = {
        name: list(enumerate(sorted((row.values[name] for row in result.queries), reverse=True), 1))
        for name in result.queries[0].values
    }
    sentence = f"{result.measure} of each run, its questions ordered from best to worst"
    return lines_chart(curves, sentence, first=1, place="Place {}", form=".2f", dots=False)


def export(result: CompareResponse, comparison: Comparison | None, kind: str) -> Response:
    """Return a comparison as a file: "csv" or "json"."""
    if comparison is None:
        raise WrongUse("the systems are still answering the questions; try again in a moment")
    if kind == "json":
        rows = [{"query": row.id, "text": row.text, "judged": row.judged, **row.values}
                for row in result.queries]  # fmt: skip
        text = msgspec.json.encode({**comparison.to_dict(), "queries": rows}).decode()
    else:
        cells = records(comparison)
        head = list(dict.fromkeys(name for cell in cells for name in cell))
        text = csv_of(head, ([cell.get(name, "") for name in head] for cell in cells))
    return download(f"runs.{kind}", text)


def export_run(service: ServedCollection, wanted: CompareRequest) -> Response:
    """Return the run of one system over the judged questions."""
    if len(wanted.names) != 1:
        raise WrongUse(f"{len(wanted.names)} systems were named; a run file holds one, so name one")
    name, qrels = wanted.names[0], service.known_qrels()
    judged = [query for query in service.known_queries() if qrels.get(query.id)]
    run = service.run(name, judged, wanted.index, patience=_PATIENCE)
    return download(f"{name}.run", trec_run(run, name))
