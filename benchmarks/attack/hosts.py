"""Adapters to other frameworks: malformed frames, ids, texts and scores, threads, an index replaced below.

The frameworks are installed by ``make hosts``; those that are not here are named and left out.
"""

from __future__ import annotations

import importlib
import json
import math
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .calls import call
from .host_calls import HOSTS, Overlap, Row, overlap
from .verdicts import RIGHT, Trial, Verdict, breakdown
from .world import WORDS

_TRIALS, _FRAMES, _OTHERS, _SECONDS = 60, 80, 6, 120.0
_REFUSED, _FOREIGN = 1, 3  # exit codes of a trial: an error of ours, one of the host's own
LONG = " ".join(WORDS * 4_000)  # 0.8 MB
TEXTS: tuple[Any, ...] = ("", " ", "\ud800", "a\0b", "\n", LONG, None, math.nan, 7, True, b"x", ["x"], {})
ODD: dict[str, tuple[Any, ...]] = {
    "id": ("twice", "", " ", "\ud800", "a\0b", "\n", "x" * 9_000, None, math.nan, 7, 2.5, True, b"x", ("a",)),
    "text": TEXTS,
    "query": TEXTS,
    "score": (
        math.nan,
        math.inf,
        -math.inf,
        1e308,
        10**400,
        None,
        "0.5",
        True,
        1j,
        np.float32(3),
        np.int8(2),
    ),
    "k": (0, -1, 2.5, "3", True, 10**30, math.nan, np.int64(2)),
}

_ASKED = {"query": ("query", "question", "q1"), "k": ("documents are asked for", "k=", "% is followed by")}


def trials(seed: int) -> Iterator[Trial]:
    """Return drawn oddities for every host that is installed."""
    import rankhouse as rh

    open_hosts: dict[str, ModuleType] = {}
    for name in HOSTS:
        try:
            open_hosts[name] = importlib.import_module(f"rankhouse.hosts.{name}")
        except ImportError as error:
            print(f"hosts: without {name}: {error}", file=sys.stderr)
    assert rh.Index
    for name, module in open_hosts.items():
        for number in range(_TRIALS):
            rng = random.Random(f"{seed}-{name}-{number}")
            part = rng.choice([*HOSTS[name].says, *_ASKED])
            odd = rng.choice(ODD[part])
            yield Trial(
                f"{name}, {part} {odd!r:.20}, rows {number} by seed {seed}",
                lambda f, m=module, n=name, p=part, o=odd, r=rng: _rerank(f, m, n, (p, o), r),
            )
        if HOSTS[name].retrieve is None:
            continue
        for part in _ASKED:
            for odd in ODD[part]:
                yield Trial(
                    f"{name}, search, {part} {odd!r:.20}",
                    lambda f, m=module, n=name, p=part, o=odd: _search(f, m, n, p, o),
                )
        for number in range(_OTHERS):
            what = ("threads", "replaced")[number % 2]
            yield Trial(
                f"{name}, {what}, {number}", lambda f, m=module, n=name, w=what: _together(f, m, n, w)
            )
    if "pyterrier" in open_hosts:
        for number in range(_FRAMES):
            rng = random.Random(f"{seed}-frame-{number}")
            yield Trial(
                f"pyterrier, frame {number} by seed {seed}",
                lambda f, m=open_hosts["pyterrier"], r=rng: _frame(f, m, r),
            )


def _tried(folder: Path, work: Callable[[], Any], names: Sequence[str]) -> Verdict:
    """Do some work of a host in a child: what it returns says what is wrong, or it is refused by name."""
    done = call((), folder, _SECONDS, before=lambda: _say(work))
    if (broken := breakdown(done)) is not None:
        return broken
    if done.code == _FOREIGN:
        return RIGHT
    if done.code == _REFUSED:
        said = done.err.strip()
        if len(said.splitlines()) != 1 or len(said) > 1_000:
            return Verdict("wrong", f"not one sentence: {said[-300:]}")
        return (
            RIGHT
            if any(n in said for n in names)
            else Verdict("wrong", f"names none of {names}: {said[:200]}")
        )
    why = json.loads(done.out)
    return Verdict("wrong", why) if why else RIGHT


