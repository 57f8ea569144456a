"""How much does a weight lose that nobody's judgements chose, and which rule loses least?

    python -m benchmarks.weights curves ../shared/data WORK [--data scifact ...] [--sums tk] [--steps 200]
    python -m benchmarks.weights table ../shared/data WORK [--data ...] [--sums ...]
    python -m benchmarks.weights seeds ../shared/data WORK --seeds 0 1 2 [--data ...] [--sums ...]

Sums of z-scores with BM25 (k1=0.9, b=0.4): ``tk``, a TK taught by all-MiniLM with ``rankhouse adapt``, and
``reranked``, all-MiniLM itself, which both rerank BM25's first 100, as ``adapt`` joins them; ``hybrid``,
all-MiniLM over the whole index. ``curves`` computes nDCG@10 of every question at the weights 0, 0.1 ... 1 of
TK or all-MiniLM: of people's judged questions, and of 400 pseudo-queries that were not learned. Relevant to
these are the question's own document ("own"), the three documents that the teacher prefers ("three"), or its
first 20 graded by its scores ("graded"). The teacher is all-MiniLM, that of the hybrid the sum with .7.
Curves are kept in WORK, and not computed again.

``table`` applies rules to these curves and prints the regret of each: nDCG@10 of the best of eleven weights
on people's questions less that of the chosen one. Rules that learn from other collections leave this one out
("prior": the mean of the others' curves of people's questions). Where pseudo-queries are "drawn", the mean
over 200 draws is printed. Judged questions of the collection are drawn as often, and what is lost is measured
on those that were not drawn, beside the weight that is best for all.

``seeds`` prints what ``adapt``'s rule loses with the questions of several seeds, each drawn by its own
(``curves --seeds``), and an interval of the mean: 95 % of 2,000 samples of people's questions, with
replacement, the best weight found again in each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from benchmarks.taught import PASSAGES, PLACES, judgements
from numpy.typing import NDArray

import rankhouse as rh
from rankhouse.adaptation.options import AdaptJob
from rankhouse.adaptation.questions import Questions, questions
from rankhouse.core.progress import ignore
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import evaluate
from rankhouse.io.corpora import read_queries
from rankhouse.ranking.fuse import linear

Curves = NDArray[np.float64]
"""nDCG@10 of q questions at eleven weights, (q, 11); their mean is a curve, (11,)."""

DATA: Final = ("cranfield", "cacm", "trecqa", "wikiqa", "scifact", "nfcorpus", "vaswani", "dl20", "qmsum")
WORDS: Final = "bm25(k1=0.9, b=0.4)"
ENCODER: Final = 'biencoder("default")'
DENSE: Final = f"dense({ENCODER}, name='untaught')"
WEIGHTS: Final = [tenth / 10 for tenth in range(11)]
SUMS: Final = ("tk", "reranked", "hybrid")
PSEUDO: Final = ("own", "three", "graded")
DRAWS: Final = 200
HELD_OUT: Final = 400
SLOPES: Final = [twentieth / 20 for twentieth in range(21)]


def command(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "rankhouse", *map(str, words)], check=True)


def curves(given: Path, work: Path, chosen: argparse.Namespace) -> None:
    for data, name, seed in product(chosen.data, chosen.sums, chosen.seeds):
        kept = _file(work, name, data, seed)
        if kept.exists():
            continue
        kind = ("tk" if name == "tk" else "hybrid") + (f"-{seed}" if seed else "")
        path, out = work / data / "index", work / f"weights-{kind}" / data
        if not path.exists():
            texts = given / data / ("passages.jsonl.gz" if data in PASSAGES else "corpus.jsonl.gz")
            command("index", texts, "--out", path)
        if not (path / "vectors" / "untaught").exists():
            command("encode", "--index", path, "--ranker", ENCODER, "--name", "untaught")
        began, options = time.process_time(), {"questions": chosen.asked, "held_out": HELD_OUT}
        if name == "tk" and not (out / "adapted.json").exists():
            seldom = ("--set", f"validate_every={chosen.steps // 2}")
            spent = ("--steps", chosen.steps, "--questions", chosen.asked, "--held-out", HELD_OUT)
            fixed = ("--index", path, "--teacher", "default", "--out", out, "--seed", seed)
            command("adapt", *fixed, *spent, *seldom)
        job = AdaptJob(index=path, teachers=("default",), steps=chosen.steps, seed=seed, **options)
        with ExitStack() as stack:
            asked = questions(job.adaptation(out, {}, lambda _: ignore, stack))
        arrays = _curves_of(given, data, rh.Index.open(path), asked, name, out)
        kept.parent.mkdir(exist_ok=True)
        np.savez_compressed(kept, **arrays)
        shapes = {truth: len(array) for truth, array in arrays.items()}
        print(name, data, seed, shapes, f"{time.process_time() - began:.0f} s of the processor", flush=True)


def _file(work: Path, name: str, data: str, seed: int = 0) -> Path:
    """Return where the curves of a sum are kept."""
    return work / "weights" / (f"{name}-{data}-{seed}.npz" if seed else f"{name}-{data}.npz")


def _curves_of(
    given: Path, data: str, index: rh.Index, asked: Questions, name: str, out: Path
) -> dict[str, Curves]:
    """Return the curves of a sum, by what counts as relevant."""
    judged, side = judgements(given, data), PLACES.get(data, "")
    people = [query for query in read_queries(given / data / f"queries{side}.jsonl") if query.id in judged]
    held_out = [query for query in asked.queries if query.id in asked.first]
    found: dict[str, Curves] = {}
    for who, queries in (("people", people), ("pseudo", held_out)):
        words, dense = (
            rh.system(f"{model} % {k}").run(queries, index)
            for model, k in ((WORDS, 1000), (DENSE, 1000 if name == "hybrid" else len(index)))
        )
        found_by_words = [query for query in words if words[query].doc_ids]
        words, dense = words.restrict(found_by_words), dense.restrict(found_by_words)
        first = words.top(100)
        runs, teacher = (dense, words), linear("z-score")([dense, words], (0.7, 0.3))
        if name != "hybrid":
            teacher = student = _among(dense, first)
            if name == "tk":
                student = rh.rerank(
                    str(out), first, [query for query in queries if query.id in first], index, depth=100
                )
            runs = student, first
        truths = {"people": judged}
        if who == "pseudo":
            truths = {"own": asked.own, "three": _graded(teacher, 3), "graded": _graded(teacher, 20)}
        for truth, qrels in truths.items():
            found[truth] = _values(runs, {query: qrels[query] for query in first})
    return found


def _among(dense: Run, first: Run) -> Run:
    """Return what vectors say of a first stage's documents."""
    lists = first.to_dict()
    kept = {}
    for query, ids in lists.items():
        near = dense[query]
        kept[query] = {doc: float(s) for doc, s in zip(near.doc_ids, near.scores, strict=True) if doc in ids}
    return Run.of(kept)


