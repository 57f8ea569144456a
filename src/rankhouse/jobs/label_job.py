"""label in slices of the run's queries: a part holds the answers about the pairs of its queries.

Negatives, and the figures about all pairs, depend on all answers, so they are left to the merge, which
fetches the texts of the chosen pairs and asks no teacher. It needs the job's inputs at their places.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, Final

from rankhouse.core.errors import BadData, MissingInput
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.core.progress import Progress
from rankhouse.core.scores import scale_of
from rankhouse.index.index import Index
from rankhouse.jobs.identity import described
from rankhouse.jobs.jobs import MergeOptions, MergeResult, Survey, read_reports, write_report
from rankhouse.jobs.labelling import (
    LabelOptions,
    Teachers,
    label_facts,
    label_sentence,
    label_tables,
    leaks,
    prepared,
)
from rankhouse.jobs.parts import Found, Part
from rankhouse.jobs.slices import Slice
from rankhouse.labels import report
from rankhouse.labels.candidates import candidates
from rankhouse.labels.label import collect, label
from rankhouse.systems.rankers import ComputeOptions

_ANSWERS: Final = "answers"
_NAMING: Final = (
    "rule",
    "queries",
    "run",
    "passages",
    "negative_rule",
    "truth",
    "test_queries",
    "test_qrels",
)


@dataclass(frozen=True)
class LabelJob(LabelOptions):
    """The options of ``rankhouse label``, by the same names."""

    command: ClassVar[str] = "label"
    unit: ClassVar[str] = "queries"

    cache: str | None = None
    precision: str = "auto"
    device: str = "auto"
    threads: int = 0

    def survey(self) -> Survey:
        """Count the queries of the run, and hash the inputs."""
        own = ("index", "shown", "cache", "device", "threads")
        names = [field.name for field in fields(self) if field.name not in own]
        identity = {name: str(getattr(self, name)) for name in names}
        identity |= {name: described(identity[name]) for name in _NAMING if getattr(self, name) is not None}
        identity["index"] = Index.open(self.index).fingerprint
        return Survey(len(self.first_stage), identity)

    def unit_name(self, unit: int) -> str:
        """Return a query's id. Args: as in :class:`~rankhouse.jobs.jobs.Job`."""
        return list(self.first_stage)[unit]

    def open(self) -> LabelWorker:
        """Load the teachers, the run and the index."""
        return LabelWorker(self)

    def merge(self, parts: Sequence[Part], out: Path, options: MergeOptions) -> MergeResult:
        """Write PAIRS. Args: as in :class:`~rankhouse.jobs.jobs.Job`."""
        started = time.perf_counter()
        self._refuse_changed_inputs(parts[0])
        ready = prepared(self, _KnownTeachers(parts[0].manifest.found))
        plan = replace(ready.plan, answers=[part.folder / _ANSWERS for part in parts])
        done = label(ready.rule, ready.run, ready.queries, ready.index.documents, out, plan)
        if options.report is not None:
            report.write_report(done, options.report, f"Labels in {out.name}")
        reports = read_reports(parts)
        seconds = time.perf_counter() - started + sum(one["seconds"] for one in reports)
        warnings = leaks(ready.shared)
        truncated, lost = (sum(one[name] for one in reports) for name in ("truncated", "tokens_lost"))
        if truncated:
            warnings.append(_truncation(truncated, lost))
        facts = label_facts(done, ready.shared, seconds) | {"truncated": truncated, "tokens_lost": lost}
        return MergeResult(facts, label_sentence(done), warnings, label_tables(done, ready.shared))

    def _refuse_changed_inputs(self, part: Part) -> None:
        try:
            now, then = self.survey().identity, part.manifest.identity
        except MissingInput as error:
            raise MissingInput(
                f"{part}: what it was made of is not here ({error}); the pairs' texts are read again: "
                "merge in the folder where the parts were made, with the files that were there"
            ) from error
        if changed := [name for name in then if now.get(name) != then[name]]:
            raise BadData(
                f"{', '.join(changed)}: changed since {part} was made, or not where it was; the pairs' texts "
                "are read again: merge where the parts were made, with the files that were there"
            )


class LabelWorker:
    """Asks about the pairs of queries of a job's run."""

    def __init__(self, job: LabelJob) -> None:
        compute = ComputeOptions(job.precision, job.device, job.threads)
        self._teachers = Teachers(compute, Path(job.cache) if job.cache else None, ExitStack())
        self._ready = ready = prepared(job, self._teachers)
        plan = ready.plan
        self._rows = candidates(ready.run, ready.queries, ready.index.documents, plan.split, plan.depth)

    @property
    def found(self) -> Found:
        """The teachers, and what they compute on."""
        found: dict[str, str] = {}
        for number, ranker in enumerate(self._teachers.neural.values(), 1):
            found |= {
                f"weights of teacher {number}": ranker.fingerprint,
                f"scale of teacher {number}": scale_of(ranker),
                "device in use": ranker.compute.device.type,
                "precision in use": ranker.compute.precision,
            }
        return found

    def run(self, part: Slice, folder: Path, progress: Progress) -> None:
        """Ask about the pairs of a slice. Args: as in :class:`~rankhouse.jobs.jobs.Worker`."""
        started, (truncated, lost) = time.perf_counter(), self._unread()
        mine = list(self._rows.run)[part.start : part.stop]
        pairs = collect(self._ready.rule, self._rows, mine, folder / _ANSWERS, self._ready.plan, progress)
        now = self._unread()
        facts = {"queries": len(mine), "pairs": pairs, "truncated": now[0] - truncated}
        warnings = leaks(self._ready.shared)
        if facts["truncated"]:
            warnings.append(_truncation(facts["truncated"], now[1] - lost))
        seconds = round(time.perf_counter() - started, 3)
        write_report(folder, facts | {"tokens_lost": now[1] - lost, "seconds": seconds, "warnings": warnings})

    def _unread(self) -> tuple[int, int]:
        reports = [ranker.report for ranker in self._teachers.neural.values()]
        return sum(one.truncated for one in reports), sum(one.tokens_lost for one in reports)


class _KnownTeacher:
    """Stands for a teacher whose answers are known: it says what it is, and is never asked."""

    def __init__(self, fingerprint: str, scale: str) -> None:
        self.fingerprint, self.scale = fingerprint, scale

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Refuse: every pair was answered."""
        raise BadData(f"the parts lack the teacher's answers about {len(pairs):,} pairs; make them again")


class _KnownTeachers:
    """Opens the teachers that parts tell of, by the order in which their names come first."""

    def __init__(self, found: Found) -> None:
        self._found, self._numbers = found, dict[str, int]()

    def __call__(self, name: str) -> _KnownTeacher:
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        found = self._found
        return _KnownTeacher(found[f"weights of teacher {number}"], found[f"scale of teacher {number}"])


def _truncation(truncated: int, lost: int) -> str:
    return (
        f"{truncated:,} passages did not fit into the teachers; {lost:,} tokens were not read (cut "
        "smaller passages with --split)"
    )
