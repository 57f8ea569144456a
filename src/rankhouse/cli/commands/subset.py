"""rankhouse subset: some of the queries, judgements, rankings or pairs."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.qrels import judgements, restrict
from rankhouse.core.run import Run
from rankhouse.core.sameness import Texts
from rankhouse.core.sampling import lot, order
from rankhouse.evaluation.folds import deal, read_folds
from rankhouse.io.corpora import read_queries, write_queries
from rankhouse.io.files import as_text, kind_of, numbered_lines
from rankhouse.io.pairs import LabelledPair, read_pairs, write_pairs
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run
from rankhouse.page.tables import CommandResult
from rankhouse.systems.on_record import read_tag

Side = Literal["train", "valid", "test", "rest"]


@dataclass(frozen=True)
class Conditions:
    """Conditions that kept queries meet, all of them together."""

    ids: Annotated[
        str | None, Option("Keep these queries: a file of queries, or of one id per line (.txt).")
    ] = None
    folds: Annotated[Path | None, Option("Keep one side of a fold of this file.", "input")] = None
    fold: Annotated[int | None, Option("Number of the fold, from 1.", least=1)] = None
    side: Annotated[
        Side,
        Option("test: the fold; valid: the next; train: the others; rest: all but the fold.", beside="folds"),
    ] = "test"
    part: Annotated[str | None, Option("Keep one of N parts, like 1/3.", metavar="I/N")] = None
    sample: Annotated[int | None, Option("Keep this many queries (of pairs: this many pairs).", least=1)] = (
        None
    )
    or_all: Annotated[bool, Option("Of queries: all of them if there are fewer than --sample.")] = False
    seed: Annotated[int, Option("Of parts and samples.", least=0, most=2**32 - 1)] = 0

    def among(self, query_ids: list[str]) -> set[str]:
        """Keep of these."""
        left = list(dict.fromkeys(query_ids))
        if self.ids is not None:
            wanted = set(_read_ids(self.ids))
            left = [q for q in left if q in wanted]
        if self.folds is not None and self.fold is not None:
            wanted = set(self._side(self.folds, self.fold))
            left = [q for q in left if q in wanted]
        if self.part is not None:
            left = list(self._part(left))
        if self.sample is not None:
            if self.sample > len(left) and not self.or_all:
                raise WrongUse(f"--sample {self.sample}: there are only {len(left):,} to draw from")
            left = sorted(left, key=lambda query_id: order(self.seed, query_id))[: self.sample]
        if not left:
            raise BadData(
                f"none of the {len(query_ids):,} queries was selected; are these ids of the same queries?"
            )
        return set(left)

    def _side(self, path: Path, number: int) -> tuple[str, ...]:
        folds = read_folds(path)
        if number > len(folds.folds):
            raise WrongUse(f"--fold {number}: {path} has folds 1 to {len(folds.folds)}")
        if self.side in ("test", "rest"):
            split = folds.split(number - 1, validate=False)
            return split.test if self.side == "test" else split.train
        split = folds.split(number - 1)
        return split.train if self.side == "train" else split.valid

    def _part(self, query_ids: list[str]) -> tuple[str, ...]:
        match = re.fullmatch(r"(\d+)/(\d+)", self.part or "")
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise WrongUse(f"--part {self.part}: write I/N, like 1/3 for the first of three")
        if int(match[2]) == 1:
            return tuple(query_ids)
        return deal(query_ids, int(match[2]), self.seed).folds[int(match[1]) - 1]


@verb("subset", "rankhouse subset --queries q.tsv --folds f.json --fold 1 --side train --out t.jsonl")
def command(
    *,
    queries: Annotated[str | None, Option("Select among these queries;", "source")] = None,
    qrels: Annotated[Path | None, Option("or judgements, by query;")] = None,
    run: Annotated[Path | None, Option("or rankings, by query;")] = None,
    pairs: Annotated[Path | None, Option("or labelled pairs, by query.")] = None,
    field: Annotated[
        str, Option("The text field of the queries, if they have several.", beside="queries")
    ] = "",
    apart_from: Annotated[
        str | None, Option("Of queries: none with the words of one of this file's, whatever its id.")
    ] = None,
    within: Annotated[
        Path | None, Option("Of rankings: only documents that this run has for the query.")
    ] = None,
    balanced: Annotated[bool, Option("Of pairs: equally many of each label.")] = False,
    wanted: Conditions,
    out: Annotated[Path, Option("The file to write, of the same kind.", "output")],
) -> CommandResult:
    """Keep part of a file, in its order; what is kept meets all conditions that are given.

    Parts and samples are drawn by a hash of seed and id: the same ones on every machine.
    """
    if sum(one is not None for one in (queries, qrels, run, pairs)) != 1:
        raise WrongUse("give one of --queries, --qrels, --run and --pairs")
    sample = wanted.sample
    if (wanted.folds is None) != (wanted.fold is None):
        raise WrongUse("--folds FILE and --fold N go together")
    if not (wanted.part or sample):
        idle("only --part and --sample draw anything", "seed")
    if balanced and (pairs is None or sample is None):
        raise WrongUse("--balanced says how --sample draws from --pairs")
    if within is not None and run is None:
        raise WrongUse("--within keeps documents of rankings; give --run")
    if apart_from is not None and queries is None:
        raise WrongUse("--apart-from compares the words of queries; give --queries")
    if wanted.or_all and (pairs is not None or sample is None):
        raise WrongUse("--or-all says what --sample does if there are fewer queries")
    if queries is not None:
        size, whole = _queries(queries, field, apart_from, chosen=wanted, out=out)
    elif qrels is not None:
        size, whole = _qrels(qrels, wanted, out)
    elif run is not None:
        size, whole = _run(run, wanted, within, out)
    else:
        assert pairs is not None
        size, whole = _pairs(pairs, replace(wanted, sample=None), sample, balanced=balanced, out=out)
    what = "queries" if queries is not None or run is not None else "judgements" if qrels else "pairs"
    return CommandResult(
        {"out": str(out), "kept": size, "of": whole}, f"{size:,} of {whole:,} {what} written to {out}"
    )


def _read_ids(path: str) -> list[str]:
    """Read the ids of a file of queries, or of a text file."""
    if not path.startswith("ir_datasets:") and kind_of(Path(path)) == ".txt":
        lines = numbered_lines(Path(path))
        return [as_text(raw, Path(path), line).strip() for line, raw in lines if raw.strip()]
    return [query.id for query in read_queries(path)]


def _queries(path: str, field: str, others: str | None, chosen: Conditions, out: Path) -> tuple[int, int]:
    everything = read_queries(path, field=field)
    apart = everything
    if others is not None:
        known = Texts((query.id, query.text) for query in read_queries(others, field=field))
        apart = [query for query in everything if query.text not in known]
        if everything and not apart:
            raise BadData(f"all {len(everything):,} queries of {path} are in {others} too, so none is left")
    wanted = chosen.among([query.id for query in apart])
    part = [query for query in everything if query.id in wanted]
    write_queries(part, out)
    return len(part), len(everything)


def _qrels(path: Path, chosen: Conditions, out: Path) -> tuple[int, int]:
    everything = read_qrels(path)
    wanted = chosen.among(list(everything))
    part = restrict(everything, [q for q in everything if q in wanted])
    write_qrels(part, out)
    return judgements(part), judgements(everything)


def _run(path: Path, chosen: Conditions, within: Path | None, out: Path) -> tuple[int, int]:
    everything = read_run(path)
    whole = len(everything)
    if within is not None:
        everything = _within(everything, read_run(within))
    wanted = chosen.among(list(everything))
    part = everything.restrict([q for q in everything if q in wanted])
    write_run(part, out, read_tag(path))
    return len(part), whole


def _within(run: Run, other: Run) -> Run:
    """Keep the documents that another run has for the same query."""
    rows = []
    for query_id in run:
        wanted = set(other[query_id].doc_ids) if query_id in other else set()
        for doc_id, score in zip(run[query_id].doc_ids, run[query_id].scores, strict=True):
            if doc_id in wanted:
                rows.append((query_id, doc_id, float(score)))
    return Run.of(rows)


def _pairs(path: Path, chosen: Conditions, sample: int | None, balanced: bool, out: Path) -> tuple[int, int]:
    """Select pairs in passes over the file, in memory that does not grow with it (but for query ids)."""
    whole, ids = 0, dict[str, None]()
    for pair in read_pairs(path):
        whole += 1
        ids[pair.query_id] = None
    wanted = chosen.among(list(ids))

    def here() -> Iterator[tuple[int, LabelledPair]]:
        return ((at, pair) for at, pair in enumerate(read_pairs(path)) if pair.query_id in wanted)

    if sample is None:
        return write_pairs((pair for _, pair in here()), out), whole
    labels = sorted({pair.label for _, pair in here()}) if balanced else [None]
    if sample % len(labels):
        raise WrongUse(f"--sample {sample} cannot be shared alike by {len(labels)} labels")
    drawn: set[int] = set()
    for one in labels:
        lots = ((lot(chosen.seed, at), at) for at, p in here() if one is None or p.label == one)
        best = heapq.nsmallest(sample // len(labels), lots)
        if len(best) < sample // len(labels):
            of = "" if one is None else f" of label {one}"
            raise WrongUse(f"--sample {sample}: there are only {len(best):,} pairs{of} to draw from")
        drawn.update(at for _, at in best)

    def kept() -> Iterator[LabelledPair]:
        return (pair for at, pair in here() if at in drawn)

    return write_pairs(kept(), out), whole