def _say(work: Callable[[], str]) -> None:
    """Print what is wrong with a result, or the error: ours as a sentence, the host's own by another code."""
    import rankhouse as rh

    try:
        print(json.dumps(work()))
    except rh.RankhouseError as error:
        print(type(error).__name__, str(error).encode(errors="backslashreplace").decode(), file=sys.stderr)
        raise SystemExit(_REFUSED) from None
    except Exception as error:
        own = [
            f.filename for f in traceback.extract_tb(error.__traceback__) if "/src/rankhouse/" in f.filename
        ]
        if not own:
            raise SystemExit(_FOREIGN) from None
        raise
    raise SystemExit(0)


def _rerank(
    folder: Path, module: ModuleType, name: str, fault: tuple[str, Any], rng: random.Random
) -> Verdict:
    """Hand a host some rows of which one is odd."""
    part, odd = fault
    rows: list[Row] = [
        {"id": f"d{i}", "text": " ".join(rng.choices(WORDS, k=rng.randint(1, 30))), "score": float(9 - i)}
        for i in range(rng.randint(1, 9))
    ]
    query, k = " ".join(rng.choices(WORDS, k=3)), len(rows)
    if part == "query":
        query = odd
    elif part == "k":
        k = odd
    else:
        row = rng.choice(rows)
        row[part] = (
            rng.choice([one["id"] for one in rows if one is not row] or ["d0"]) if odd == "twice" else odd
        )

    def work() -> str:
        found = HOSTS[name].rerank(module, query, rows, k)
        texts: dict[str, list[str]] = {}
        for row in rows:
            texts.setdefault(str(row["id"]), []).append(str(row["text"] or ""))
        every = [text for some in texts.values() for text in some]  # a host may give an odd id another form
        scores = [score for _, score in found]
        if scores != sorted(scores, reverse=True) or not all(map(math.isfinite, scores)):
            return f"scores {scores}"
        for doc_id, score in found:
            known = texts.get(str(doc_id), every)
            if all(map(str.strip, known)) and score not in [overlap(query, text) for text in known]:
                return f"{doc_id!a} has {score}"
        is_whole = name in ("mteb", "beir", "pyterrier") or len(found) == min(int(k), len(rows))
        return "" if is_whole else "lost"

    return _tried(folder, work, (_ASKED | dict(HOSTS[name].says))[part])


def _search(folder: Path, module: ModuleType, name: str, part: str, odd: Any) -> Verdict:  # noqa: ANN401
    """Ask the retriever of a host an odd question, or for an odd number of documents."""
    import rankhouse as rh

    query, k = (odd, 5) if part == "query" else ("harbour pilot ship", odd)

    def work() -> str:
        found = HOSTS[name].retrieve(module, "my.index", query, k)  # type: ignore[misc]
        right = rh.Index.open("my.index").retrieve({"q": query}, k=min(k, 1_000))["q"].to_dict()
        return "" if dict(found) == right else f"{found} and not {right}"

    return _tried(folder, work, _ASKED[part])


def _together(folder: Path, module: ModuleType, name: str, what: str) -> Verdict:
    """Ask from several threads, perhaps while the index is replaced: the old answer or the new one."""
    import rankhouse as rh

    retrieve = HOSTS[name].retrieve
    questions = [" ".join(WORDS[i : i + 3]) for i in range(0, 30, 3)]
    (folder / "other").mkdir()
    rows = [{"id": f"n{i}", "text": " ".join(WORDS[i % 20 : i % 20 + 9])} for i in range(80)]

    def answers(index: str) -> dict[str, list[tuple[Any, float]]]:
        return {q: retrieve(module, index, q, 5) for q in questions}  # type: ignore[misc]

    def work() -> str:
        rh.Index.build(rows, "other/index")
        old, new = answers("my.index"), answers("other/index")
        with ThreadPoolExecutor(8) as threads:
            asked = [(q, threads.submit(retrieve, module, "my.index", q, 5)) for q in questions * 8]  # type: ignore[arg-type]
            if what == "replaced":
                rh.Index.build(rows, "my.index", overwrite=True)
            for question, answer in asked:
                try:
                    found = answer.result()
                except rh.RankhouseError as error:
                    if what == "threads" or "my.index" not in str(error):
                        raise
                    continue
                if found != old[question] and (what == "threads" or found != new[question]):
                    return f"{question}: {found}"
        return ""

    return _tried(folder, work, ("my.index",))


