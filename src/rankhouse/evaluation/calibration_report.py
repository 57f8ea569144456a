"""What a calibration is worth, for people: a table, a record for JSON, a figure, a page (extra: report)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rankhouse.core.reliability import Reliability
from rankhouse.evaluation.calibration import CalibrationResult, Goodness
from rankhouse.evaluation.significance import Interval
from rankhouse.page.charts import Draw, inline, write
from rankhouse.page.html import write_page
from rankhouse.page.reliability_chart import reliability_diagram
from rankhouse.page.tables import Table

_TEMPLATE = Path(__file__).parent / "templates" / "calibration.html.j2"
_LEGEND = "In brackets: 95 % intervals, from queries drawn anew. Lower is better."


def goodness_table(result: CalibrationResult) -> Table:
    """Return one row for each kind of probabilities: calibration error, Brier score, log loss."""
    rows = tuple(
        (one.name, *(_number(value) for value in (one.error, one.brier, one.log_loss)))
        for one in result.goodness
    )
    columns = ("probabilities", "calibration error", "Brier score", "log loss")
    return Table(columns, rows, legend=_LEGEND)


def bins_table(reliability: Reliability) -> Table:
    """Return one row for each tenth of probability in which there are pairs."""
    rows = tuple(
        (f"{i / 10:.1f} to {(i + 1) / 10:.1f}", f"{n:,}", f"{predicted:.4f}", f"{observed:.4f}")
        for i, (n, predicted, observed) in enumerate(zip(*reliability[1:], strict=True))
        if n
    )
    return Table(("probability", "pairs", "mean", "relevant"), rows)


def calibration_record(result: CalibrationResult) -> dict[str, Any]:
    """Return everything as plain values for JSON."""
    rows = [
        {
            "name": one.name,
            "calibration_error": one.error._asdict(),
            "brier": one.brier._asdict(),
            "log_loss": one.log_loss._asdict(),
            "bins": [
                {"pairs": n, "predicted": None if not n else p, "observed": None if not n else o}
                for n, p, o in zip(*one.reliability[1:], strict=True)
            ],
        }
        for one in result.goodness
    ]
    return result._asdict() | {"scale": str(result.scale), "goodness": rows}


def write_figure(result: CalibrationResult, path: Path | str) -> None:
    """Draw the reliability diagram into a PNG or SVG file.

    Args:
        result: What was fitted.
        path: A .png or .svg file.

    Raises:
        WrongUse: Another suffix.
        MissingExtra: matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    write(_diagram(result), path, "calibration")


def write_report(result: CalibrationResult, path: Path | str, title: str = "Calibration") -> None:
    """Write a page that stands alone: the fitted scale, what it is worth, the reliability diagram.

    Args:
        result: What was fitted.
        path: The HTML file.
        title: Its heading.

    Raises:
        MissingExtra: jinja2 or matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    fitted: Goodness = result.goodness[-1]
    content = {
        "title": title,
        "result": result,
        "goodness": goodness_table(result),
        "bins": bins_table(fitted.reliability),
        "chart": inline(_diagram(result), "calibration"),
    }
    write_page(_TEMPLATE, content, path)


def _diagram(result: CalibrationResult) -> Draw:
    """Return what draws the ranker's own probabilities, where it has some, and the fitted ones."""
    tables = [(one.name, one.reliability) for one in result.goodness[1:]]
    return reliability_diagram(tables, "probability (mean of each tenth)", "share relevant by the judgements")


def _number(value: Interval) -> str:
    if np.isnan(value.low):
        return f"{value.mean:.4f}"
    return f"{value.mean:.4f} [{value.low:.4f}, {value.high:.4f}]"
