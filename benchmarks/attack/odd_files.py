"""Odd and damaged files for the commands that compare files by their ids: said, counted once, never lost."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .calls import Outcome, call
from .fuzz import changed
from .verdicts import RIGHT, Trial, Verdict, contents, differences, message
from .world import CPU

COMMANDS: dict[str, list[str]] = {
    "threshold": ["threshold", "odd.pairs.jsonl", "--truth", "odd.qrels", "--out", "new", "--json"],
    "label-stats": ["label-stats", "odd.pairs.jsonl", "--truth", "odd.qrels", "--json"],
    "label-noise": [
        *(
            "label-noise",
            "--qrels",
            "odd.qrels",
            "--run",
            "odd.run",
            "--share",
            "SHARE",
            "--out",
            "new",
            "--json",
        ),
    ],
    "fuse": ["fuse", "odd.run", "other.run", "--method", "METHOD", "--out", "new", "--json"],
    "calibrate by knrm": [
        *("calibrate", "--ranker", "knrm", "--pairs", "odd.pairs.jsonl", *CPU, "--out", "new", "--json"),
    ],
}
METHODS = (
    "linear", 'linear("z-score")', 'linear("raw", "zero")', 'linear("min-max", "drop")', "rrf", "combsum",
    "combmnz", "mean",
)  # fmt: skip
SCORES = (0.0, -0.0, 1.0, 1.0, 2.5, -7.0, 1e-45, 3e38, -3e38)
TOO_LARGE = (1e308, -1e308, math.inf, math.nan)
ODDITIES = (
    "as it is", "as it is", "pairs twice", "two scores", "too large", "passages", "other queries",
    "one class", "empty", "one document", "equal scores", "one query",
    "damaged pairs", "damaged qrels", "damaged run",
)  # fmt: skip
MARK = " is in "  # stands in every remark on ids that do not match
_TRIALS, _SLOW_TRIALS = 420, 40

Row = dict[str, Any]


def trials(seed: int) -> Iterator[Trial]:
    """Return drawn files with a drawn oddity for each command."""
    for name in COMMANDS:
        for number in range(_SLOW_TRIALS if name.startswith("calibrate") else _TRIALS):
            rng = random.Random(f"{seed}-{name}-{number}")
            odd = rng.choice(ODDITIES)
            yield Trial(
                f"{name}, {odd}, files {number} by seed {seed}",
                lambda f, n=name, o=odd, r=rng: _attack(f, n, o, r),
            )


def _attack(folder: Path, name: str, odd: str, rng: random.Random) -> Verdict:
    pairs, qrels, runs = _drawn(odd, rng)
    (folder / "odd.pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (folder / "odd.qrels").write_text("".join(f"{q} 0 {d} {g}\n" for (q, d), g in qrels.items()))
    for file, rows in zip(("odd.run", "other.run"), runs, strict=True):
        lines = (f"{q} Q0 {d} 1 {score} t\n" for (q, d), score in rows.items())
        (folder / file).write_text("".join(lines))
    is_damaged = odd.startswith("damaged")
    if is_damaged:
        file = {"pairs": "odd.pairs.jsonl", "qrels": "odd.qrels", "run": "odd.run"}[odd.split()[1]]
        (folder / file).write_bytes(changed((folder / file).read_bytes(), rng))
    words = {"SHARE": str(rng.choice((0, 0.01, 0.3, 1))), "METHOD": rng.choice(METHODS)}
    before = contents(folder)
    done = call([words.get(word, word) for word in COMMANDS[name]], folder)
    hurt = [n for n in differences(before, contents(folder)) if n in before and ".lock" not in n]
    if hurt:
        return Verdict("lost", f"exit {done.code}: {', '.join(hurt[:3])}")
    verdict = message(done)
    if verdict.kind != "right" or done.code != 0 or is_damaged:
        return verdict
    if odd == "too large" and name not in ("fuse", "label-noise"):
        return Verdict("wrong", "a score beyond 32 bits was taken")
    return CHECKS[name](folder, done, pairs, qrels, runs)


def _drawn(odd: str, rng: random.Random) -> tuple[list[Row], dict[tuple[str, str], int], list[Row]]:
    """Draw pairs, judgements and two runs, all by (query, document), with one oddity."""
    queries = [f"q{n}" for n in range(1 if odd == "one query" else rng.randint(2, 12))]
    docs = [f"d{n}" for n in range(rng.randint(2, 12))]
    every = [(q, d) for q in queries for d in docs]
    kind = {"one class": (1,), "empty": (0,)}.get(odd, (0, 0, 1, 2))
    qrels = {pair: rng.choice(kind) for pair in rng.sample(every, rng.randint(1, len(every)))}
    pairs: list[Row] = [
        {
            "query_id": q, "query": "ship tide", "doc_id": d, "passage": 0, "text": f"ship {d}",
            "label": rng.randint(0, 1), "scale": "score",
            "score": 1.0 if odd == "equal scores" else rng.choice(SCORES),
        }
        for q, d in rng.sample(every, rng.randint(1, len(every)))
    ]  # fmt: skip
    if odd == "pairs twice":
        pairs += rng.sample(pairs, rng.randint(1, len(pairs)))
    if odd == "two scores":
        pairs.append({**pairs[0], "score": pairs[0]["score"] + 1 or 2.0, "label": 1 - pairs[0]["label"]})
    if odd == "too large":
        pairs[-1]["score"] = rng.choice(TOO_LARGE)
    if odd == "passages":
        qrels = {(q, f"{d}#{rng.randint(0, 3)}"): grade for (q, d), grade in qrels.items()}
    if odd == "other queries":
        qrels = {(f"topic{q}", d): grade for (q, d), grade in qrels.items()}
    deepest = 1 if odd == "one document" else len(docs)
    runs: list[Row] = []
    for _ in range(2):
        run: Row = {}
        for q in queries:
            for d in rng.sample(docs, rng.randint(1, deepest)):
                run[q, d] = 1.0 if odd == "equal scores" else rng.choice(SCORES[:6])
        runs.append(run)
    if odd == "other queries":
        runs[1] = {(f"topic{q}", d): score for (q, d), score in runs[1].items()}
    return pairs, qrels, runs


def _has_common(some: Sequence[tuple[str, str]], others: Sequence[tuple[str, str]]) -> bool:
    return bool({*some} & {*others})


def _named(pairs: list[Row]) -> list[tuple[str, str]]:
    return [(pair["query_id"], pair["doc_id"]) for pair in pairs]


def _threshold(folder: Path, done: Outcome, pairs: list[Row], qrels: Row, runs: list[Row]) -> Verdict:
    del done, runs
    record = json.loads((folder / "new").read_text())
    truth = {named: qrels.get(named, 0) > 0 for named in _named(pairs)}
    if record["threshold"] is None or record["pairs"] != len(truth) or record["of"] != sum(truth.values()):
        return Verdict("wrong", f"{len(truth)} pairs, {sum(truth.values())} of them right: {record}")
    return RIGHT


def _label_stats(folder: Path, done: Outcome, pairs: list[Row], qrels: Row, runs: list[Row]) -> Verdict:
    del folder, runs
    relevant = {named for named, pair in zip(_named(pairs), pairs, strict=True) if pair["label"] > 0}
    right = sum(qrels.get(named, 0) > 0 for named in relevant)
    said = json.loads(done.out)
    if (said["relevant"], said["right"]) != (len(relevant), right):
        return Verdict("wrong", f"{len(relevant)} relevant, {right} of them right: {said}")
    if relevant and not _has_common(relevant, [*qrels]) and MARK not in done.err:
        return Verdict("wrong", "no remark on ids that match nowhere")
    return RIGHT


def _label_noise(folder: Path, done: Outcome, pairs: list[Row], qrels: Row, runs: list[Row]) -> Verdict:
    del pairs
    lines = [line.split() for line in (folder / "new").read_text().splitlines()]
    after = {(q, d): int(grade) for q, _, d, grade in lines}
    right, wrong = ({pair for pair, grade in some.items() if grade > 0} for some in (qrels, after))
    said = json.loads(done.out)
    if len(right) != len(wrong) or len(wrong - right) != said["wrong"]:
        return Verdict(
            "wrong", f"{len(right)} relevant before, {len(wrong)} after, {len(wrong - right)} moved: {said}"
        )
    if not _has_common([*qrels], [*runs[0]]) and MARK not in done.err:
        return Verdict("wrong", "no remark on ids that match nowhere")
    return RIGHT


def _fuse(folder: Path, done: Outcome, pairs: list[Row], qrels: Row, runs: list[Row]) -> Verdict:
    del pairs, qrels
    rows = [line.split() for line in (folder / "new").read_text().splitlines()]
    found = {(row[0], row[2]): float(row[4]) for row in rows}
    union = {*runs[0], *runs[1]}
    if not set(found) <= union or not all(math.isfinite(score) for score in found.values()):
        return Verdict("wrong", "other documents than those of the runs, or scores without end")
    if len(found) not in (len(union), len({*runs[0]} & {*runs[1]})):
        return Verdict("wrong", f"{len(found)} rows of {len(union)}")
    if not _has_common([*runs[0]], [*runs[1]]) and MARK not in done.err:
        return Verdict("wrong", "no remark on runs that match nowhere")
    return RIGHT


def _calibrate(folder: Path, done: Outcome, pairs: list[Row], qrels: Row, runs: list[Row]) -> Verdict:
    del folder, qrels, runs
    said, named = json.loads(done.out), {*_named(pairs)}
    return (
        RIGHT if said["pairs"] == len(named) else Verdict("wrong", f"{said['pairs']} pairs of {len(named)}")
    )


CHECKS: dict[str, Callable[[Path, Outcome, list[Row], Row, list[Row]], Verdict]] = {
    "threshold": _threshold,
    "label-stats": _label_stats,
    "label-noise": _label_noise,
    "fuse": _fuse,
    "calibrate by knrm": _calibrate,
}
