"""How far two judges agree beyond chance.

With n pairs graded by both, p_ij the share graded i by the first and j by the second, and w_ij how much such
a pair counts as disagreement:

    kappa = 1 - sum(w_ij p_ij) / sum(w_ij p_i. p_.j)

w_ij = 1 for i != j gives Cohen's kappa (1960), w_ij = (i - j)^2 the weighted one (Cohen 1968), in which the
next grade is a small disagreement.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping


def cohens_kappa(counts: Mapping[tuple[int, int], int], power: int = 0) -> float:
    """Return kappa of counted pairs of grades; NaN where chance leaves no disagreement."""
    n = sum(counts.values())
    rows, columns = Counter[int](), Counter[int]()
    for (a, b), count in counts.items():
        rows[a] += count
        columns[b] += count
    seen = sum(abs(a - b) ** power * count for (a, b), count in counts.items() if a != b)
    chance = sum(abs(a - b) ** power * x * y for a, x in rows.items() for b, y in columns.items() if a != b)
    return (chance - seen * n) / chance if chance else math.nan  # whole numbers up to the division
