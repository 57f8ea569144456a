"""Systems: what ranks, put together from models, rankers and a fusion, under a name that people choose by."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple, Self

from rankhouse.core import notation
from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.io.decoding import read_own
from rankhouse.systems.execution import costly
from rankhouse.systems.notation import system
from rankhouse.systems.short_forms import joined
from rankhouse.systems.stage import Stage
from rankhouse.systems.system import FOUND, Cut, Dense, FusedSystem, Lexical, RerankedSystem, Sparse, System

MOST_STAGES = 9
"""Stages that search or read in a system that comes with a request."""
READ = 100
"""Documents a query that a ranker reads, unless its system says otherwise."""


@dataclass(frozen=True)
class NamedSystem:
    """A system under the name that people choose it by; it calls rankers by their names in the service.

    ``description`` is "" for what the expression says.
    """

    name: str
    system: System
    description: str = ""

    @cached_property
    def ranker(self) -> str:
        """Name of the ranker that reads last; "" where none does."""
        return next(
            (str(part.stage.ranker) for part in self.system.walk() if isinstance(part, RerankedSystem)), ""
        )

    @cached_property
    def rankers(self) -> tuple[str, ...]:
        """Names of the rankers of the service that it needs: encoders, then those that read."""
        parts = list(self.system.walk())
        encoders = [part.ranker for part in parts if isinstance(part, Dense | Sparse)]
        return (*encoders, *(str(part.stage.ranker) for part in parts if isinstance(part, RerankedSystem)))


def asked_system(text: str) -> NamedSystem:
    """Read a system that came with a request; WrongUse if it is none, or too much work for one question."""
    found = system(text)
    stages = set(costly(found))
    deepest = max((part.k for part in found.walk() if isinstance(part, Cut)), default=0)
    if len(stages) > MOST_STAGES or deepest > FOUND:
        raise WrongUse(
            f"the system has {len(stages)} stages and finds up to {deepest:,} documents; ask for at most "
            f"{MOST_STAGES} stages and {FOUND:,} documents, or have it served: rankhouse serve --system"
        )
    return NamedSystem(text, found)


def with_names(system: System, names: Mapping[str, str]) -> System:
    """Return a system that calls its rankers by other names; one without another name keeps its own."""

    def named(part: System) -> System:
        match part:
            case Dense() | Sparse():
                return replace(part, ranker=names.get(part.ranker, part.ranker))
            case RerankedSystem() if (spec := str(part.stage.ranker)) in names:
                return replace(part, stage=replace(part.stage, ranker=names[spec]))
        return part

    return _mapped(system, named)


def with_words(system: System, words: str) -> System:
    """Return a system in which ``bm25``, as a mere name, stands for other words: ``bm25(k1=2, b=1)``."""

    def worded(part: System) -> System:
        if isinstance(part, Lexical) and notation.as_given(part.model) == "bm25":
            return replace(part, model=words)
        return part

    return _mapped(system, worded)


def _mapped(system: System, change: Callable[[System], System]) -> System:
    """Return a system whose parts, then itself, are changed."""
    match system:
        case FusedSystem():
            system = replace(system, systems=tuple(_mapped(part, change) for part in system.systems))
        case Cut() | RerankedSystem():
            system = replace(system, of=_mapped(system.of, change))
    return change(system)


def of_content(words: str) -> str:
    """Return a bm25 that leaves out the function words of questions.

    Alone, it finds more; beside vectors, the mean over collections is the same (``benchmarks/fusions.py``).
    """
    found = notation.parse(words)
    return notation.write(found.name, *found.args, **found.kwargs, query="content")


@lru_cache(maxsize=16)
def usual_systems(
    encoded: tuple[tuple[str, str], ...],
    rankers: tuple[str, ...],
    words: str = "bm25",
    beside_vectors: str = "bm25",
) -> dict[str, NamedSystem]:
    """Return the systems of an index, of encoders with the names of their vectors, and rankers of texts.

    ``words`` is the bm25 that finds documents, ``beside_vectors`` the one in hybrid systems.
    """
    bm25 = Lexical(words)
    systems = [
        NamedSystem("bm25", bm25, "" if words == "bm25" else words),
        NamedSystem("bm25+rm3", Lexical(words, "rm3"), f"{words} with rm3"),
        NamedSystem("ql", Lexical("ql")),
    ]
    for encoder, vectors in encoded:
        named = {} if vectors == "default" else {"name": vectors}
        dense, text = Dense(encoder, vectors), notation.write("dense", encoder, **named)
        suffix = f":{encoder}" if len(encoded) > 1 else ""
        systems.append(NamedSystem(f"dense{suffix}", dense, text))
        hybrid = Cut(joined([Lexical(beside_vectors), dense]), FOUND)
        label = f"{beside_vectors} and {text}, joined by z-scores"
        systems.append(NamedSystem(f"hybrid{suffix}", hybrid, label))
    hybrids = [one for one in systems if one.name.startswith("hybrid")]
    for ranker in rankers:
        read, text = (
            RerankedSystem(bm25, Stage(ranker, depth=READ)),
            f"{ranker} reads the first {READ} of bm25",
        )
        systems.append(NamedSystem(ranker, read, text))
        systems.append(NamedSystem(f"{ranker}+bm25", bm25.fuse(read), f"{text}; both joined by rrf"))
        for one in hybrids[:1]:
            over = RerankedSystem(one.system, Stage(ranker, depth=READ))
            text = f"{ranker} reads the first {READ} of {one.name}"
            systems.append(NamedSystem(over_hybrid(ranker), over, text))
    return {one.name: one for one in systems}


def over_hybrid(ranker: str) -> str:
    """Return the name of the system in which a ranker reads what words and vectors find."""
    return f"hybrid>>{ranker}"


# --- may a ranker rank by default? --------------------------------------------------------------------------


class RankerReport(NamedTuple):
    """What was measured when a ranker was made: its value and its first stage's."""

    measure: str
    ranker: float
    first_stage: float
    questions: str

    @property
    def sentence(self) -> str:
        """Both values, for people."""
        values = f"{self.measure} {self.ranker:.3f}, its first stage {self.first_stage:.3f}"
        return f"on {self.questions} it has {values}"

    @classmethod
    def of(cls, spec: str) -> Self | None:
        """Read the report in the folder of a ranker; None where an adaptation or a training left none.

        The test of an adaptation counts, else its held-out questions; of a training the best validation.
        """
        folder = _folder_of(spec)
        if folder is None:
            return None
        from rankhouse.adaptation.adapt import MEASURE, RESULT, AdaptResult  # with torch, as the ranker has
        from rankhouse.training.folder import LOG
        from rankhouse.training.log import read_log

        if (folder / RESULT).exists():
            result = read_own(folder / RESULT, AdaptResult, "adapt again")
            values, questions = result.held_out, "its held-out questions"
            if result.test:
                values, questions = result.test, "its test questions"
            return cls(MEASURE, values["student"], values["first stage"], questions)
        if (folder / LOG).exists():
            validations = [entry for entry in read_log(folder / LOG) if entry.get("value") is not None]
            if validations:
                best = max(validations, key=lambda entry: float(entry["value"]))
                first = float(best["first_stage"])
                return cls(best["measure"], float(best["value"]), first, "its validation questions")
        return None


