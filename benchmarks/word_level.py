"""Speed of the word-level rankers: one query, 1,000 passages of 75 words, against straightforward code.

    python benchmarks/word_level.py [--threads 2] [--passages 1000] [--repeat 5] [--part training] [--only TK]
    python benchmarks/word_level.py --part loops --threads 1 --clock cpu [--passages 250] [--repeat 9]
    python benchmarks/word_level.py --part windows --threads 1 --clock cpu [--passages 20] [--repeat 3]

"Whole call" starts from strings and ends with scores. "Straightforward" is the same arithmetic written as
the papers write it: every pair padded and contextualised, the whole tensor of kernels, the post repeated for
every query token and convolved again. Both sides score the same pairs, and the largest difference is printed.
"Stored": passages were read, and made into vectors or word ids, beforehand; ``--part scoring --only TK``.
``--part loops`` times straightforward code, rankhouse in PyTorch alone and rankhouse with the compiled loops
in turn, round by round, and prints the medians of the times and of the rounds' ratios: for busy machines.
``--part windows`` does so with steps of a TK that pools in windows (TUW19-d3), every query with every
passage of 800 words, as ``rankhouse adapt`` teaches it: windows summed in PyTorch, all else compiled, and
windows summed by the compiled loops.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models import tk
from rankhouse.models.knrm import KNRM, ConvKNRMDesign, KNRMDesign
from rankhouse.models.precomputing import KernelModel
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.samcnn import SamCNN, SamCNNDesign
from rankhouse.models.tk import TK, TKDesign
from rankhouse.nn import machine
from rankhouse.nn.layers.kernel_pooling import COUNT_FLOOR, windowed_counts
from rankhouse.nn.layers.match import NORM_EPS
from rankhouse.nn.layers.ragged import TwoSided
from rankhouse.nn.layers.tk_encoder import sinusoids
from rankhouse.nn.machine import Compute, choose
from rankhouse.training.optimizer import OPTIMISERS, parameter_groups

CLOCK = [time.perf_counter]
WORDS, QUERY_WORDS, PASSAGE_WORDS, BATCH = 20_000, 6, 75, 64
WINDOWED_WORDS, WINDOWS = 800, (20, 30, 50, 80, 100, 120, 150)


def collection(passages: int, words: int = PASSAGE_WORDS) -> tuple[str, list[str]]:
    """Draw a query and passages whose words follow Zipf's law, as words of a language do."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, WORDS + 1)
    ids = rng.choice(WORDS, (passages + 1, words), p=share / share.sum())
    texts = [" ".join(f"w{i}" for i in row) for row in ids]
    return " ".join(f"w{i}" for i in ids[-1][:QUERY_WORDS]), texts[:-1]


def norm(x: Tensor, layer: nn.Module) -> Tensor:
    return (
        layer.weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, correction=0, keepdim=True) + 1e-6)
        + layer.bias
    )


def kernel_tensor(match: Tensor, mask: Tensor, kernels: object) -> Tensor:
    """Return all kernels of all matches, (n, q, p, k), and sum them."""
    centres, widths = torch.tensor(kernels.centres), torch.tensor(kernels.widths)
    each = torch.exp(-((match.unsqueeze(-1) - centres) ** 2) / (2 * widths**2))
    return (each * mask[:, None, :, None]).sum(2)


def cosine_matrix(query: Tensor, passage: Tensor) -> Tensor:
    asked, said = (x / (x.norm(dim=-1, keepdim=True) + NORM_EPS) for x in (query, passage))
    return asked @ said.transpose(1, 2)


