"""Report of a labelling: tables as plain data, records for JSON, a page of HTML with pictures.

Tables need nothing but this package; the page needs the extra ``report``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from rankhouse.core.errors import name_few
from rankhouse.labels.agreement import Agreement, Histogram
from rankhouse.labels.label import LabelResult
from rankhouse.page.charts import DASHED, Palette, inline, on_axes, reliability_diagram
from rankhouse.page.html import write_page
from rankhouse.page.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def histogram_chart(histogram: Histogram) -> str:
    """Draw how many pairs have which score, relevant ones by the reference on top, and the threshold."""

    def draw(axes: Axes, colours: Palette) -> None:
        edges, no, yes = np.array(histogram.edges), np.array(histogram.no), np.array(histogram.yes)
        width = np.diff(edges)
        style: dict[str, Any] = {"align": "edge", "linewidth": 0}
        if not histogram.reference:
            axes.bar(edges[:-1], no, width, color=colours.muted, **style)
        else:
            axes.bar(edges[:-1], no, width, color=colours.loss, label="not relevant", **style)
            axes.bar(edges[:-1], yes, width, no, color=colours.gain, label="relevant", **style)
            named = f"by the {histogram.reference}"  # "best" is sought by time, with a warning after a second
            legend = axes.legend(
                title=named, loc="upper right", labelcolor=colours.muted, frameon=False, fontsize=8
            )
            legend.get_title().set(color=colours.muted, fontsize=8)
        if edges[0] <= histogram.threshold <= edges[-1]:
            axes.axvline(histogram.threshold, color=colours.ink, linewidth=0.9, linestyle=DASHED)
        margin = 0.02 * (edges[-1] - edges[0])
        axes.set_xlim(edges[0] - margin, edges[-1] + margin)
        axes.set_ylim(0, 1.08 * max(1, (no + yes).max()))
        axes.set_xlabel(f"{histogram.scale} given by the teacher (dashed: threshold {histogram.threshold:g})")
        axes.set_ylabel("pairs")
        _whole_numbers(axes)

    return inline(on_axes(draw), "histogram")


def positives_chart(positives: Mapping[str, int]) -> str:
    """Draw how many queries have how many relevant pairs."""

    def draw(axes: Axes, colours: Palette) -> None:
        groups = grouped(positives)
        heights = [count for _, count in groups]
        bars = [colours.loss if name == "0" else colours.gain for name, _ in groups]
        axes.bar(range(len(groups)), heights, 0.8, color=bars, linewidth=0)
        style: dict[str, Any] = {"ha": "center", "va": "bottom", "color": colours.muted, "fontsize": 8}
        for place, height in enumerate(heights):
            axes.annotate(f"{height:,}", (place, height), (0, 2), textcoords="offset points", **style)
        axes.set_xticks(range(len(groups)), [name for name, _ in groups])
        axes.margins(y=0.12)
        axes.set_xlabel("relevant pairs of a query")
        axes.set_ylabel("queries")
        _whole_numbers(axes)

    return inline(on_axes(draw), "positives")


def grouped(positives: Mapping[str, int]) -> list[tuple[str, int]]:
    """Count queries by their relevant pairs: 0 to 5 one by one, then in doubling ranges."""
    counts = np.bincount(np.fromiter(positives.values(), np.int64, len(positives)), minlength=6)
    groups = [(str(n), int(counts[n])) for n in range(6)]
    first = 6
    while first < len(counts):
        last = 10 if first == 6 else 2 * (first - 1)
        groups.append((f"{first}-{last}", int(counts[first : last + 1].sum())))
        first = last + 1
    return groups


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter  # noqa: PLC0415 - optional, slow to load

    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


_TEMPLATE = Path(__file__).parent / "templates" / "labels.html.j2"


def work_table(labelling: LabelResult) -> Table:
    """Return one row a count: pairs looked at, asked about, written; what was missing."""
    rows = (
        ("queries", f"{labelling.queries:,}"),
        ("pairs looked at", f"{labelling.pairs:,}"),
        ("pairs read by the teacher", f"{labelling.asked:,}"),
        ("relevant pairs written", f"{labelling.relevant:,}"),
        ("negatives written", f"{labelling.non_relevant:,}"),
        ("pairs written with a score", f"{labelling.scored:,} on the scale {labelling.scale}"),
        ("non-relevant pairs to choose them from", f"{labelling.pool:,}"),
        ("neither: doubtful pairs", f"{labelling.pairs - labelling.relevant - labelling.pool:,}"),
        ("relevant documents that are not in the run", f"{labelling.missed:,}"),
        ("rows without document", f"{labelling.unknown:,}"),
        ("rows without text", f"{labelling.without_text:,}"),
    )
    kept = tuple(row for row in rows if labelling.scale or not row[0].endswith("with a score"))
    return Table(("labelling", ""), kept, legend=f"{labelling.rule}; negatives {labelling.negatives}")


def confusions_table(agreement: Agreement) -> Table:
    """Return one row a comparison: the four counts, agreement, Cohen's kappa, precision and recall."""
    rows = tuple(
        (
            f"{c.first} : {c.second}",
            *(f"{n:,}" for n in (c.both, c.only_first, c.only_second, c.neither)),
            *map(_number, agreement.rates(c).values()),
        )
        for c in agreement.confusions
    )
    counts, rates = ("both", "only first", "only second", "neither"), ("agreement", "kappa")
    legend = "Precision and recall measure the second by the first."
    if agreement.within_judge:
        legend += (
            " The teacher was asked only where the judge said yes, so what it would add elsewhere, and with "
            "it their kappa, is not known; ask it about every pair (--ask-all) to see it."
        )
    return Table(("compared", *counts, *rates, "precision", "recall"), rows, legend=legend)


