"""Do indexes, first stages and rankers give the same bits on two processors?

    python benchmarks/processors.py write FILE.npz                # on one of them
    python benchmarks/processors.py compare FILE.npz OTHER.npz    # on any machine

Texts are drawn from whole numbers, and weights of the light rankers are whole numbers over 1024, so that
nothing depends on a library's random numbers. ``write`` builds indexes of 1,500 documents by three analyzers,
in one segment and after appending, and keeps the SHA-256 of each of their files; ranks them by five first
stages, with and without RM3; scores 60 pairs by each light ranker, and ten by all-MiniLM in fp32 and int8
where the extra ``demo`` is installed.
``compare`` names what differs and by how much, and fails where an index or a first stage does: those have to
be equal to the bit. (A bi-encoder's vectors get length 1 by PyTorch, which adds in another order on ARM.)
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from same_rankings import MODELS, content

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Pair, Passage, Query
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, append, build
from rankhouse.index.lexical.search import LexicalOptions

DOCUMENTS, QUERIES, PAIRS = 1_500, 40, 60
ENCODED, CHARACTERS = 10, 100
"""Passages that an encoder scores, and how much of them: emulated processors are slow."""
ANALYZERS = ("english", "tweet", "whitespace")
LETTERS = "aeiou", "bcdfghjklmnprstvwz", "äéîøßñ", "αβγδλω", "абвгд", "世界文書検索"
ENDINGS = "", "s", "ing", "ed", "ation", "'s", "-like", "ness"
EXACT = ("index ", "run ")
"""What has to be equal to the bit begins so."""
MORE = {"samcnn": {"words": "whitespace(lower=True)"}}


def words(rng: np.random.Generator, count: int) -> list[str]:
    """Draw words of several scripts, with endings that analyzers treat each in its way."""
    found = []
    for i in range(count):
        script = 2 + i % 40 if i % 40 < 4 else 1
        letters = "".join(
            LETTERS[script if at % 2 else 0][int(rng.integers(len(LETTERS[script if at % 2 else 0])))]
            for at in range(int(rng.integers(2, 8)))
        )
        found.append(letters + ENDINGS[int(rng.integers(len(ENDINGS)))])
    return found


def texts(rng: np.random.Generator, vocabulary: list[str], count: int, longest: int) -> list[str]:
    """Draw texts whose words follow Zipf's law: the rank is the vocabulary's size to a power below one."""
    powers = [int(len(vocabulary) ** (part / 1024)) - 1 for part in range(1024)]
    return [
        " ".join(vocabulary[powers[int(draw)]] for draw in rng.integers(0, 1024, int(length)))
        for length in rng.integers(1, longest, count)
    ]


def indexes(documents: list[Document], queries: list[Query]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the checksum of every file of every index, and its rankings."""
    half = len(documents) // 2
    for analyzer in ANALYZERS:
        for parts in ([documents], [documents[:half], documents[half:]]):
            with tempfile.TemporaryDirectory() as scratch:
                out = Path(scratch) / "index"
                for part in parts:
                    (append if part is not parts[0] else build)(
                        part, out, BuildOptions(analyzer=analyzer, workers=1)
                    )
                label = f"{analyzer}, {len(parts)} segments"
                for file in sorted(path for path in out.rglob("*") if path.is_file()):
                    yield f"index {label}: {file.relative_to(out)}", checksum(file.read_bytes())
                index = Index.open(out)
                for model in MODELS:
                    for feedback in ("", "rm3"):
                        run = content(index, queries, LexicalOptions(model, feedback, 100))
                        yield f"run {label}: {model} {feedback or '-'}", checksum(run)


def checksum(data: bytes) -> np.ndarray:
    """Return the SHA-256 of bytes."""
    return np.frombuffer(hashlib.sha256(data).digest(), np.uint8)