def plain_tk(model: TK, batch: TwoSided) -> Tensor:
    """TK as its paper and code write it."""

    def context(ids: Tensor, mask: Tensor) -> Tensor:
        words = model.embedding(ids)
        x = words + sinusoids(ids.shape[1], words.shape[2])
        for layer in model.encoder.layers:
            x = norm(layer.narrow(torch.relu(layer.widen(x))) + x, layer.norm_feed)
            heads = layer.attention.heads
            q, k, v = layer.attention.project(x).chunk(3, dim=-1)
            q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
            weights = (q @ k.transpose(-1, -2) * layer.attention.scale).masked_fill(
                ~mask[:, None, None], -1e32
            )
            mixed = (weights.softmax(-1) @ v).transpose(1, 2).flatten(2)
            x = norm(layer.attention.out(mixed) + x, layer.norm_attention)
        return (model.mix * words + (1 - model.mix) * x) * mask.unsqueeze(-1)

    query, passage = batch.query.pad(), batch.passage.pad()
    asked, said = batch.query.mask(), batch.passage.mask()
    match = cosine_matrix(context(query, asked), context(passage, said))
    counts = kernel_tensor(match, said, model.head.kernels)
    logs = (counts.clamp_min(1e-10).log2() * asked.unsqueeze(-1)).sum(1) * model.head.scale
    means = (counts / (said.sum(1)[:, None, None] + 1) * asked.unsqueeze(-1)).sum(1) * model.head.scale
    both = torch.cat([model.head.log_weight(logs), model.head.length_weight(means)], 1)
    return model.head.merge(both).squeeze(1)


def plain_knrm(model: KNRM, batch: TwoSided) -> Tensor:
    """KNRM with the whole kernel tensor."""
    match = cosine_matrix(model.embedding(batch.query.pad()), model.embedding(batch.passage.pad()))
    counts = kernel_tensor(match, batch.passage.mask(), model.kernels)
    logs = (counts.clamp_min(1e-10).log() * batch.query.mask().unsqueeze(-1)).sum(1) * 0.01
    return model.weight(logs).squeeze(1)


def plain_conv_knrm(model: nn.Module, batch: TwoSided) -> Tensor:
    """Conv-KNRM with nine whole kernel tensors."""

    def grams(ids: Tensor) -> list[Tensor]:
        words = model.embedding(ids).transpose(1, 2)
        made = (layer(F.pad(words, (0, i))).relu() for i, layer in enumerate(model.convolutions))
        return [each.transpose(1, 2) for each in made]

    features = []
    for asked, said in product(grams(batch.query.pad()), grams(batch.passage.pad())):
        counts = kernel_tensor(cosine_matrix(asked, said), batch.passage.mask(), model.kernels)
        features.append((counts.clamp_min(1e-10).log() * batch.query.mask().unsqueeze(-1)).sum(1) * 0.01)
    return model.weight(torch.cat(features, 1)).squeeze(1)


def plain_samcnn(model: SamCNN, batch: TwoSided) -> Tensor:
    """SamCNN as its authors' code does it: the post repeated per query token, then one 2-d convolution."""

    def convolve(words: Tensor, encoder: nn.Module) -> Tensor:
        k = encoder.filters.weight.shape[1]
        wide = F.pad(words, (0, 0, k - 1, k - 1)).unsqueeze(1)
        places = F.conv2d(wide, encoder.filters.weight.unsqueeze(1), encoder.filters.bias).squeeze(3).relu()
        return encoder(places.amax(2))

    query, passage = model.embedding(batch.query.pad()), model.embedding(batch.passage.pad())
    parts = [convolve(query, model.text), convolve(passage, model.text)]
    if model.attended is not None:
        n, q, d = query.shape
        p = passage.shape[1]
        repeated = passage.unsqueeze(1).expand(n, q, p, d)
        if model.design.attention == "query":
            scaled = repeated * query.unsqueeze(2)
        else:
            scaled = repeated * cosine_matrix(query, passage).unsqueeze(-1)
        swept = convolve(scaled.reshape(n * q, p, d), model.attended).view(n, q, -1)
        parts.append(swept.mean(1))
    final = model.norm(model.final(torch.cat(parts, 1))).tanh()
    return model.decide(model.dropout(final)).log_softmax(1)[:, 1]


def timed(call: Callable[[], object], repeat: int) -> float:
    """Return the least seconds of ``repeat`` calls, after one that is not counted."""
    call()
    least = float("inf")
    for _ in range(repeat):
        start = CLOCK[0]()
        call()
        least = min(least, CLOCK[0]() - start)
    return least