def positives_table(agreement: Agreement) -> Table:
    """Return one row a fact about relevant pairs per query."""
    counts = list(agreement.positives.values())
    without = agreement.without
    rows = (
        ("queries", f"{len(counts):,}", ""),
        ("queries left without any", f"{len(without):,}", name_few(without, 10)),
        ("fewest", f"{min(counts, default=0):,}", ""),
        ("median", f"{median(counts) if counts else 0:g}", ""),
        ("mean", f"{agreement.relevant / len(counts) if counts else 0:.2f}", ""),
        ("most", f"{max(counts, default=0):,}", ""),
    )
    return Table(("relevant pairs of a query", "", ""), rows)


def changes_table(agreement: Agreement, kind: str) -> Table:
    """Return one row a pair that was "removed" or "added", clearest first, with its texts."""
    with_truth = bool(agreement.truth)
    columns = ("query", "document", "passage", "text", "score", *(("truly",) if with_truth else ()))
    rows = tuple(
        (
            change.pair.query.text,
            change.pair.passage.doc_id,
            str(change.pair.passage.index),
            change.pair.passage.text,
            _number(change.score),
            *(("relevant" if change.truth else "not relevant",) if with_truth else ()),
        )
        for change in agreement.changes
        if change.kind == kind
    )
    total = agreement.removed if kind == "removed" else agreement.added
    return Table(columns, rows, legend=f"{len(rows):,} of {total:,}")


def record(agreement: Agreement) -> dict[str, Any]:
    """Return everything as plain values for JSON; what is unknowable (NaN) is None."""
    data = agreement._asdict()
    data |= {
        "relevant": agreement.relevant,
        "queries_without": agreement.without,
        "positives": dict(agreement.positives),
    }
    data["confusions"] = [c._asdict() | {"pairs": c.pairs} | agreement.rates(c) for c in agreement.confusions]
    data["histogram"] = agreement.histogram and agreement.histogram._asdict()
    data["calibration"] = agreement.calibration and agreement.calibration._asdict() | {
        "error": agreement.calibration.error
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
        for change in agreement.changes
    ]
    plain: dict[str, Any] = _plain(data)
    return plain


def labelling_record(labelling: LabelResult) -> dict[str, Any]:
    """Return a labelling as plain values for JSON, its agreement among them."""
    return labelling._asdict() | {"out": str(labelling.out), "agreement": record(labelling.agreement)}


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def write_report(result: LabelResult | Agreement, path: Path | str, title: str = "Labels") -> None:
    """Write a page that stands alone: tables, pictures, changed pairs; no link and no script.

    Errors as of :func:`rankhouse.page.html.write_page`.
    """
    labelling = result if isinstance(result, LabelResult) else None
    agreement = result.agreement if isinstance(result, LabelResult) else result
    content = {
        "title": title,
        "agreement": agreement,
        "work": work_table(labelling) if labelling else None,
        "negatives": labelling.negatives if labelling else "",
        "confusions": confusions_table(agreement),
        "positives": positives_table(agreement).select(range(2)),
        "changes": [(kind, changes_table(agreement, kind)) for kind in ("removed", "added")]
        if agreement.judge
        else [],
        "charts": _charts(agreement),
    }
    write_page(_TEMPLATE, content, path)


def _charts(agreement: Agreement) -> list[tuple[str, str, str]]:
    """Return (heading, note, SVG) of every picture there is something to draw for."""
    without = len(agreement.without)
    note = f"{without:,} of {len(agreement.positives):,} queries are left without any relevant pair."
    charts = [("Relevant pairs per query", note, positives_chart(agreement.positives))]
    if agreement.histogram is not None and agreement.asked:
        note = f"{agreement.asked:,} pairs were read by the teacher; it says yes to {agreement.accepted:,}."
        charts.append(("Scores of the teacher", note, histogram_chart(agreement.histogram)))
    if (table := agreement.calibration) is not None:
        note = (
            f"On the dashed line the teacher's probabilities come true by the {table.reference}. "
            f"Expected calibration error {table.error:.3f}."
        )
        predicted_by = "probability given by the teacher (mean of each tenth)"
        diagram = reliability_diagram([("", table)], predicted_by, f"share relevant by the {table.reference}")
        charts.append(("Calibration of the teacher", note, inline(diagram, "calibration")))
    return charts


def _number(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.4f}"
