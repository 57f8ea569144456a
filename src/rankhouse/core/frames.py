"""Rows as an HTML table for notebooks, and as a pandas DataFrame where pandas is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from rankhouse.core.errors import RankhouseError, WrongUse

if TYPE_CHECKING:
    import pandas as pd


SHOWN = 20
"""Rows of a long result that a notebook shows."""


def more(rest: int) -> str:
    """Return HTML that says how many rows of a result are not shown; "" for none."""
    return f"<p>... and {rest:,} more; to_frame() has all of them</p>" if rest > 0 else ""


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


def columns_of(table: pd.DataFrame, *names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a DataFrame as tuples of the columns wanted, each under one of its names.

    Whole numbers become texts in all columns but the last: pandas reads the ids of a file as numbers. Raises
    WrongUse where a column is not there.
    """
    there = list(map(str, table.columns))
    found = [next((name for name in known if name in there), None) for known in names]
    if None in found:
        missing = " or ".join(f'"{name}"' for name in names[found.index(None)])
        raise WrongUse(
            f"the data frame has no column {missing}; its columns are {', '.join(there) or 'none'}"
        )
    *ids, last = (table[name].to_list() for name in found)
    return zip(*(list(map(as_id, column)) for column in ids), last, strict=True)


def as_id(value: object) -> object:
    """Return a whole number as the text that it was in a file; anything else as it is."""
    return str(value) if type(value) is int else value
