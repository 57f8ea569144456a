"""ModernBERT of ettin-reranker-17m's shape: pairs a second beside MiniLM-L6's and sentence-transformers' own.

    OMP_NUM_THREADS=1 python -m benchmarks.modernbert [--pairs 100] [--tokens 75] [--rounds 7] [--profile]
    OMP_NUM_THREADS=1 python -m benchmarks.modernbert --limit

Random weights of the true shapes (7 layers, 256 wide, of 384, 4 heads, windows of 128, cls and a Dense head;
MiniLM-L6: 6 layers, 384 wide, of 1,536, 12 heads), every pair ``--tokens`` long, one thread. The systems take
turns in every round; what is printed is processor time: each one's median of a call, and the medians of the
ratios within a round. Tokenising is not counted here (texts are known after the first call), but is by
sentence-transformers, whose forward pass alone stands beside its ``predict``. ``--limit``: how long ettin's
products alone would take at the speed of a large product on this processor, beside whole calls, in turns.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from benchmarks.format_folders import chain, encoder

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.bundle import open_ranker
from rankhouse.nn.cpu import onednn_int8
from rankhouse.nn.layers.linear import Linear
from rankhouse.nn.machine import Compute

ETTIN = {
    "num_hidden_layers": 7,
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "local_attention": 128,
    "max_position_embeddings": 1_024,
}
MINILM = {
    "num_hidden_layers": 6,
    "hidden_size": 384,
    "intermediate_size": 1_536,
    "num_attention_heads": 12,
    "max_position_embeddings": 512,
    "num_labels": 1,
}


def texts(encode: Callable[[list[Pair]], np.ndarray], count: int, tokens: int) -> list[Pair]:
    """Make pairs of exactly so many tokens, all different."""
    rng = np.random.default_rng(0)
    words = np.array(["storm", "harbour", "grain", "prices", "ships", "tides", "night", "coal"])
    pairs = []
    for number in range(count):
        query, drawn = "storm harbour grain", rng.choice(words, tokens).tolist()
        low, high = 0, tokens
        while low < high:  # the most words that fit
            middle = (low + high + 1) // 2
            size = encode([Pair(Query("q", query), Passage("p", 0, " ".join(drawn[:middle])))])[0]
            low, high = (middle, high) if size <= tokens else (low, middle - 1)
        text = " ".join(drawn[:low])
        while encode([Pair(Query("q", query), Passage("p", 0, text + " a"))])[0] <= tokens:
            text += " a"
        pairs.append(Pair(Query("q", query), Passage(f"p{number}", 0, text)))
    return pairs


def systems(root: Path, count: int, tokens: int) -> dict[str, Callable[[], object]]:
    """Return name -> one call over all pairs."""
    from sentence_transformers import CrossEncoder

    chain("ModernBertModel", "scores", root / "ettin", "cls", **ETTIN)
    encoder("BertForSequenceClassification", root / "minilm", **MINILM)
    calls: dict[str, Callable[[], object]] = {}
    given = {}
    for name in ("ettin", "minilm"):
        for precision in ("fp32", "bf16", "int8"):
            ranker = open_ranker(str(root / name), Compute(precision, torch.device("cpu"), 1))  # type: ignore[arg-type]
            lengths = lambda some, model=ranker.model: model.encode(some).lengths.numpy()  # noqa: E731
            given.setdefault(name, texts(lengths, count, tokens))
            assert (lengths(given[name]) == tokens).all()
            calls[f"{name}, {precision}"] = lambda ranker=ranker, pairs=given[name]: ranker.score(pairs)
    theirs = CrossEncoder(str(root / "ettin"), device="cpu")
    both = [(pair.query.text, pair.passage.text) for pair in given["ettin"]]
    calls["ettin, sentence-transformers"] = lambda: theirs.predict(both, show_progress_bar=False)
    batches = [theirs.preprocess(both[start : start + 32]) for start in range(0, count, 32)]

    def forward() -> None:
        with torch.inference_mode():
            for batch in batches:
                theirs(dict(batch))

    calls["ettin, their forward pass"] = forward
    return calls


def limits(calls: dict[str, Callable[[], object]], count: int, tokens: int, rounds: int) -> None:
    """Print each precision's whole call beside the least time of its products at the speed of a large one."""
    wide, hidden = ETTIN["hidden_size"], ETTIN["intermediate_size"]
    layer = (
        wide * (3 * wide + wide + 2 * hidden) + hidden * wide
    )  # q, k, v, out, both halves of the gate, down
    work = 2 * count * tokens * ETTIN["num_hidden_layers"] * (layer + 2 * tokens * wide)
    rows, weight = torch.randn(4_096, 1_024), torch.randn(1_024, 1_024)
    layer_of = Linear(weight, None, Compute("fp32", torch.device("cpu"), 1))
    quantised = torch.randint(256, rows.shape, dtype=torch.uint8)
    packed = onednn_int8.pack(torch.randint(-63, 64, weight.shape, dtype=torch.int8))
    large = {
        "fp32": lambda: layer_of(rows),
        "int8": lambda: onednn_int8.multiply(quantised, packed, len(weight)),
    }
    for precision, product in large.items():
        best, call = [float("inf")] * 2, calls[f"ettin, {precision}"]
        for _ in range(rounds + 1):
            for i, each in enumerate((product, call)):
                start = time.process_time()
                each()
                best[i] = min(best[i], time.process_time() - start)
        speed = 2 * rows.numel() * len(weight) / best[0]
        least, whole = work / speed, best[1]
        print(
            f"{precision}: {work / 1e9:.1f} G operations at {speed / 1e9:.0f} G/s: "
            f"{1000 * least:.0f} of the whole call's {1000 * whole:.0f} ms, {least / whole:.0%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=75)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", action="store_true", help="products at this processor's limit")
    parser.add_argument("--profile", metavar="SYSTEM", help='Python\'s profile of one:  "ettin, int8"')
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        calls = systems(Path(work), chosen.pairs, chosen.tokens)
        if chosen.limit:
            limits(calls, chosen.pairs, chosen.tokens, chosen.rounds)
            return
        if chosen.profile:
            profile, own = cProfile.Profile(), calls[chosen.profile]
            own()
            profile.runcall(lambda: [own() for _ in range(chosen.rounds)])
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(chosen.rounds + 1):
            for name, call in calls.items():
                start = time.process_time()
                call()
                if number:  # the first round warms up
                    seconds[name].append(time.process_time() - start)
    print(f"{chosen.pairs} pairs of {chosen.tokens} tokens, {chosen.rounds} rounds, processor time")
    print(
        "| system | ms a call | pairs/s | times ettin's time, fp32 | bf16 | int8 |\n"
        "| --- | --- | --- | --- | --- | --- |"
    )
    for name, spent in seconds.items():
        median = statistics.median(spent)
        ratios = (
            statistics.median(a / b for a, b in zip(spent, seconds[f"ettin, {kind}"], strict=True))
            for kind in ("fp32", "bf16", "int8")
        )
        told = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"| {name} | {1000 * median:.0f} | {chosen.pairs / median:.0f} | {told} |")


if __name__ == "__main__":
    main()