def light_rankers(queries: list[str], passages: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield scores of every family that is trained from the start, in fp32."""
    import torch

    from rankhouse.models.families import DESIGNS
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.nn.machine import choose

    pairs = [
        Pair(Query(f"q{i % len(queries)}", queries[i % len(queries)]), Passage(f"d{i}", 0, text))
        for i, text in enumerate(passages)
    ]
    for name in sorted(DESIGNS):
        if name.startswith("cedr"):
            continue  # begins with a published encoder
        model = DESIGNS[name](**{"min_count": 1} | MORE.get(name, {})).fresh([*queries, *passages], seed=1)
        rng = np.random.Generator(np.random.PCG64(1))
        with torch.no_grad():
            for _, weight in sorted(model.state_dict().items()):
                if weight.is_floating_point() and weight.dim() > 1:
                    drawn = (
                        rng.integers(-256, 257, tuple(weight.shape)) / 1024 * (weight != 0).numpy()
                    )  # padding
                    weight.copy_(torch.tensor(drawn, dtype=weight.dtype))
        yield f"fp32 {name}", NeuralRanker(model, choose("fp32", "cpu", 1)).score(pairs)


def encoder(queries: list[str], passages: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield scores of all-MiniLM as a bi-encoder."""
    from rankhouse.systems.rankers import ComputeOptions, default_ranker, open_ranker

    pairs = [Pair(Query("q", queries[0]), Passage(f"d{i}", 0, text)) for i, text in enumerate(passages)]
    for precision in ("int8", "fp32"):
        try:
            ranker = open_ranker(default_ranker(), ComputeOptions(precision, "cpu", 1))
        except WrongUse as error:
            print(f"all-MiniLM in {precision}: left out ({error})", file=sys.stderr)
            continue
        yield f"{precision} all-MiniLM", np.asarray(ranker.score(pairs))


def write(file: Path) -> None:
    """Compute everything on this processor."""
    rng = np.random.Generator(np.random.PCG64(27))
    vocabulary = words(rng, 4_000)
    bodies, asked = texts(rng, vocabulary, DOCUMENTS, 120), texts(rng, vocabulary, QUERIES, 8)
    documents = [Document(f"d{i}", text, asked[i % QUERIES]) for i, text in enumerate(bodies)]
    found = dict(indexes(documents, [Query(f"q{i}", text) for i, text in enumerate(asked)]))
    try:
        found |= light_rankers(asked, bodies[:PAIRS])
        found |= encoder(asked, [text[:CHARACTERS] for text in bodies[:ENCODED]])
    except ImportError as error:
        print(f"rankers: left out ({error})", file=sys.stderr)
    np.savez(file, **found)
    print(f"{len(found)} results on {platform.machine()}")


def compare(file: Path, other: Path) -> int:
    """Print what differs; return how much of what has to be equal does."""
    wrong = 0
    with np.load(file) as here, np.load(other) as there:
        names = sorted({*here} & {*there})
        for missing in sorted({*here} ^ {*there}):
            print(f"{missing}: only in {file if missing in here else other}")
        for kind in ("index", "run", "fp32", "int8"):
            own = [name for name in names if name.startswith(f"{kind} ")]
            same = [name for name in own if here[name].tobytes() == there[name].tobytes()]
            print(f"{kind}: {len(same)} of {len(own)} equal to the bit")
            for name in sorted({*own} - {*same}):
                wrong += name.startswith(EXACT)
                a, b = here[name].astype(float), there[name].astype(float)
                distance = "" if name.startswith(EXACT) else f" by {np.abs(a - b).max() / a.std():.1e}"
                print(f"  {name} differs{distance}" + " standard deviations at most" * bool(distance))
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", choices=["write", "compare"])
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    if len(given.files) != (1 if given.job == "write" else 2):
        parser.error("write takes one file, compare two")
    sys.exit(bool(write(*given.files) if given.job == "write" else compare(*given.files)))


if __name__ == "__main__":
    main()
