"""What labelling did, for people: tables as plain data, records for JSON, a page of HTML with pictures.

Tables need nothing but this package; the page needs the extra ``report``.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import Any

from rankhouse.labels.agreement import Agreement, Change
from rankhouse.labels.charts import calibration_chart, histogram_chart, positives_chart
from rankhouse.labels.label import Labelling
from rankhouse.page.html import write_page
from rankhouse.page.tables import Table

_TEMPLATE = Path(__file__).parent / "templates" / "labels.html.j2"


def work_table(done: Labelling) -> Table:
    """Return one row a count: pairs looked at, asked about, written; what was missing."""
    rows = (
        ("queries", f"{done.queries:,}"),
        ("pairs looked at", f"{done.pairs:,}"),
        ("pairs read by the teacher", f"{done.asked:,}"),
        ("relevant pairs written", f"{done.relevant:,}"),
        ("negatives written", f"{done.non_relevant:,}"),
        ("non-relevant pairs to choose them from", f"{done.pool:,}"),
        ("neither: doubtful pairs", f"{done.pairs - done.relevant - done.pool:,}"),
        ("relevant documents that are not in the run", f"{done.missed:,}"),
        ("rows without document", f"{done.unknown:,}"),
        ("rows without text", f"{done.without_text:,}"),
    )
    return Table(("labelling", ""), rows, legend=f"{done.rule}; negatives {done.negatives}")


def confusions_table(found: Agreement) -> Table:
    """Return one row a comparison: the four counts, agreement, Cohen's kappa, precision and recall."""
    columns = (
        "compared",
        "both",
        "only first",
        "only second",
        "neither",
        "agreement",
        "kappa",
        "precision",
        "recall",
    )
    rows = tuple(
        (
            f"{c.first} : {c.second}",
            *(f"{n:,}" for n in (c.both, c.only_first, c.only_second, c.neither)),
            *map(_number, found.rates(c).values()),
        )
        for c in found.confusions
    )
    return Table(columns, rows, legend=_legend(found))


def positives_table(found: Agreement) -> Table:
    """Return one row a fact about relevant pairs per query."""
    counts = list(found.positives.values())
    without = found.without
    named = ", ".join(without[:10]) + (" ..." if len(without) > 10 else "")
    rows = (
        ("queries", f"{len(counts):,}", ""),
        ("queries left without any", f"{len(without):,}", named),
        ("fewest", f"{min(counts, default=0):,}", ""),
        ("median", f"{median(counts) if counts else 0:g}", ""),
        ("mean", f"{found.relevant / len(counts) if counts else 0:.2f}", ""),
        ("most", f"{max(counts, default=0):,}", ""),
    )
    return Table(("relevant pairs of a query", "", ""), rows)


def changes_table(found: Agreement, kind: str) -> Table:
    """Return one row a pair that was "removed" or "added", clearest first, with its texts."""
    with_truth = bool(found.truth)
    columns = ("query", "document", "passage", "text", "score", *(("truly",) if with_truth else ()))
    rows = tuple(
        (
            change.pair.query.text,
            change.pair.passage.doc_id,
            str(change.pair.passage.index),
            change.pair.passage.text,
            _number(change.score),
            *((_truth(change),) if with_truth else ()),
        )
        for change in found.changes
        if change.kind == kind
    )
    total = found.removed if kind == "removed" else found.added
    return Table(columns, rows, legend=f"{len(rows):,} of {total:,}")


def record(found: Agreement) -> dict[str, Any]:
    """Return everything as plain values for JSON; what is unknowable (NaN) is None."""
    data = found._asdict()
    data |= {"relevant": found.relevant, "queries_without": found.without, "positives": dict(found.positives)}
    data["confusions"] = [c._asdict() | {"pairs": c.pairs} | found.rates(c) for c in found.confusions]
    data["histogram"] = found.histogram and found.histogram._asdict()
    data["calibration"] = found.calibration and found.calibration._asdict() | {
        "error": found.calibration.error
    }
    data["changes"] = [
        {
            "kind": change.kind,
            "query_id": change.pair.query.id,
            "query": change.pair.query.text,
            "doc_id": change.pair.passage.doc_id,
            "passage": change.pair.passage.index,
            "text": change.pair.passage.text,
            "score": change.score,
            "truth": change.truth,
        }
        for change in found.changes
    ]
    plain: dict[str, Any] = _plain(data)
    return plain


def labelling_record(done: Labelling) -> dict[str, Any]:
    """Return a labelling as plain values for JSON, its agreement among them."""
    data = done._asdict() | {"out": str(done.out), "agreement": record(done.agreement)}
    plain: dict[str, Any] = _plain(data)
    return plain


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def write_report(done: Labelling | Agreement, path: Path | str, title: str = "Labels") -> None:
    """Write a page that stands alone: tables, pictures, changed pairs; no link and no script.

    Args:
        done: A labelling, or only an agreement.
        path: The HTML file.
        title: Its heading.

    Raises:
        MissingExtra: jinja2 or matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    found = done.agreement if isinstance(done, Labelling) else done
    content = {
        "title": title,
        "found": found,
        "work": work_table(done) if isinstance(done, Labelling) else None,
        "negatives": done.negatives if isinstance(done, Labelling) else "",
        "confusions": confusions_table(found),
        "positives": positives_table(found).select(range(2)),
        "changes": [(kind, changes_table(found, kind)) for kind in ("removed", "added")]
        if found.judge
        else [],
        "charts": _charts(found),
    }
    write_page(_TEMPLATE, content, path)


def _charts(found: Agreement) -> list[tuple[str, str, str]]:
    """Return (heading, note, SVG) of every picture there is something to draw for."""
    without = len(found.without)
    note = f"{without:,} of {len(found.positives):,} queries are left without any relevant pair."
    charts = [("Relevant pairs per query", note, positives_chart(found.positives))]
    if found.histogram is not None and found.asked:
        note = f"{found.asked:,} pairs were read by the teacher; it says yes to {found.accepted:,}."
        charts.append(("Scores of the teacher", note, histogram_chart(found.histogram)))
    if found.calibration is not None:
        note = (
            f"On the dashed line the teacher's probabilities come true by the {found.calibration.reference}. "
            f"Expected calibration error {found.calibration.error:.3f}."
        )
        charts.append(("Calibration of the teacher", note, calibration_chart(found.calibration)))
    return charts


def _legend(found: Agreement) -> str:
    said = "Precision and recall measure the second by the first."
    if found.within_judge:
        said += (
            " The teacher was asked only where the judge said yes, so what it would add elsewhere, and with "
            "it their kappa, is not known; ask it about every pair (--ask-all) to see it."
        )
    return said


def _truth(change: Change) -> str:
    return "relevant" if change.truth else "not relevant"


def _number(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.4f}"
