"""Attack the whole command line and count what came of it.

    python -m benchmarks.attack [CAMPAIGN ...] [--share 1.0] [--only TEXT] [--seed 1] [--workers 2] [--out O]

Campaigns that the folder of --out already holds are not done again. Use --fresh to do them again. The exit
code is 1 if any trial went wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from pathlib import Path

from . import (
    aims,
    bad_words,
    changes,
    fuzz,
    hosts,
    kills,
    markup,
    mcp,
    measures,
    monsters,
    odd_files,
    odd_names,
    pretrain,
    proxy,
    same_scores,
    service,
    states,
    stores,
    tabs,
    tight,
    together,
    turned_bits,
    up,
    world,
)
from .imports import apart, prepare
from .verdicts import carry_out, summary, table

CAMPAIGNS = {
    "kills": kills.trials,
    "full disks": tight.trials,
    "two at once": together.trials,
    "changes": changes.trials,
    "aims": aims.trials,
    "bad words": bad_words.trials,
    "monsters": monsters.trials,
    "flipped bytes": turned_bits.trials,
    "fuzzed files": fuzz.trials,
    "markup": markup.trials,
    "same scores": same_scores.trials,
    "stores": stores.trials,
    "damaged states": states.trials,
    "odd names": odd_names.trials,
    "measures": measures.trials,
    "odd files": odd_files.trials,
    "service": service.trials,
    "mcp": mcp.trials,
    "proxy": proxy.trials,
    "pretrain": pretrain.trials,
    "up": up.trials,
    "tabs": tabs.trials,
    "hosts": hosts.trials,
}


def main() -> int:
    """Do the campaigns; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=", ".join(CAMPAIGNS))
    parser.add_argument("--share", type=float, default=1.0, help="of the trials, drawn by the seed")
    parser.add_argument("--only", default="", metavar="TEXT", help="trials with this in their name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("attack.out"))
    parser.add_argument("--fresh", action="store_true", help="do again what is done already")
    parser.add_argument("--light", action="store_true", help="nothing that needs rankers")
    asked = parser.parse_args()
    if unknown := set(asked.campaigns) - set(CAMPAIGNS):
        parser.error(f"no such campaign: {', '.join(unknown)}; choose from: {', '.join(CAMPAIGNS)}")
    if asked.light:
        os.environ["ATTACK_LIGHT"] = "1"
    prepare()
    out: Path = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name in asked.campaigns or CAMPAIGNS:
        results = out / f"{name.replace(' ', '-')}.json"
        if asked.fresh or not results.exists():
            results.write_text(json.dumps(_campaign(name, asked, out), indent=1) + "\n")
        counts[name] = json.loads(results.read_text())["counts"]
    shutil.rmtree(out / "world", ignore_errors=True)
    print(table(counts))
    (out / "all.json").write_text(json.dumps(counts, indent=1) + "\n")
    return int(any(c["right"] != c["tried"] for c in counts.values()))


def _campaign(name: str, asked: argparse.Namespace, out: Path) -> dict[str, object]:
    """Do one campaign in a new world; the faults are listed by what they are."""
    began = time.perf_counter()
    home = out / "world"
    if "ATTACK_WORLD" not in os.environ:  # no campaign changes it
        shutil.rmtree(home, ignore_errors=True)
        apart(lambda: world.make(home))
        os.environ["ATTACK_WORLD"] = str(home)
    trials = list(CAMPAIGNS[name](asked.seed))
    if world.light():
        trials = [trial for trial in trials if not world.neural(trial.name)]
    trials = [trial for trial in trials if asked.only in trial.name]
    if asked.share < 1 and trials:
        trials = random.Random(asked.seed).sample(trials, max(1, round(len(trials) * asked.share)))
    records = carry_out(trials, home, asked.workers, out / "scratch")
    seconds = round(time.perf_counter() - began)
    print(f"{name}: {summary(records)} in {seconds} s", file=sys.stderr, flush=True)
    faults = [record for record in records if record["kind"] != "right"]
    for fault in faults[:200]:
        print(f"  {fault['kind']:9} {fault['name'][:200]}: {fault['why'][:200]}", file=sys.stderr)
    return {
        "campaign": name,
        "seed": asked.seed,
        "seconds": seconds,
        "counts": summary(records),
        "faults": faults,
    }


if __name__ == "__main__":
    sys.exit(main())