def _graded(run: Run, count: int) -> Qrels:
    """Return the first documents of each ranking as relevant: of three by place, of more by the score."""
    graded = {}
    for query_id in run:
        best = run[query_id]
        scores = np.asarray(best.scores[: count + 1], np.float64)
        span = max(1e-9, scores[0] - scores[-1])
        grades = [
            count - place if count == 3 else round(10 * (s - scores[-1]) / span)
            for place, s in enumerate(scores)
        ]
        graded[query_id] = {
            doc_id: int(grade)
            for doc_id, grade in zip(best.doc_ids[:count], grades, strict=False)
            if grade > 0
        } or {best.doc_ids[0]: 1}
    return graded


def _values(runs: tuple[Run, Run], qrels: Qrels) -> Curves:
    """Return each judged question's nDCG@10 at every weight of the first of two runs."""
    qrels = {query: grades for query, grades in qrels.items() if any(grade > 0 for grade in grades.values())}
    runs = runs[0].restrict(list(qrels)), runs[1].restrict(list(qrels))
    fused = {0.0: runs[1], 1.0: runs[0]}
    columns = []
    for weight in WEIGHTS:
        run = fused.get(weight) or linear("z-score")(list(runs), (weight, 1 - weight))
        columns.append(np.asarray(evaluate(run, qrels, ("nDCG@10",)).of("nDCG@10")))
    return np.stack(columns, axis=1)


def table(work: Path, chosen: argparse.Namespace) -> None:
    for name in chosen.sums:
        files = {data: _file(work, name, data) for data in chosen.data}
        names, known = [data for data in files if files[data].exists()], {}
        for data in names:
            with np.load(files[data]) as arrays:
                known[data] = {truth: arrays[truth] for truth in ("people", *PSEUDO)}
        print(f"\n{name}: regret, nDCG@10\n")
        print("| rule | " + " | ".join(names) + " | mean | worst |\n" + "|---|" + "---|" * (len(names) + 2))
        people = {data: curves["people"].mean(0) for data, curves in known.items()}
        first, best, second = (
            [f"{people[data][place(people[data])]:.3f}" for data in names]
            for place in (lambda _: 0, lambda curve: int(curve.argmax()), lambda _: 10)
        )
        bests = [f"{WEIGHTS[int(people[data].argmax())]:g}" for data in names]
        for title, row in (("BM25", first), (name, second), ("best sum", best), ("best weight", bests)):
            print(f"| {title} | " + " | ".join(row) + " | | |")
        for rule, choose in RULES.items():
            weights = [choose(known, data) for data in names]
            lost = [float(people[d].max() - people[d][w]) for d, w in zip(names, weights, strict=True)]
            shown = [f"{x:.4f} ({WEIGHTS[w]:g})" for x, w in zip(lost, weights, strict=True)]
            _row(rule, shown, lost)
        for rule, count in product(DRAWN, (100, 400)):
            lost = [_drawn(known, data, RULES[rule], count) for data in names]
            _row(f"{rule}: {count} questions drawn", [f"{x:.4f}" for x in lost], lost)
        for count in (10, 20, 40):
            for held in PRIORS:
                lost = [_judged(known, data, count, held) for data in names]
                _row(
                    f"{count} judged" + (f", own and three as {held}" if held else ""),
                    [f"{x:.4f}" for x in lost],
                    lost,
                )


