"""Pre-training: damaged state of a killed one, and odd texts; refused with a reason, or the same bytes."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .calls import call
from .hooks import counting, ending_at
from .kills import _home, _same, _whole
from .verdicts import RIGHT, Trial, Verdict, breakdown, message
from .world import command

_DAMAGED, _ODD = 40, 20
_HARMS = ("half", "empty", "flipped", "gone", "folder", "longer")
_TEXTS = ("", " ", "\x00", "\x1b[2J", "a", "a" * 50_000, "\u202e\u200b\ufeff", "🚢" * 500,
          "<extra_id_0> " * 9,
          "</s><pad>" * 50, "\n\n\n", "ﷺ" * 300, "ship " * 5_000, "٣٢١", "é" * 400)  # fmt: skip


def trials(seed: int) -> Iterator[Trial]:
    """Return pre-trainings that resume from damaged state, and others that read odd texts."""
    rng = random.Random(seed)
    for harm, number in [(rng.choice(_HARMS), rng.randrange(1 << 30)) for _ in range(_DAMAGED)]:
        name = f"pretrain, a file {harm}, {number}"
        yield Trial(name, lambda f, h=harm, n=number: _damaged(f, h, random.Random(n)))
    for number in [rng.randrange(1 << 30) for _ in range(_ODD)]:
        yield Trial(f"pretrain on odd texts {number}", lambda f, n=number: _odd(f, random.Random(n)))


@cache
def _undisturbed() -> tuple[dict[str, str], set[str]]:
    return _whole("pretrain", _home())[:2]


def _damaged(folder: Path, harm: str, rng: random.Random) -> Verdict:
    whole, volatile = _undisturbed()
    line = command("pretrain", "result")
    call(line, folder, before=counting(folder.with_name(f"{folder.name}.changes")))
    total = folder.with_name(f"{folder.name}.changes").stat().st_size
    folder.with_name(f"{folder.name}.changes").unlink()
    shutil.rmtree(folder / "result")
    call(line, folder, before=ending_at(rng.randint(total // 3, total)))
    files = [path for path in sorted((folder / "result").rglob("*")) if path.is_file()]
    files = [path for path in files if not path.name.startswith(".")]
    if not files:
        return RIGHT
    path = rng.choice(files)
    _harm(path, harm, rng)
    done = call(line, folder)
    broken = breakdown(done)
    if broken is not None:
        return Verdict(broken.kind, f"{path.name}: {broken.why}")
    if done.code == 0:
        return RIGHT if _same(folder, whole, volatile) else Verdict("wrong", f"{path.name}: silently differs")
    if path.name not in done.err and "result" not in done.err:
        return Verdict("wrong", f"{path.name}: the message does not name it: {done.err.strip()[-200:]}")
    shutil.rmtree(folder / "result")
    again = call(line, folder)
    if again.code != 0 or not _same(folder, whole, volatile):
        return Verdict("wrong", f"begun again: exit {again.code}: {again.err.strip()[-200:]}")
    return RIGHT


def _harm(path: Path, harm: str, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if harm == "flipped" and content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif harm == "half":
        del content[len(content) // 2 :]
    elif harm == "empty":
        content.clear()
    elif harm == "longer":
        content += b"\x00junk"
    path.unlink()
    if harm == "folder":
        path.mkdir()
    elif harm != "gone":
        path.write_bytes(content)


def _odd(folder: Path, rng: random.Random) -> Verdict:
    """Learn from odd texts; what is learned is whole and finite, or the refusal says why."""
    rows = [{"id": f"d{i}", "text": rng.choice(_TEXTS)} for i in range(rng.choice((0, 1, 3, 40)))]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = call(command("pretrain", "result"), folder)
    verdict = message(done)
    if verdict.kind != "right" or done.code != 0:
        return verdict
    said = (folder / "result" / "log.jsonl").read_text()
    if "NaN" in said or "Infinity" in said or '"loss":null' in said:
        return Verdict("wrong", f"a loss that is no number: {said[-200:]}")
    return RIGHT
