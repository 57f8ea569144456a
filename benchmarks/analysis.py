"""English analysis of a collection: characters a second of one process, and which terms came out.

    python -m benchmarks.analysis CORPUS [CHECKOUT ...]

Reads a JSON Lines collection (.gz too) and analyses it as an index build does, by each checkout in turn (the
present one by default; each needs its compiled extensions), three times; the best is printed. Equal sums mean
equal terms, document by document.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parents[1]
_TIMED = """
import hashlib, sys, time
from pathlib import Path
from rankhouse.index.lexical.analysis import Numbers, analyse
from rankhouse.io.corpora import read_documents
from rankhouse.text.analyze import english
texts = [f"{document.title} {document.text}" for document in read_documents(Path(sys.argv[1]))]
best = float("inf")
for _ in range(3):
    numbers, found = Numbers(english().normal), hashlib.sha256()
    began = time.process_time()
    for start in range(0, len(texts), 1_000):
        analysed = analyse(texts[start : start + 1_000], english(), numbers)
        found.update(analysed.tokens.tobytes())
        found.update(analysed.lengths.tobytes())
        found.update("\\n".join(analysed.terms).encode("utf-8", "surrogatepass"))
    best = min(best, time.process_time() - began)
characters = sum(map(len, texts))
speed = characters / best / 1e6
print(f"{len(texts):,} texts, {characters / 1e6:.1f} million characters: {speed:.1f} million "
      f"a second of processor time, {len(texts) / best:,.0f} texts; terms {found.hexdigest()[:12]}")
"""


def main(corpus: str, *checkouts: str) -> None:
    """Time each checkout in a process of its own."""
    for top in [Path(given).resolve() for given in checkouts] or [_HERE]:
        done = subprocess.run(
            [sys.executable, "-c", _TIMED, corpus],
            env={**os.environ, "PYTHONPATH": str(top / "src")},
            capture_output=True,
            text=True,
            check=True,
        )
        print(f"{top.name}: {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