def score_plainly(
    model: nn.Module, plain: Callable[[nn.Module, TwoSided], Tensor], pairs: list[Pair]
) -> np.ndarray:
    starts = range(0, len(pairs), BATCH)
    with torch.inference_mode():
        return torch.cat([plain(model, model.encode(pairs[s : s + BATCH])) for s in starts]).numpy()


def row(name: str, pairs: int, seconds: float, against: float | None, note: str) -> None:
    factor = f"{against / seconds:7.1f}x" if against else " " * 8
    print(
        f"{name:<34} {1000 * seconds:9.1f} ms {pairs / seconds:10,.0f} pairs/s {factor}  {note}", flush=True
    )


def training_seconds(
    forward: Callable[[], Tensor], model: nn.Module, adam: torch.optim.Optimizer, repeat: int
) -> float:
    """Time whole steps: forward, loss, backward, update."""

    def once() -> None:
        model.zero_grad(set_to_none=True)
        forward().sum().backward()
        adam.step()

    return timed(once, repeat)


def next_query(model: nn.Module, compute: Compute, pairs: list[Pair], repeat: int) -> float:
    """Return the least seconds of a call by a ranker that scored the passages for another query before."""
    other = Query("other", " ".join(pairs[0].passage.text.split()[:QUERY_WORDS]))
    least = float("inf")
    for _ in range(repeat):
        ranker = NeuralRanker(model, compute)
        ranker.score([Pair(other, pair.passage) for pair in pairs])
        start = CLOCK[0]()
        ranker.score(pairs)
        least = min(least, CLOCK[0]() - start)
    return least


