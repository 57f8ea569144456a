"""Indexes of slices become the index of one build: the same bytes, with little more work than copying."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from rankhouse.core.errors import BadIndex
from rankhouse.core.nouns import Document
from rankhouse.index.index import Index
from rankhouse.index.lexical import build as building
from rankhouse.index.lexical import growing, store
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.merge import merge

WORDS = [f"wörd{i}" for i in range(300)] + ["ship", "harbour", "日本語"]


class Rule:
    """Takes what it is told to take; notes what it was asked about."""

    def __init__(self, taken=()):
        self.asked, self._taken = [], list(taken)

    def takes(self, document, index):
        self.asked.append((document.id, index.path.name))
        return self._taken.pop(0)

    def check(self):
        assert not self._taken


def documents(count, seed=1):
    rng = random.Random(seed)
    made = []
    for i in range(count):
        words = rng.choices(WORDS, k=rng.choice([0, 1, 5, 40]))
        if i % 97 == 5:
            words = ["ship"] * 300  # a count of more than a byte
        extra = {"year": i, "tags": ["é", None]} if i % 5 == 0 else {}
        made.append(
            Document(
                f"d{rng.random()}", " ".join(words), rng.choice(["", "A title", "ship of a ship"]), extra
            )
        )
    return made


def bytes_of(index):
    files = (path for path in sorted(Path(index).rglob("*")) if path.is_file())
    return {str(path.relative_to(index)): path.read_bytes() for path in files if path.suffix != ".lock"}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(building, "CHUNK_DOCUMENTS", 16)
    monkeypatch.setattr(store, "BLOCK_BYTES", 700)


OPTIONS = BuildOptions("whitespace", segment_tokens=1_500, workers=1, fields=True)


def parts_of(texts, cuts, folder):
    edges = [0, *cuts, len(texts)]
    pairs = [(a, b) for a, b in pairwise(edges) if a < b]
    for a, b in pairs:
        build(texts[a:b], folder / f"part{a}-{b}", OPTIONS)
    return [Index.open(folder / f"part{a}-{b}") for a, b in pairs]


@pytest.mark.quick("0", "3")
@pytest.mark.parametrize("seed", range(6))
def test_any_slices_give_the_bytes_of_one_build(tmp_path, seed):
    texts = documents(500, seed)
    whole = build(texts, tmp_path / "whole", OPTIONS)
    cuts = sorted(random.Random(seed).sample(range(1, 500), seed))
    told = []
    report = merge(
        parts_of(texts, cuts, tmp_path),
        tmp_path / "merged",
        OPTIONS,
        rule := Rule(),
        lambda done, total: told.append((done, total)),
    )
    assert bytes_of(tmp_path / "merged") == bytes_of(tmp_path / "whole")
    assert len(Index.open(tmp_path / "merged").segments) > 2
    assert report == whole
    assert not rule.asked  # no id comes twice
    assert told[-1] == (500, 500)


def test_only_documents_whose_id_comes_again_are_asked_about_and_may_be_left_out(tmp_path):
    texts = documents(300)
    texts[250], texts[299] = (texts[3]._replace(text="another"), texts[200])
    parts = parts_of(texts, [100, 220], tmp_path)
    rule = Rule([True, True, False, False])
    merge(parts, tmp_path / "merged", OPTIONS, rule)
    again = [texts[3].id, texts[200].id]
    assert rule.asked == [
        (again[0], "part0-100"),
        (again[1], "part100-220"),
        (again[0], "part220-300"),
        (again[1], "part220-300"),
    ]
    build([*texts[:250], *texts[251:299]], tmp_path / "whole", OPTIONS)
    assert bytes_of(tmp_path / "merged") == bytes_of(tmp_path / "whole")


def test_blocks_of_texts_are_copied_wherever_they_are_the_same(tmp_path, monkeypatch):
    texts = documents(400)
    parts = parts_of(texts, [210], tmp_path)
    build(texts, tmp_path / "whole", OPTIONS)
    packed, flush = [], store.StoreWriter._flush
    monkeypatch.setattr(store.StoreWriter, "_flush", lambda self: (packed.append(1), flush(self)))
    merge(parts, tmp_path / "merged", OPTIONS, Rule())
    assert bytes_of(tmp_path / "merged") == bytes_of(tmp_path / "whole")
    blocks = sum(len(list(segment.store.blocks())) for segment in Index.open(tmp_path / "merged").segments)
    assert len(packed) < blocks / 2


def test_segments_that_begin_and_end_alike_are_copied(tmp_path, monkeypatch):
    texts = documents(400)
    build(texts, tmp_path / "whole", OPTIONS)
    written, write = [], growing.write_counted
    monkeypatch.setattr(
        growing, "write_counted", lambda *given, **named: (written.append(1), write(*given, **named))
    )
    merge(parts_of(texts, [], tmp_path), tmp_path / "one", OPTIONS, Rule())
    assert not written
    merge(parts_of(texts, [350], tmp_path), tmp_path / "two", OPTIONS, Rule())
    assert 0 < len(written) < len(Index.open(tmp_path / "whole").segments)
    for name in ("one", "two"):
        assert bytes_of(tmp_path / name) == bytes_of(tmp_path / "whole")


def test_a_damaged_slice_leaves_no_index(tmp_path):
    [part] = parts_of(documents(200), [], tmp_path)
    texts = part.segments[0].folder / "store.bin"
    raw = bytearray(texts.read_bytes())
    raw[len(raw) // 2] ^= 1
    texts.write_bytes(raw)
    with pytest.raises(BadIndex, match="damaged"):
        merge([Index.open(part.path)], tmp_path / "merged", OPTIONS, Rule())
    assert not (tmp_path / "merged").exists()