def _folder_of(spec: str) -> Path | None:
    """Return the folder in which a ranker was made; None where it has none."""
    if not os.path.isdir(spec):  # noqa: PTH112 - any text, of any length
        try:
            given = notation.parse(spec).args
        except WrongUse:
            return None
        spec = str(given[0]) if given else spec
    if not os.path.isdir(spec):  # noqa: PTH112
        return None
    path = Path(spec)
    return path.parent if path.name == "ranker" else path


def doubt_of(spec: str) -> tuple[str, str]:
    """Return why a ranker is not to rank by default, "" for no reason, and what its report says."""
    try:
        report = RankerReport.of(spec)
    except (RankhouseError, KeyError, ValueError) as error:
        return f"its report cannot be read ({error})", ""
    if report is None:
        return "it has no report that it ranks better than its first stage (--trust does without)", ""
    if report.ranker < report.first_stage:
        return f"{report.sentence} (--trust makes it the default all the same)", ""
    return "", report.sentence


class ReadingTime(NamedTuple):
    """How long a ranker reads for one question, and how long it may to rank by default, in seconds.

    ``seconds`` is None where that is longer than was waited for, or not known: ``fault`` says why. ``worth``
    is what its report says of it, "" where that was not asked for.
    """

    ranker: str
    seconds: float | None
    most: float
    fault: str = ""
    worth: str = ""

    @property
    def is_quick(self) -> bool:
        """Whether people need not choose the ranker to be answered by it."""
        return self.seconds is not None and self.seconds <= self.most

    @property
    def sentence(self) -> str:
        """What follows for the default, for people."""
        if not self.most or self.fault:
            reason = self.fault or "as --quick 0 says"
        else:
            taken = f"more than {2 * self.most:g} s" if self.seconds is None else f"{self.seconds:.2g} s"
            reason = f"it takes {taken} to read {READ} documents (limit: {self.most:g} s, --quick)"
            reason += f"; {self.worth}" * bool(self.worth)
        return f"{self.ranker} ranks {'by default' if self.is_quick else 'only when it is chosen'}: {reason}"
