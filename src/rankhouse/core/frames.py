"""Rows as an HTML table for notebooks, and as a pandas DataFrame where pandas is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from rankhouse.core.errors import RankhouseError

if TYPE_CHECKING:
    import pandas as pd


def html_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    is_text: Sequence[bool] = (),
    *,
    styled: bool = True,
) -> str:
    """Return an HTML table; columns of text are set to the left (class "name")."""
    left = ' class="name" style="text-align:left"' if styled else ' class="name"'
    kinds = [left if name else "" for name in is_text] or [""] * len(columns)
    heads = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, columns, strict=True))
    lines = [
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>\n"
        for row in rows
    ]
    return f"<table><thead><tr>{heads}</tr></thead><tbody>\n{''.join(lines)}</tbody></table>"


def frame(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> pd.DataFrame:
    """Return a pandas DataFrame of these columns, also an empty one; other keys are left out."""
    try:
        import pandas as pd  # noqa: PLC0415 - optional, and slow to load
    except ImportError as error:
        raise RankhouseError("to_frame() needs pandas: run  pip install pandas") from error
    return pd.DataFrame(list(rows), columns=list(columns))
