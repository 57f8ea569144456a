"""Pairs a second: rankhouse's scoring engine against every other library that is installed.

    python benchmarks/rerank.py [--quick] [--models minilm bert t5-small t5-base] [--long] [--memory]

Weights are random, of the true shapes; texts are made of 30,000 invented words, each one token in every
vocabulary, with the lengths of MS MARCO's passages (mean 75 tokens, lognormal, at most 512). Every system
scores the same passages for the same queries; systems take turns within each round, so that what else the
machine does falls on all of them; the ratios to ours, in bf16 and in int8, are medians over rounds of ratios
within a round.
"order" is Spearman's correlation with our fp32, which tests hold to plain transformers' scores. "of limit" is
the arithmetic of a plain forward pass (all layers, no padding) against what this machine's matrix product
reached in the same round; more than 1 is possible, because part of the last layer's work is left out. Peers
that are not installed are named. They should live in an environment of their own that also holds rankhouse.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from rerank_peers import Peer, peers_for

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.bundle import open_ranker
from rankhouse.nn.layers.linear import Linear
from rankhouse.nn.machine import choose, has_int8

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

WORDS = 30_000
SHAPES = {
    "minilm": (6, 384, 12, 1536),
    "bert": (12, 768, 12, 3072),
    "t5-small": (6, 512, 8, 2048),
    "t5-base": (12, 768, 12, 3072),
}
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
Score = Callable[[str, Sequence[str]], np.ndarray]
Clock = Callable[[], float]


class Result(NamedTuple):
    """One system in one round."""

    rate: float
    scores: np.ndarray


def invented_words() -> list[str]:
    rng = np.random.default_rng(0)
    words: dict[str, None] = {}
    while len(words) < WORDS:
        words["".join(rng.choice(SYLLABLES, rng.integers(2, 5)))] = None
    return list(words)


def passages(n: int, seed: int, mean: float = 75, most: int = 480) -> list[str]:
    """Texts with MS MARCO's lengths: lognormal with the mean asked for."""
    rng, spread = np.random.default_rng(seed), 0.45
    lengths = np.clip(rng.lognormal(np.log(mean) - spread**2 / 2, spread, n), 5, most).astype(int)
    words = invented_words()
    return [" ".join(rng.choice(words, length)) for length in lengths]


def make_checkpoint(name: str, folder: Path) -> Path:
    """Write a checkpoint of the true shape, with a vocabulary of the invented words."""
    path = folder / name
    if path.exists():
        return path
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    layers, width, heads, inner = SHAPES[name]
    if name.startswith("t5"):
        config = transformers.T5Config(
            num_layers=layers, d_model=width, num_heads=heads, d_ff=inner, decoder_start_token_id=0
        )
        transformers.T5ForConditionalGeneration(config).save_pretrained(path)
    else:
        config = transformers.BertConfig(
            num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=inner,
            num_labels=1, initializer_range=0.05,
        )  # fmt: skip
        transformers.BertForSequenceClassification(config).save_pretrained(path)
    tokenizer_of(name).save_pretrained(path)
    return path


def tokenizer_of(name: str) -> PreTrainedTokenizerFast:
    """Make a T5 or BERT tokenizer that knows every invented word."""
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    if name.startswith("t5"):
        fixed = ["<pad>", "</s>", "<unk>", "▁true", "▁false", "▁Query", "▁Document", "▁Relevant", ":", "▁"]
        pieces = fixed + ["▁" + word for word in invented_words()]
        scores = [0.0] * 3 + [-10.0] * (len(pieces) - 3)
        made = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=2))
        made.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
        metaspace = pre_tokenizers.Metaspace()
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
        made.decoder = decoders.Metaspace()
        made.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
        given = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    else:
        fixed = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        made = Tokenizer(
            models.WordPiece({w: i for i, w in enumerate(fixed + invented_words())}, unk_token="[UNK]")
        )
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        ends = [("[CLS]", 2), ("[SEP]", 3)]
        made.post_processor = processors.TemplateProcessing(
            "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
        )
        given = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=512, model_input_names=inputs_of(name), **given
    )


def inputs_of(name: str) -> list[str]:
    return ["input_ids", "attention_mask"] + ["token_type_ids"] * (not name.startswith("t5"))


def ours(path: Path, precision: str, threads: int) -> Peer:
    """Our engine; its memory of tokenised texts is emptied before every run."""
    family = "monot5" if "t5" in path.name else "crossencoder"
    ranker = open_ranker(f'{family}("{path}")', choose(precision, "cpu", threads))

    def score(query: str, texts: Sequence[str]) -> np.ndarray:
        ranker.model.forget()
        pairs = [Pair(Query("q", query), Passage(str(i), 0, text)) for i, text in enumerate(texts)]
        return ranker.score(pairs)

    return Peer(f"rankhouse {precision}", score)


def arithmetic(name: str, texts: Sequence[str], query: str) -> float:
    """Floating-point operations of a plain forward pass without padding."""
    layers, width, _, inner = SHAPES[name]
    around = 3 if not name.startswith("t5") else 7
    lengths = np.array([len(t.split()) for t in texts]) + len(query.split()) + around
    linear = 2 * layers * (4 * width**2 + 2 * width * inner) * lengths.sum()
    return float(linear + 4 * layers * width * (lengths.astype(float) ** 2).sum())


def matrix_limit(threads: int, clock: Clock) -> float:
    """Return the operations a second of one large bf16 product, best of a few."""
    torch.set_num_threads(threads)
    rows, inside, outside = 2048, 768, 3072
    x = torch.randn(rows, inside).bfloat16()
    with torch.inference_mode():
        layer = Linear(torch.randn(outside, inside), None, choose("bf16", "cpu"))
        best = min(timed(lambda: [layer(x) for _ in range(4)], clock)[0] for _ in range(6))
    return 4 * 2 * rows * inside * outside / best


