"""Files and folders whose names are not UTF-8, or hold controls or marks: read, written and printed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

from .calls import call
from .verdicts import Trial, Verdict, message
from .world import COMMANDS, light, neural

NAMES = (
    b"caf\xe9",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"a\nb",
    b"a\x1b[31mb",
    "na\u0308me".encode(),
    "\u202eabc".encode(),
)
_TRIALS = 119


def trials(seed: int) -> Iterator[Trial]:
    """Return commands with all their files under such names, drawn by the seed."""
    rng = random.Random(seed)
    both = [(name, odd) for name in COMMANDS for odd in NAMES if not (light() and neural(name))]
    for name, odd in rng.sample(both, min(_TRIALS, len(both))):
        yield Trial(f"{name} with {odd!r}", lambda f, n=name, o=odd: _called(f, n, os.fsdecode(o)))


def _called(folder: Path, name: str, odd: str) -> Verdict:
    line = []
    for number, word in enumerate(COMMANDS[name]):
        there = folder / word
        if word == "OUT":
            ending = {"evaluate": ".tsv", "paired-wins": ".svg"}.get(name, "")
            line.append(f"{odd}-out{ending}")
        elif word != "recipe.toml" and "/" not in word and there.exists():
            there.rename(folder / f"{odd}-{number}-{word}")
            line.append(f"{odd}-{number}-{word}")
            for later in COMMANDS[name][number + 1 :]:
                if later == word:
                    (folder / f"{odd}-{number}-{word}").rename(there)
                    line[-1] = word
                    break
        else:
            line.append(word)
    return message(call(line, folder))
