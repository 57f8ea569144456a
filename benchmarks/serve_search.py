"""Searches a second by words through the service, with several clients at once.

    python -m benchmarks.serve_search CORPUS QUERIES [--clients 16] [--seconds 10] [--rounds 3]

Every client asks again as soon as it has its answer: the ten best documents, with snippets and without.
Clients are in a process of their own, on the same machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.serve import Server, running

from rankhouse.io.corpora import read_queries

LOAD = Path(__file__).with_name("serve_load.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("queries")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    program = [sys.executable, "-m", "rankhouse"]
    with tempfile.TemporaryDirectory() as folder:
        index, asked = f"{folder}/index", Path(folder) / "requests.jsonl"
        subprocess.run([*program, "index", given.corpus, "--out", index], check=True, capture_output=True)
        queries = read_queries(given.queries)
        print("| snippets | requests/s | p50 ms | p99 ms | errors |\n|---|--:|--:|--:|--:|")
        with running(Server("rankhouse", [*program, "serve", index]), 1) as url:
            for _ in range(given.rounds):
                for snippets in (True, False):
                    bodies = [{"query": query.text, "k": 10, "snippets": snippets} for query in queries]
                    asked.write_text("\n".join(map(json.dumps, bodies)))
                    words = ["--url", f"{url}/search", "--clients", given.clients, "--seconds", given.seconds]
                    asking = [sys.executable, str(LOAD), str(asked), *map(str, words)]
                    seen = json.loads(subprocess.run(asking, check=True, capture_output=True).stdout)
                    rate = seen["requests"] / given.seconds
                    times = f"{1e3 * seen['p50']:.1f} | {1e3 * seen['p99']:.1f}"
                    print(f"| {'yes' if snippets else 'no'} | {rate:.0f} | {times} | {seen['errors'] or 0} |")


if __name__ == "__main__":
    main()
