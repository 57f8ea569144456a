"""Late interaction over stored passages: milliseconds of 1,000 candidates, and bytes of a token.

    OMP_NUM_THREADS=1 python -m benchmarks.late_interaction

A ColBERT of width 128 with random weights, queries of 32 tokens, 1,000 candidates of 75 tokens each;
processor time of ``score_stored`` in one thread, the storages taking turns, medians over the rounds. The
encoder is tiny, so that what is timed is the interaction. Sums are checked against brute force in float64.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tests.models import tiny

from rankhouse.core.nouns import PassageRows
from rankhouse.models.colbert import LateInteraction, stored
from rankhouse.models.colbert_checkpoint import open_colbert

WIDTH, CANDIDATES, TOKENS = 128, 1_000, 75
STORAGES = ("float32", "float16", "int8")


def model(root: Path) -> LateInteraction:
    plain = tiny.with_marks("BertModel", root / "plain")
    tiny.stanford(plain, root / "own", query_maxlen=32)
    path = root / "own" / "model.safetensors"
    weights = load_file(path)
    torch.manual_seed(2)
    weights["linear.weight"] = torch.randn(WIDTH, weights["linear.weight"].shape[1])
    save_file(weights, path, metadata={"format": "pt"})
    return open_colbert(str(root / "own"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        ranker = model(Path(work))
    torch.manual_seed(7)
    vectors = torch.nn.functional.normalize(torch.randn(CANDIDATES * TOKENS, WIDTH), dim=1)
    ends = np.arange(0, CANDIDATES * TOKENS + 1, TOKENS)
    lost = np.zeros(CANDIDATES, np.int64)
    rows = {name: PassageRows(*stored(vectors, name), ends, lost) for name in STORAGES}
    query = "grain prices rose in the harbour"
    asked = ranker.token_vectors(ranker.encode_queries([query]), query=True).values.detach().double().numpy()
    times: dict[str, list[float]] = {name: [] for name in STORAGES}
    for _ in range(chosen.rounds):
        for name in STORAGES:
            start = time.process_time()
            scores = ranker.score_stored(query, rows[name])
            times[name].append(1_000 * (time.process_time() - start))
            scales = rows[name].scales[:, None] if len(rows[name].scales) else 1.0
            exact = (rows[name].values.astype(np.float64) * scales) @ asked.T
            brute = exact.reshape(CANDIDATES, TOKENS, -1).max(1).sum(1)
            assert np.abs(scores - brute).max() < 1e-4, name
    print(f"torch {torch.__version__}, {len(asked)} query tokens, {chosen.rounds} rounds\n")
    print("| storage | ms of 1,000 candidates | fastest | bytes a token |\n| --- | --- | --- | --- |")
    for name in STORAGES:
        size = (rows[name].values.nbytes + rows[name].scales.nbytes) / (CANDIDATES * TOKENS)
        print(f"| {name} | {statistics.median(times[name]):.0f} | {min(times[name]):.0f} | {size:.0f} |")


if __name__ == "__main__":
    main()
