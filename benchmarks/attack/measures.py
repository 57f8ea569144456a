"""Measures times judgements, each in its own process: values that are right, or an error, never a crash."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .calls import call
from .verdicts import RIGHT, Trial, Verdict, breakdown

MEASURES = (
    "AP", "AP@10", "AP(rel=2)", "AP(rel=2147483647)", "AP(judged_only=True)", "Bpref", "Bpref(rel=3)",
    "Bpref(rel=2147483647)", "P@5", "P(rel=3)@5", "P@2147483647", "RR", "RR@10", "RR@2147483647", "Rprec",
    "R@10", "nDCG", "nDCG@10", "nDCG@2147483647", "nDCG(judged_only=True)@5", "nDCG(gains={0:1,1:3})@5",
    "nDCG(gains={1:99999})", "nDCG(dcg='exp-log2')@10", "ERR@10", "ERR@2147483647", "SetAP", "SetF",
    "SetF(beta=0)", "SetF(beta=2)", "SetF(beta=1e-7)", "SetP", "SetRelP", "SetR", "Success@5", "IPrec@0.1",
    "IPrec@1.0", "infAP", "NumRet", "NumRelRet", "Judged@10", "Judged", "Compat", "Compat(p=0.8)",
)  # fmt: skip
GRADES = (
    -(2**63) - 1,
    -(2**31),
    -5,
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    9_999,
    10_001,
    300_000,
    2**31 - 1,
    2**31,
    2**63,
)
USUAL = (-2, -1, 0, 1, 2, 3)
IDS = ("a", "b", "c", "d", "e", "f")
ODD_IDS = ("", " ", "a b", "a\0b", "a\0c", "\ud800", "é", "\n", "-0", "none", "0", "x" * 5_000)
_TRIALS, _SECONDS = 2_600, 20.0

Grades = Mapping[str, int]


def trials(seed: int) -> Iterator[Trial]:
    """Return drawn combinations of one to three measures, one to three questions, and odd ids in a few."""
    import rankhouse as rh

    rh.evaluate({"q": {"a": 1.0}}, {"q": {"a": 1}}, "AP")  # loaded once, before trials are forked
    for number in range(_TRIALS):
        rng = random.Random(f"{seed}-measures-{number}")
        names = rng.sample(MEASURES, rng.choice((1, 1, 2, 3)))
        yield Trial(
            f"{' '.join(names)}, judgements {number} by seed {seed}",
            lambda f, n=names, r=rng: _measure(f, n, r),
        )


def _measure(folder: Path, names: Sequence[str], rng: random.Random) -> Verdict:
    ids = rng.sample((*IDS, *ODD_IDS), 6) if rng.random() < 0.3 else list(IDS)
    grades = rng.choice((USUAL, USUAL, GRADES, (-1,), (-2, -5), (0,), (1, 2**31 - 1)))
    qrels = {
        f"q{q}": {doc_id: rng.choice(grades) for doc_id in rng.sample(ids, rng.randint(1, 5))}
        for q in range(rng.randint(1, 3))
    }
    run = {
        query_id: {
            doc_id: float(rng.choice((1, 2, 3, 1e30))) for doc_id in rng.sample(ids, rng.randint(1, 6))
        }
        for query_id in qrels
    }
    done = call((), folder, _SECONDS, before=lambda: _say(names, run, qrels))
    if (broken := breakdown(done)) is not None:
        return broken
    if done.code != 0:
        return RIGHT if done.err.strip() else Verdict("wrong", f"exit code {done.code} without a message")
    return _judged(json.loads(done.out), run, qrels)


def _say(names: Sequence[str], run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]]) -> None:
    """Print the values of every question, or the error."""
    import rankhouse as rh

    try:
        print(json.dumps(rh.evaluate(run, qrels, names).per_query))
    except rh.RankhouseError as error:
        print(error.__class__.__name__, str(error).encode(errors="replace"), file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(0)


def _judged(
    found: dict[str, dict[str, float]], run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Grades]
) -> Verdict:
    """Compare what can be said without trec_eval: bounds, and the plain definitions of some measures."""
    for query_id, values in found.items():
        scores = run[query_id]
        ranked = [doc_id for _, doc_id in sorted(((s, d) for d, s in scores.items()), reverse=True)]
        for name, value in values.items():
            right = _defined(name, ranked, qrels[query_id])
            bounded = name.startswith("Num") or 0 <= value <= 1 + 1e-9
            if not math.isfinite(value) or not bounded or (right is not None and abs(value - right) > 1e-6):
                return Verdict("wrong", f"{name} of {query_id} is {value}, not {right}: {qrels[query_id]!a}")
    return RIGHT


def _defined(name: str, ranked: Sequence[str], grades: Grades) -> float | None:
    """Return a measure by its definition; None for those that are not simple."""
    relevant = {d for d, grade in grades.items() if grade >= 1}
    hits = [d in relevant for d in ranked]
    if name == "NumRet":
        return float(len(ranked))
    if not relevant and "gains" not in name and not name.startswith("Judged"):
        return 0.0
    match name:
        case "AP":
            places = [rank for rank, hit in enumerate(hits, 1) if hit]
            return sum(n / rank for n, rank in enumerate(places, 1)) / len(relevant)
        case "P@5":
            return sum(hits[:5]) / 5
        case "RR" | "RR@10":
            return 1 / (1 + hits.index(True)) if any(hits) else 0.0
        case "SetR" | "R@10":
            return sum(hits) / len(relevant)
        case "nDCG@10" | "nDCG":
            gained = [max(0, grades.get(d, 0)) for d in ranked]
            best = sorted((max(0, grade) for grade in grades.values()), reverse=True)
            return _discounted(gained) / _discounted(best)
    return None


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
