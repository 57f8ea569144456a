"""Wrong words on the command line: every option of every command with values that are not accepted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click

from rankhouse.cli.main import cli

from .calls import call
from .verdicts import Trial, Verdict, contents, differences, message, refused
from .world import COMMANDS, command

NUMBERS = ("x", "", "1e3", "nan", "inf", "0x10", "1_0", "٣", "99999999999999999999x", "-", "--", "1;2")
HUGE = ("99999999999999999999", "-99999999999999999999", "1e999", "-1", "0", "2147483648", "9" * 400)
PATHS = ("nowhere", "nowhere/at/all", "mine", "my.index", "empty", "binary", "thesis.txt", "/dev/null", "")
PATHS += ("x" * 300, "a\nb", "/proc/self/mem", "ir_datasets:no/such/set", "corpus.jsonl/x", "loop", "\udcff")
TEXTS = (
    "",
    "nonsense",
    "bm25(",
    "f(x)",
    "__import__('os')",
    "1",
    "None",
    "a" * 5_000,
    "(" * 3_000,
    "\x1b[31m",
)
TEXTS += ("[1,", "{}", "x=1=2", "=", "\u202e", "bm25", "max", "rrf", "9" * 5_000, "lambda: 0", "()", "*")
SURE = {
    "model",
    "feedback",
    "fusion",
    "split",
    "pool",
    "vectors",
    "measure",
    "analyzer",
    "precision",
    "shares",
}
OUTPUTS = {"out", "report", "chart", "per_query", "cache"}
_MOST = 1_600
DEEP = "[" * 1_000 + "]" * 1_000


def _notations() -> dict[str, list[str]]:
    """Read the wrong words of each option."""
    found: dict[str, list[str]] = {}
    option = ""
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines()[1:]:
        words = line.split()
        if not line.startswith(" "):
            option = words.pop(0)
        found.setdefault(option, []).extend(words)
    return found


NOTATIONS = _notations()


def trials(seed: int) -> Iterator[Trial]:
    """Return a drawn part of all wrong words: every option of every command has its share."""
    everything = list(_all_trials(random.Random(seed)))
    yield from random.Random(seed).sample(everything, min(_MOST, len(everything)))


def _all_trials(rng: random.Random) -> Iterator[Trial]:
    """Return wrong values for each option, wrong combinations, and options that do not exist."""
    for name in COMMANDS:
        base = command(name, "out.svg" if name == "paired-wins" else "out")
        known = cli.get_command(click.Context(cli), name)
        assert known is not None
        yield _trial([*base, "--no-such-option"], sure=True)
        yield _trial([name], sure=name != "doctor")
        yield _trial([*base, "--json=5"], sure=True)
        for parameter in known.params:
            yield from _of_parameter(base, parameter)
        for i in range(1, len(base)):
            yield _trial(base[:i], sure=False)  # the line breaks off
        for _ in range(12):
            line = list(base)
            line[rng.randrange(1, len(line))] = rng.choice(TEXTS + HUGE + PATHS)
            yield _trial(line, sure=False)
        for _ in range(6):
            yield _trial([name, *rng.sample(base[1:], len(base) - 1)], sure=False)
    yield _trial(["no-such-command"], sure=True)


def _of_parameter(base: list[str], parameter: click.Parameter) -> Iterator[Trial]:
    name = parameter.name or ""
    if name in OUTPUTS or (isinstance(parameter, click.Option) and parameter.is_flag):
        return
    values: list[tuple[str, bool]] = []
    if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
        values = [(v, not _reads(v, parameter.type)) for v in NUMBERS + HUGE]
    elif isinstance(parameter.type, click.Choice):
        values = [(v, True) for v in ("x", "", "5")]
    else:
        words = NOTATIONS.get(name, [])
        is_path = isinstance(parameter.type, click.Path) or name in (
            "queries",
            "corpus",
            "things",
            "runs",
            "files",
        )
        values = [(v, (name in SURE and not v.endswith(")")) or v in ("x", "")) for v in words]
        values += [(v, False) for v in (PATHS if is_path or not words else ())]
        values += [(v, False) for v in (TEXTS if not is_path else TEXTS[:4])]
        values += [(f"x({DEEP})", name in SURE)]
    for value, bad in values:
        sure = bad and name not in ("tag", "field", "names", "name")
        if isinstance(parameter, click.Argument):
            yield _trial([base[0], value, *base[2:]], sure=False)
        else:
            yield _trial(_with(base, parameter.opts, value), sure=sure)


def _reads(value: str, kind: click.ParamType) -> bool:
    try:
        kind.convert(value, None, None)
    except click.ClickException:
        return False
    return True


def _with(base: list[str], options: list[str], value: str) -> list[str]:
    """Return a command line with an option's value replaced, or the option added."""
    for i, word in enumerate(base[:-1]):
        if word in options:
            return [*base[: i + 1], value, *base[i + 2 :]]
    return [*base, options[-1], value]


def _trial(line: list[str], *, sure: bool) -> Trial:
    shown = " ".join(w[:60] if w.replace("-", "").isalnum() else repr(w[:60]) for w in line)
    return Trial(f"rankhouse {shown}", lambda folder: _say(folder, line, sure=sure))


def _say(folder: Path, line: list[str], *, sure: bool) -> Verdict:
    """Give a wrong line; what was there must stay, and no output may come of what is refused."""
    (folder / "empty").touch()
    (folder / "binary").write_bytes(random.randbytes(5_000))
    (folder / "loop").symlink_to("loop")
    (folder / "out.svg").write_text("of yesterday")
    before = contents(folder)
    done = call(line, folder)
    verdict = refused(done) if sure else message(done)
    after = contents(folder)
    hurt = [n for n in differences(before, after) if n in before and not n.startswith(("my.index", "out"))]
    asked = [
        after_ for word, after_ in pairwise(line) if word in ("--out", "--report", "--chart", "--per-query")
    ]
    hurt = [n for n in hurt if n not in asked]  # a regular file named as an output is replaced as asked
    if done.code not in (0, None):
        hurt += [n for n in differences(before, after) if n in before and n.startswith("out")]
    if "my.index/manifest.json" in before and "my.index/manifest.json" not in after:
        hurt.append("my.index")
    return Verdict("lost", f"exit {done.code}: {', '.join(hurt[:3])}") if hurt else verdict