def _frame(folder: Path, module: ModuleType, rng: random.Random) -> Verdict:
    """Hand PyTerrier's transformers a frame of another shape, kind or order of its rows."""
    import pandas as pd

    rows = [
        {"qid": q, "query": f"{q} ship tide", "docno": f"d1-{i}", "text": f"ship {i}", "score": float(i)}
        for q in ("1", "2")
        for i in rng.sample(range(40), 4)
    ]
    frame: Any = pd.DataFrame(rows)
    kind = rng.choice([*FRAMES])
    made = rng.choice(("retriever", "reranker", "with index", "loader"))
    if made == "retriever" and kind not in ("number qids", "a dictionary", "a list", "None"):
        frame = frame[["qid", "query"]].drop_duplicates()
    column = rng.choice(list(frame.columns))
    frame = FRAMES[kind](frame, column, rng)

    def work() -> str:
        transformer = {
            "retriever": lambda: module.Retriever("bm25 % 3", "my.index"),
            "reranker": lambda: module.Reranker(Overlap()),
            "with index": lambda: module.Reranker(Overlap(), "my.index"),
            "loader": lambda: module.TextLoader("my.index"),
        }[made]()
        found = transformer.transform(frame)
        if "score" in found and not all(map(math.isfinite, found["score"])):
            return "scores that are no numbers"
        if made != "retriever" and len(found) != len(frame):
            return f"{len(found)} rows of {len(frame)}"
        return ""

    verdict = _tried(folder, work, ("column", "frame"))
    return (
        verdict
        if verdict.kind == "right"
        else Verdict(verdict.kind, f"{made}, {kind} {column}: {verdict.why}")
    )


def _with_odd(frame: Any, column: str, rng: random.Random) -> Any:  # noqa: ANN401
    frame = frame.astype(object)
    frame.iloc[rng.randrange(len(frame)), list(frame.columns).index(column)] = rng.choice(
        [None, math.nan, math.inf, 7, 2.5, True, "", "\ud800", 10**400]
    )
    return frame


def _renamed(frame: Any, column: str, rng: random.Random) -> Any:  # noqa: ANN401
    others = [name for name in frame.columns if name != column]
    return frame.rename(columns={column: rng.choice([*others, 7, None, "Docno"])})


FRAMES: dict[str, Callable[[Any, str, random.Random], Any]] = {
    "without": lambda frame, column, _: frame.drop(columns=[column]),
    "renamed": _renamed,
    "twice": lambda frame, column, _: frame.assign(**{f"{column}2": frame[column]}).rename(
        columns={f"{column}2": column}
    ),
    "odd": _with_odd,
    "shuffled": lambda frame, _, rng: frame.sample(frac=1.0, random_state=rng.randrange(99)),
    "equal row names": lambda frame, *_: frame.set_axis([0] * len(frame)),
    "many row names": lambda frame, *_: frame.set_index(["qid", "query"], drop=False),
    "empty": lambda frame, *_: frame.iloc[:0],
    "no columns": lambda frame, *_: frame[[]],
    "categories": lambda frame, column, _: frame.astype({column: "category"}),
    "number qids": lambda frame, *_: frame.assign(qid=frame["qid"].astype("Int64")),
    "rows twice": lambda frame, *_: frame.iloc[[*range(len(frame)), 0]],
    "two questions": lambda frame, *_: frame.assign(query=[f"ship {i}" for i in range(len(frame))]),
    "a dictionary": lambda frame, *_: frame.to_dict(),
    "a list": lambda frame, *_: frame.to_dict("records"),
    "None": lambda *_: None,
}