def seeds(work: Path, chosen: argparse.Namespace) -> None:
    """Print the regret of the rule that ``adapt`` has, by seeds of its questions."""
    for name in chosen.sums:
        print(f"\n{name}: regret of adapt's rule, nDCG@10 (the weight)\n")
        heads = [f"seed {seed}" for seed in chosen.seeds]
        print("| | people's questions | best weight | " + " | ".join(heads) + " | mean | 95 % |")
        print("|---|" + "---|" * (len(heads) + 4))
        for data in chosen.data:
            if not all(_file(work, name, data, seed).exists() for seed in chosen.seeds):
                continue
            weights, people = [], np.empty((0, 11))
            for seed in chosen.seeds:
                with np.load(_file(work, name, data, seed)) as arrays:
                    known = {truth: arrays[truth] for truth in ("people", *PSEUDO)}
                people = known["people"]
                weights.append(RULES["own and three"]({data: known}, data))
            mean, rng = people.mean(0), np.random.default_rng(0)
            lost = [float(mean.max() - mean[weight]) for weight in weights]
            means = [people[rng.choice(len(people), len(people))].mean(0) for _ in range(2000)]
            low, high = np.quantile([one.max() - one[weights].mean() for one in means], (0.025, 0.975))
            cells = [f"{x:.4f} ({WEIGHTS[w]:g})" for x, w in zip(lost, weights, strict=True)]
            best = f"{WEIGHTS[int(mean.argmax())]:g}"
            print(f"| {data} | {len(people)} | {best} | " + " | ".join(cells), end="")
            print(f" | {np.mean(lost):.4f} | {low:.4f} to {high:.4f} |", flush=True)


def _row(title: str, shown: Sequence[str], lost: Sequence[float]) -> None:
    print(f"| {title} | " + " | ".join(shown) + f" | {np.mean(lost):.4f} | {max(lost):.4f} |", flush=True)


Known = dict[str, dict[str, Curves]]
PRIORS: Final = (0, 20, 80)
"""Judged questions that all pseudo-queries ("own and three") count as beside them."""


def _place(curve: NDArray[np.float64]) -> int:
    """Return the place of the best weight; of equal ones the nearest to equal shares."""
    return min(range(11), key=lambda at: (-round(float(curve[at]), 9), abs(at - 5), at))


def _sloped(slope: float) -> Callable[[Known, str], int]:
    return lambda known, data: _place(known[data]["own"].mean(0) + slope * np.array(WEIGHTS))


def _others(known: Known, *data: str) -> list[str]:
    return [one for one in known if one not in data]


def _prior(known: Known, *data: str) -> NDArray[np.float64]:
    """Return the mean of the others' curves of people's questions, each about its own mean."""
    means = [known[one]["people"].mean(0) for one in _others(known, *data)]
    return np.mean([mean - mean.mean() for mean in means], axis=0)


def _pseudo(known: Known, data: str, truths: Sequence[str]) -> NDArray[np.float64]:
    curve = np.mean([known[data][truth].mean(0) for truth in truths], axis=0)
    return np.asarray(curve - curve.mean())


def _by(truths: Sequence[str]) -> Callable[[Known, str], int]:
    return lambda known, data: _place(_pseudo(known, data, truths))


def _least_worst(known: Known, data: str) -> int:
    """Return the weight whose greatest regret on the others is least."""
    means = [known[one]["people"].mean(0) for one in _others(known, data)]
    return _place(-np.max([mean.max() - mean for mean in means], axis=0))