def timed(work: Callable[[], object], clock: Clock) -> tuple[float, object]:
    start = clock()
    result = work()
    return clock() - start, result


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1])


def run_rounds(
    systems: Sequence[Peer], queries: Sequence[str], texts: Sequence[str], given: argparse.Namespace
) -> tuple[dict[str, list[Result]], list[float]]:
    """Let systems take turns, each round in another order; give results by name, and the machine's limits."""
    results: dict[str, list[Result]] = {system.name: [] for system in systems}
    limits: list[float] = []
    threads, began = given.threads, time.perf_counter()
    clock = time.process_time if given.processor_time else time.perf_counter
    for number in range(given.rounds):
        taken = time.perf_counter() - began
        if limits and taken * (1 + 1 / len(limits)) > 60 * given.minutes:
            break
        limits.append(matrix_limit(threads, clock))
        turn = number % len(systems)
        for system in [*systems[turn:], *systems[:turn]]:
            torch.set_num_threads(threads)
            query = queries[number % len(queries)]
            seconds, scores = timed(lambda s=system, q=query: s.score(q, texts), clock)
            results[system.name].append(Result(len(texts) / seconds, np.asarray(scores)))
    return results, limits


def report(
    title: str, results: dict[str, list[Result]], limits: list[float], work: float, count: int, exact: str
) -> None:
    ours_by = [results[name] for name in ("rankhouse bf16", "rankhouse int8") if name in results]
    print(f"\n{title}: {work / count / 1e9:.2f} GFLOP a pair; limit {np.median(limits) / 1e9:.0f} GFLOP/s")
    print(f"  {'system':42} {'pairs/s':>9} {'to bf16':>9} {'to int8':>9} {'order':>7} {'of limit':>9}")
    for name, rounds in sorted(results.items(), key=lambda item: -np.median([r.rate for r in item[1]])):
        rate = np.median([r.rate for r in rounds])
        ratios = [np.median([r.rate / b.rate for r, b in zip(rounds, base, strict=True)]) for base in ours_by]
        shown = " ".join(f"{ratio:9.2f}" for ratio in ratios)
        order = np.median([spearman(r.scores, e.scores) for r, e in zip(rounds, results[exact], strict=True)])
        share = np.median([r.rate * work / count / limit for r, limit in zip(rounds, limits, strict=True)])
        print(f"  {name:42} {rate:9.1f} {shown} {order:7.3f} {share:9.2f}", flush=True)


def compare_model(name: str, folder: Path, given: argparse.Namespace, long: bool) -> None:
    """Measure one model in one setting."""
    path = make_checkpoint(name, folder)
    if long:
        texts = passages(given.documents * 14, 5, mean=150, most=151)
        title = f"{name}, {given.documents} documents of 2,000 words in 150-word passages ({len(texts)})"
    else:
        texts, title = passages(given.passages, 1), f"{name}, {given.passages} passages of mean 75 tokens"
    queries = passages(given.rounds, 2, mean=8, most=20)
    precisions = ["bf16", "fp32"] + ["int8"] * has_int8()
    systems = [ours(path, precision, given.threads) for precision in precisions]
    found, absent = peers_for(path, given.threads, given.peers, texts[:64], queries[0])
    for system in [*systems, *found]:
        system.score(queries[0], texts[:32])
    results, limits = run_rounds([*systems, *found], queries, texts, given)
    title += f", {len(limits)} rounds"
    exact = "rankhouse fp32"
    report(title, results, limits, arithmetic(name, texts, queries[0]), len(texts), exact)
    for peer, reason in absent.items():
        print(f"  (left out: {peer}: {reason})")


def memory(name: str, folder: Path, given: argparse.Namespace) -> None:
    """Print the peak memory of scoring 100 and 10,000 candidates, each in a process of its own."""
    path = make_checkpoint(name, folder)
    for n in (100, 1_000, 10_000):
        script = [
            sys.executable,
            __file__,
            "--measure-memory",
            str(path),
            str(n),
            "--threads",
            str(given.threads),
        ]
        done = subprocess.run(script, check=True, capture_output=True, text=True, env=os.environ)
        print(f"  {name}: peak memory with {n:6,} candidates: {done.stdout.strip()} MB", flush=True)


def measure_memory(path: Path, n: int, threads: int) -> None:
    system = ours(path, "bf16", threads)
    some = passages(100, 3)
    system.score("ba bo", (some * (n // 100 + 1))[:n])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--peers", nargs="*", help="parts of the names of peers to run; none: all installed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=6.0, help="begin no round that would end later")
    parser.add_argument("--passages", type=int, default=1_000)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--processor-time", action="store_true", help="a second is one of this process; for a busy machine"
    )
    parser.add_argument("--quick", action="store_true", help="one small round, to see that it runs")
    parser.add_argument("--long", action="store_true", help="also long documents in passages of 150 words")
    parser.add_argument(
        "--memory", action="store_true", help="only peak memory from 100 to 10,000 candidates"
    )
    parser.add_argument("--work", type=Path, help="keep the checkpoints here")
    parser.add_argument("--measure-memory", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.passages, given.documents = 1, 60, 3
    return given


def main() -> None:
    given = arguments()
    if given.measure_memory:
        measure_memory(Path(given.measure_memory[0]), int(given.measure_memory[1]), given.threads)
        return
    print(f"{given.threads} threads; load when started: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.work or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in given.models:
            if given.memory:
                memory(name, folder, given)
                continue
            compare_model(name, folder, given, long=False)
            if given.long:
                compare_model(name, folder, given, long=True)
    print(f"load when finished: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