def scoring_rows(families: dict[str, tuple], pairs: list[Pair], compute: Compute, repeat: int) -> None:
    """Print whole calls; each call of ours is a ranker's first, with nothing remembered."""
    for name, (model, plain) in families.items():
        model.eval()
        expected = score_plainly(model, plain, pairs)
        slow = timed(lambda m=model, p=plain: score_plainly(m, p, pairs), max(1, repeat // 3))
        row(f"{name}, straightforward", len(pairs), slow, None, "")
        gap = np.abs(NeuralRanker(model, compute).score(pairs) - expected).max()
        seconds = timed(lambda m=model: NeuralRanker(m, compute).score(pairs), repeat)
        row(name, len(pairs), seconds, slow, f"largest gap {gap:.0e}")
        if isinstance(model, SamCNN):
            row(f"{name}, next query", len(pairs), next_query(model, compute, pairs, repeat), slow, "")
        if isinstance(model, KernelModel):
            texts = [pair.passage.text for pair in pairs]
            for storage in ("",) if model.id_format else ("float32", "float16", "int8"):
                stored_row(name, model, pairs[0].query.text, texts, expected, (storage, slow, repeat))


def lesson(pairs: list[Pair]) -> list[Pair]:
    """Give the first pairs queries of their own."""
    own = [" ".join(pair.passage.text.split()[:QUERY_WORDS]) for pair in pairs[:BATCH]]
    return [Pair(Query(f"q{i}", text), pairs[i].passage) for i, text in enumerate(own)]


def training_rows(families: dict[str, tuple], pairs: list[Pair], repeat: int) -> None:
    """Print whole steps a second; every pair has its own query. Ours learns as ``train`` does.

    The straightforward side's optimiser is torch's Adam as it comes.
    """
    for name, (model, plain) in families.items():
        model.train()
        batch = model.encode(lesson(pairs))
        usual = torch.optim.Adam(model.parameters(), lr=1e-6)
        straight = training_seconds(lambda m=model, p=plain, b=batch: p(m, b), model, usual, repeat)
        adam = OPTIMISERS["adam"]()(parameter_groups(model, 1e-6, {}))
        ours = training_seconds(lambda m=model, b=batch: m(b), model, adam, repeat)
        print(
            f"{name:<34} {1 / straight:7.1f} -> {1 / ours:7.1f} steps/s {straight / ours:7.1f}x", flush=True
        )


def loop_rows(families: dict[str, tuple], pairs: list[Pair], compute: Compute, repeat: int) -> None:
    """Print scoring and training steps done in three ways, one after the other in each round."""
    for name, (model, plain) in families.items():
        batch = model.encode(lesson(pairs))
        adam = OPTIMISERS["adam"]()(parameter_groups(model, 1e-6, {}))

        def score(m: nn.Module = model) -> float:
            return timed(lambda: NeuralRanker(m.eval(), compute).score(pairs), 1)

        def score_straight(m: nn.Module = model, p: Callable = plain) -> float:
            return timed(lambda: score_plainly(m.eval(), p, pairs), 1)

        def learn(m: nn.Module = model, b: TwoSided = batch, a: torch.optim.Optimizer = adam) -> float:
            return training_seconds(lambda: m(b), m.train(), a, 1)

        def learn_straight(
            m: nn.Module = model, p: Callable = plain, b: TwoSided = batch, a: torch.optim.Optimizer = adam
        ) -> float:
            return training_seconds(lambda: p(m, b), m.train(), a, 1)

        for what, ours, straight in (
            ("scoring", score, score_straight),
            ("training", learn, learn_straight),
        ):
            rounds = []
            for _ in range(repeat):
                seconds = [straight()]
                for machine.TRAIN_LOOPS in (False, True):
                    seconds.append(ours())
                rounds.append([1000 * each for each in seconds])
            plainly, torch_alone, loops = np.median(rounds, 0)
            ratios = np.median(np.array(rounds)[:, :2] / np.array(rounds)[:, 2:], 0)
            print(
                f"{name:<13} {what:<9} straightforward {plainly:8.1f} ms ({ratios[0]:5.2f}x), PyTorch alone "
                f"{torch_alone:8.1f} ms ({ratios[1]:5.2f}x), loops with {machine.TRAIN_SET} {loops:8.1f} ms",
                flush=True,
            )


def window_rows(passages: int, repeat: int) -> None:
    """Print steps of a TK in windows, every query with every passage, and scoring, in two ways in each round.

    What is scored is the passages for one query: whole, from the match matrices on, and by stored vectors.
    """
    _, texts = collection(passages, WINDOWED_WORDS)
    reading = {"words": "whitespace", "min_count": 1, "width": 256, "passage_length": WINDOWED_WORDS}
    model = TKDesign(**reading, windows=WINDOWS).fresh(texts).train()
    queries = [Query(f"q{i}", " ".join(text.split()[: 2 * QUERY_WORDS])) for i, text in enumerate(texts)]
    pairs = [Pair(query, Passage(f"d{i}", 0, text)) for query in queries for i, text in enumerate(texts)]
    batch = replace(model.encode(pairs), crossed=True)
    adam = OPTIMISERS["adam"]()(parameter_groups(model, 1e-6, {}))
    by_loops, rounds, scored = tk.windowed_logs, [], []

    def in_torch(match: Tensor, query_mask: Tensor, passage_mask: Tensor, **rest: object) -> list[Tensor]:
        true = query_mask[:, :, None, None]
        return [
            (one.clamp_min(COUNT_FLOOR).log() * true).sum(1)
            for one in windowed_counts(match, passage_mask, **rest)
        ]

    for _ in range(repeat):
        seconds = []
        for tk.windowed_logs in (in_torch, by_loops):
            seconds.append(training_seconds(lambda: model(batch), model, adam, 1))
        rounds.append([1000 * each for each in seconds])
    ranker, asked = NeuralRanker(model.eval(), choose("fp32", "cpu", 1)), pairs[:passages]
    with torch.inference_mode():
        batch = model.encode(asked)
        given = model.match(batch), batch.query.mask(at_least=1), batch.passage.mask(at_least=1)
        stored = model.store_passages(texts, "float16")
        calls = (
            lambda: ranker.score(asked),
            lambda: model.head(*given),
            lambda: model.score_stored(asked[0].query.text, stored),
        )
        for _ in range(repeat):
            seconds = []
            for call in calls:
                for tk.windowed_logs in (in_torch, by_loops):
                    seconds.append(timed(call, 1))
            scored.append([1000 * each for each in seconds])
    columns = [(f"a step of {len(pairs)} pairs", rounds)]
    columns += [
        (f"{what} {len(asked)} passages", [one[at : at + 2] for one in scored])
        for at, what in ((0, "scoring"), (2, "windows of"), (4, "stored vectors of"))
    ]
    for what, times in columns:
        plainly, loops = np.median(times, 0)
        ratio = np.median(np.array(times)[:, 0] / np.array(times)[:, 1])
        print(
            f"TK in windows, {what}, {WINDOWED_WORDS} words: in PyTorch {plainly:.0f} ms ({ratio:.2f}x), "
            f"loops {loops:.0f} ms",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--passages", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--part", choices=["scoring", "training", "both", "loops", "windows"], default="both")
    parser.add_argument("--only", default="", help="families whose name holds this")
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: on busy machines, 1 thread"
    )
    options = parser.parse_args()
    CLOCK[0] = time.perf_counter if options.clock == "wall" else time.process_time
    torch.set_num_threads(options.threads)
    if options.part == "windows":
        window_rows(options.passages, options.repeat)
        return
    query, texts = collection(options.passages)
    pairs = [Pair(Query("q", query), Passage(f"d{i}", 0, text)) for i, text in enumerate(texts)]
    reading = {"words": "whitespace", "min_count": 1, "width": 300}
    families = {
        "TK": (TKDesign(**reading).fresh(texts), plain_tk),
        "KNRM": (KNRMDesign(**reading).fresh(texts), plain_knrm),
        "Conv-KNRM": (ConvKNRMDesign(**reading).fresh(texts), plain_conv_knrm),
        "samCNN BiCNN": (SamCNNDesign(**reading, attention=None, overlap=False).fresh(texts), plain_samcnn),
        "samCNN QAtt": (SamCNNDesign(**reading, attention="query", overlap=False).fresh(texts), plain_samcnn),
        "samCNN PAtt": (
            SamCNNDesign(**reading, attention="position", overlap=False).fresh(texts),
            plain_samcnn,
        ),
    }
    families = {name: both for name, both in families.items() if options.only in name}
    print(f"{len(pairs)} passages of {PASSAGE_WORDS} words, query of {QUERY_WORDS} words, whole call")
    print(f"{options.threads} threads, {options.clock} time, best of {options.repeat}")
    if options.part == "loops":
        loop_rows(families, pairs, choose("fp32", "cpu", options.threads), options.repeat)
        return
    if options.part != "training":
        scoring_rows(families, pairs, choose("fp32", "cpu", options.threads), options.repeat)
    if options.part != "scoring":
        print(f"training: batches of {BATCH} pairs, forward, backward and Adam")
        training_rows(families, pairs, options.repeat)


def stored_row(
    name: str,
    model: KernelModel,
    query: str,
    texts: list[str],
    expected: np.ndarray,
    how: tuple[str, float, int],
) -> None:
    """Print scoring by what is stored; the words of passages are read and put into context beforehand."""
    storage, slow, repeat = how
    stored = model.store_passages(texts, *filter(None, [storage]))
    scores = model.score_stored(query, stored)
    seconds = timed(lambda: model.score_stored(query, stored), repeat)
    kept = len(set(np.argsort(-scores)[:100]) & set(np.argsort(-expected)[:100]))
    size = sum(one.nbytes for one in stored)
    note = (
        f"largest gap {np.abs(scores - expected).max():.0e} (scores span {np.ptp(expected):.0e}), "
        f"{kept} of the best 100 stay, {size / len(texts):,.0f} bytes a passage"
    )
    row(f"{name}, stored {storage or 'word ids'}", len(texts), seconds, slow, note)


if __name__ == "__main__":
    main()
