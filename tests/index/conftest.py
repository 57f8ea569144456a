"""Small collections for the tests of the index."""

import random

import pytest

from rankhouse.core.nouns import Document, Query

WORDS = [
    f"{a}{b}"
    for a in ("wind", "ship", "rank", "lamp", "stone", "river")
    for b in ("", "s", "ing", "er", "y", "ed")
]


def collection(size: int, seed: int = 0, longest: int = 60) -> list[Document]:
    """Documents of skewed words; ids in no order, some documents empty, one word very frequent in some."""
    rng = random.Random(seed)
    documents = []
    for i in range(size):
        words = [
            WORDS[min(int(rng.expovariate(0.15)), len(WORDS) - 1)] for _ in range(rng.randrange(longest))
        ]
        if i % 17 == 3:
            words = []
        if i % 29 == 5:
            words += ["ship"] * rng.choice([200, 300])
        extra = {"url": f"http://x/{i}", "n": i} if i % 3 == 0 else {}
        title = f"Title {i % 7}" if i % 5 else ""
        documents.append(Document(f"doc-{rng.randrange(10**9)}-{i}", " ".join(words), title, extra))
    return documents


@pytest.fixture(scope="session")
def documents():
    return collection(300)


@pytest.fixture(scope="session")
def queries():
    texts = [
        "ship",
        "ships rivers",
        "winding stone lamp",
        "the of and",
        "unknownword",
        "",
        "title 3",
        "rank " * 5,
    ]
    return [Query(f"q{i}", text) for i, text in enumerate(texts)]