def _mixed(known: Known, data: str) -> int:
    """Mix pseudo-queries with the prior, in the share that loses least on the others."""

    def weight(one: str, share: float, *out: str) -> int:
        return _place(share * _pseudo(known, one, ("own", "three")) + (1 - share) * _prior(known, one, *out))

    def lost(share: float) -> float:
        means = {one: known[one]["people"].mean(0) for one in _others(known, data)}
        return float(np.mean([mean.max() - mean[weight(one, share, data)] for one, mean in means.items()]))

    return weight(data, min((0, 0.1, 0.2, 0.3, 0.5, 0.7, 1), key=lost))


def _regressed(known: Known, data: str) -> int:
    """Predict people's curve from those of pseudo-queries by ridge regression on the others."""

    def features(one: str) -> NDArray[np.float64]:
        return np.stack([_pseudo(known, one, (truth,)) for truth in PSEUDO], axis=1)

    prior = _prior(known, data)
    rows = np.concatenate([features(one) for one in _others(known, data)])
    wanted = [known[one]["people"].mean(0) for one in _others(known, data)]
    left = np.concatenate([curve - curve.mean() - prior for curve in wanted])
    ridge = 0.1 * np.trace(rows.T @ rows) / 3 * np.eye(3)
    factors = np.linalg.solve(rows.T @ rows + ridge, rows.T @ left)
    return _place(prior + features(data) @ factors)


def _drawn(known: Known, data: str, choose: Callable[[Known, str], int], count: int) -> float:
    """Return the mean regret of a rule on so many pseudo-queries, drawn with replacement."""
    rng, lost, people = np.random.default_rng(0), [], known[data]["people"].mean(0)
    for _ in range(DRAWS):
        rows = rng.choice(len(known[data]["own"]), count)
        drawn = {truth: known[data][truth][rows] for truth in PSEUDO} | {"people": known[data]["people"]}
        lost.append(float(people.max() - people[choose(known | {data: drawn}, data)]))
    return float(np.mean(lost))


def _judged(known: Known, data: str, count: int, held: int) -> float:
    """Return the mean regret where some judged questions choose, beside pseudo-queries as so many."""
    rng, people, lost = np.random.default_rng(0), known[data]["people"], []
    prior, best = held * _pseudo(known, data, ("own", "three")), int(people.mean(0).argmax())
    for _ in range(DRAWS):
        order = rng.permutation(len(people))
        drawn, rest = people[order[:count]].sum(0), people[order[count:]].mean(0)
        lost.append(float(rest[best] - rest[_place(drawn + prior)]))
    return float(np.mean(lost))


def _balanced(known: Known, data: str) -> int:
    """Return the weight that loses least by whichever of the two ideas it loses more by."""
    curves = [known[data][truth].mean(0) for truth in ("own", "three")]
    return _place(-np.max([curve.max() - curve for curve in curves], axis=0))


def _own_and_slope(known: Known, data: str) -> int:
    """Add to the curve by own documents what makes up for their words, as it loses least on the others."""

    def weight(one: str, slope: float) -> int:
        return _place(known[one]["own"].mean(0) + slope * np.array(WEIGHTS))

    def lost(slope: float) -> float:
        means = {one: known[one]["people"].mean(0) for one in _others(known, data)}
        return float(np.mean([mean.max() - mean[weight(one, slope)] for one, mean in means.items()]))

    return weight(data, min(SLOPES, key=lambda slope: (round(lost(slope), 9), slope)))


def _halfway(known: Known, data: str) -> int:
    return (_by(("own", "three"))(known, data) + 5) // 2


RULES: Final[dict[str, Callable[[Known, str], int]]] = {
    "own and three": _by(("own", "three")),
    "own": _by(("own",)),
    "three": _by(("three",)),
    "graded": _by(("graded",)),
    "own and graded": _by(("own", "graded")),
    "least worst of own and three": _balanced,
    "own and three, halfway to equal shares": _halfway,
    "own and a slope learned on the others": _own_and_slope,
    **{f"own and {slope:g} of the weight": _sloped(slope) for slope in (0.3, 0.5)},
    "equal shares": lambda *_: 5,
    "prior": lambda known, data: _place(_prior(known, data)),
    "least worst of the others": _least_worst,
    "own, three and prior": _mixed,
    "regression on own, three, graded, prior": _regressed,
}

DRAWN: Final = ("own and three", "least worst of own and three", "own and 0.5 of the weight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("curves", "table", "seeds"))
    parser.add_argument("given", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--sums", nargs="+", default=SUMS, choices=SUMS)
    parser.add_argument("--steps", type=int, default=200, help="Of the TK's training.")
    parser.add_argument("--asked", type=int, default=6000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="Of the questions.")
    chosen = parser.parse_args()
    if chosen.what == "curves":
        curves(chosen.given, chosen.work, chosen)
    elif chosen.what == "seeds":
        seeds(chosen.work, chosen)
    else:
        table(chosen.work, chosen)


if __name__ == "__main__":
    main()
