"""How an answer writes numbers: the same digits in sentences, tables and pages."""

from __future__ import annotations


def signed(value: float) -> str:
    """Write an addend: its sign, and four digits after the point or, where it is small, two that count."""
    if value == 0:
        return "0"
    return f"{value:+.4f}" if abs(value) >= 0.01 else f"{value:+#.2g}"


def number(value: float) -> str:
    """Write a score: four digits after the point or, where it is small, four that count."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.1 else f"{value:#.4g}"


def brief(written: str) -> str:
    """Return a written number as a sentence says it, without zeros at its end."""
    return written.rstrip("0").rstrip(".") if "." in written and "e" not in written else written
