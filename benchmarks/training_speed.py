"""How long a training step takes beside sentence-transformers': cross-encoder and bi-encoder.

    python benchmarks/training_speed.py MINILM COLLECTION ... [--threads 1] [--batch 32] [--rounds 5]

MINILM is a folder of sentence-transformers/all-MiniLM-L6-v2; a COLLECTION holds corpus.jsonl.gz and
queries*.jsonl, of which pairs are drawn. Each round, both sides take a step on the same texts: reading them
(tokenisation included), loss, gradients, clipping at 1.0, AdamW at one rate. Theirs are the library's own
model and loss (BinaryCrossEntropyLoss, MultipleNegativesRankingLoss) under autocast with torch's fused AdamW,
which is what its trainer does with ``bf16=True``; the trainer around it is left out on both sides. Processor
seconds of a step, median of the rounds, and the ratio of the medians. Needs sentence-transformers.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import median

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.models.families import open_model
from rankhouse.training.optimizer import Moment
from rankhouse.training.settings import defaults
from rankhouse.training.steps import BatchPart, Stepper

Step = Callable[[Sequence[Pair]], float]
RATE, MAX_LENGTH, SOME = 2e-5, 256, 2000


def ours(notation: str, precision: str) -> Step:
    """Take steps with rankhouse's own stepper."""
    model = open_model(notation)
    settings = defaults(model.family).but(rate=RATE, precision=precision, clip=1.0, device="cpu")
    stepper, taken = Stepper(model, settings), 0

    def step(pairs: Sequence[Pair]) -> float:
        nonlocal taken
        labels = torch.tensor(
            [[1.0 - n % 2] if model.objective == "points" else [1.0] for n in range(len(pairs))]
        )
        result = stepper.step([BatchPart(model.encode(pairs), labels, 1.0)], Moment(taken, 10**6, 0, []))
        taken += 1
        return result.loss

    return step


def theirs_of(
    module: torch.nn.Module, loss: Callable[[Sequence[Pair]], torch.Tensor], precision: str
) -> Step:
    """Take steps as the library's trainer does."""
    optimiser = torch.optim.AdamW(module.parameters(), RATE, weight_decay=0.01, fused=True)

    def step(pairs: Sequence[Pair]) -> float:
        module.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            value = loss(pairs)
        value.backward()  # type: ignore[no-untyped-call]  # torch's own
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        return float(value)

    return step


def their_cross_encoder(folder: str, precision: str) -> Step:
    """Return steps of CrossEncoder with its binary cross-entropy."""
    model = CrossEncoder(folder, num_labels=1, max_length=MAX_LENGTH, device="cpu")
    loss = BinaryCrossEntropyLoss(model)

    def of(pairs: Sequence[Pair]) -> torch.Tensor:
        columns = [[pair.query.text for pair in pairs], [pair.passage.text for pair in pairs]]
        value: torch.Tensor = loss(columns, torch.tensor([1.0 - n % 2 for n in range(len(pairs))]))
        return value

    return theirs_of(model, of, precision)


def their_bi_encoder(folder: str, precision: str) -> Step:
    """Return steps of SentenceTransformer with in-batch negatives."""
    model = SentenceTransformer(folder, device="cpu")
    model.max_seq_length = MAX_LENGTH
    loss = MultipleNegativesRankingLoss(model)

    def of(pairs: Sequence[Pair]) -> torch.Tensor:
        columns = ([pair.query.text for pair in pairs], [pair.passage.text for pair in pairs])
        value: torch.Tensor = loss([model.preprocess(texts) for texts in columns], torch.empty(0))
        return value

    return theirs_of(model, of, precision)


def drawn(folder: Path, count: int, rng: random.Random) -> list[Pair]:
    """Draw pairs of a collection: speed does not depend on what is relevant."""
    documents = list(islice(read_documents(folder / "corpus.jsonl.gz"), SOME))
    queries: list[Query] = list(read_queries(min(folder.glob("queries*.jsonl"))))
    return [
        Pair(Query(str(n), rng.choice(queries).text), Passage(one.id, 0, one.text))
        for n, one in enumerate(rng.choices(documents, k=count))
    ]


def main() -> None:
    """Print one line a collection, kind of model and precision."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("minilm")
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    path = given.minilm
    kinds = {
        "cross-encoder": (
            f'crossencoder("{path}", max_length={MAX_LENGTH}, new_head=1)',
            their_cross_encoder,
        ),
        "bi-encoder": (f'biencoder("{path}", max_length={MAX_LENGTH})', their_bi_encoder),
    }
    print(f"{'collection':<12}{'model':<15}{'precision':<11}{'ours':>8}{'theirs':>8}{'ratio':>7}")
    for folder in given.collections:
        for kind, (notation, make_theirs) in kinds.items():
            for precision in ("fp32", "bf16"):
                sides = (ours(notation, precision), make_theirs(path, precision))
                rng = random.Random(0)
                seconds: tuple[list[float], list[float]] = ([], [])
                for number in range(given.rounds + 1):
                    pairs = drawn(folder, given.batch, rng)
                    for side, taken in zip(sides, seconds, strict=True):
                        start = time.process_time()
                        side(pairs)
                        if number:  # the first warms up
                            taken.append(time.process_time() - start)
                mine, other = (median(taken) for taken in seconds)
                line = f"{folder.name:<12}{kind:<15}{precision:<11}{mine:>8.2f}{other:>8.2f}"
                print(f"{line}{other / mine:>7.2f}", flush=True)


if __name__ == "__main__":
    main()
