"""The page of costs says what the script computes from the kept constants, and the arithmetic is right."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import billion
import zipf_collection

sys.path.pop(0)

PLAN = billion.Plan()


@pytest.fixture
def constants():
    return {name: float(one["value"]) for name, one in billion.kept()[0].items()}


def test_the_page_says_what_the_script_computes():
    written = billion.page(*billion.kept(), PLAN)
    assert "<!--" not in written
    assert billion.PAGE.read_text(encoding="utf-8") == written, "run  python benchmarks/billion.py"


def test_every_constant_says_what_measured_it_and_how_busy_the_machine_was():
    for name, one in billion.kept()[0].items():
        assert one["unit"], name
        assert one["command"], name
        assert one["value"] > 0, name
        assert one["load"] >= 0, name


def test_bytes_and_hours_grow_with_the_passages(constants):
    small, large = (billion.ways(n, constants, PLAN) for n in (10**8, 10**9))
    for name, need in small.items():
        assert large[name].disk == pytest.approx(10 * need.disk)
        assert large[name].hours == pytest.approx(10 * need.hours)
    assert 10**9 * constants["index.seconds"] / 3600 == pytest.approx(large["BM25"].hours)
    assert large["dense, sq8"].memory == pytest.approx(constants["sq8.bytes"])


def test_a_pair_is_paid_a_hundred_times_a_query(constants):
    ways = billion.ways(10**8, constants, PLAN)
    pair = min(constants["cross.pair.seconds.bf16"], constants["cross.pair.seconds.int8"])
    assert ways["BM25, cross-encoder"].seconds - ways["BM25"].seconds == pytest.approx(100 * pair)


@pytest.mark.parametrize(
    ("need", "machines", "bottleneck"),
    [
        (billion.Need(disk=10, memory=64 * 0.7 * 3, hours=1, seconds=1e-3), 3, "memory"),
        (billion.Need(disk=10, memory=1, hours=1, seconds=16 * 0.7 * 2 / 10), 2, "processors"),
        (billion.Need(disk=2000 * 0.7 * 4, memory=1, hours=1, seconds=1e-3), 4, "disk"),
        (billion.Need(disk=10, memory=1, hours=16 * 0.7 * 24 * 31, seconds=1e-3), 1, "building"),
    ],
)
def test_the_bottleneck_is_what_most_machines_are_needed_for(need, machines, bottleneck):
    paid = billion.bill(need, PLAN)
    assert (paid.machines, paid.bottleneck) == (machines, bottleneck)
    assert paid.monthly == pytest.approx(machines * PLAN.price * 730)
    assert paid.building == pytest.approx(need.hours / 16 / 0.7 * PLAN.price)


@pytest.mark.parametrize(
    ("value", "written"), [(0, "0"), (0.00123, "0.0012"), (1.26, "1.3"), (26.4, "26"), (1234567, "1,230,000")]
)
def test_numbers_are_written_short(value, written):
    assert billion.short(value) == written


@pytest.mark.slow
def test_a_collection_is_the_same_from_the_same_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(zipf_collection, "WORDS", 2000)
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        zipf_collection.write(tmp_path / name, 300, seed=seed, queries=5)
    texts = [(tmp_path / name / "corpus.tsv").read_bytes() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]
    lines = texts[0].decode().splitlines()
    assert len(lines) == 300
    words = [len(line.split("\t")[1].split()) for line in lines]
    assert 50 < sum(words) / 300 < 62
    assert len((tmp_path / "a" / "queries.tsv").read_text().splitlines()) == 5
