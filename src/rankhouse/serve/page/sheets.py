"""Tables as CSV, which spreadsheets open."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Final

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_of(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV.

    A text that a spreadsheet would take for a formula, and compute, has an apostrophe before it; who wants
    texts as they are takes JSON.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_harmless(cell) for cell in row] for row in rows)
    return out.getvalue()


def _harmless(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
