"""The score cache: never an old score, never a lost one."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
import warnings
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, BadModel, OutputFailed, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.ranking.cache import CachedRanker, cache_file, pair_keys
from rankhouse.ranking.score_file import ScoreFile


class Overlap:
    """Share of the query's words that the passage has, plus a part that tells texts apart."""

    scale = "similarity"

    def __init__(self, fingerprint="overlap-1", weight=1.0):
        self.fingerprint, self.weight = fingerprint, weight
        self.asked = []

    def score(self, pairs):
        self.asked += [(q.text, p.text) for q, p in pairs]
        return np.array(
            [
                self.weight * len(set(q.text.split()) & set(p.text.split())) + len(p.text) / 3
                for q, p in pairs
            ],
            np.float32,
        )


def pair(query, passage, doc_id="d", index=0):
    return Pair(Query("q", query), Passage(doc_id, index, passage))


PAIRS = [pair(f"red fox {n % 3}", f"a fox runs {n}", f"d{n}") for n in range(20)]


def test_the_same_scores_come_back_and_the_ranker_is_not_asked_again(tmp_path):
    plain = Overlap().score(PAIRS)
    with CachedRanker(Overlap(), tmp_path) as first:
        assert np.array_equal(first.score(PAIRS), plain)
        assert (first.hits, first.misses) == (0, 20)
    quiet = Overlap()
    with CachedRanker(quiet, tmp_path) as second:
        assert np.array_equal(second.score(PAIRS[::-1]), plain[::-1])
        assert (second.hits, second.misses) == (20, 0)
    assert quiet.asked == []


def test_only_missing_pairs_are_asked_for_and_each_text_once(tmp_path):
    with CachedRanker(Overlap(), tmp_path) as ranker:
        ranker.score(PAIRS[:5])
    inner = Overlap()
    with CachedRanker(inner, tmp_path, chunk=3) as ranker:
        twice = [*PAIRS[:8], *[pair(p.query.text, p.passage.text, "elsewhere", 7) for p in PAIRS[:8]]]
        got = ranker.score(twice)
        assert (ranker.hits, ranker.misses) == (13, 3)
    assert inner.asked == [(p.query.text, p.passage.text) for p in PAIRS[5:8]]
    assert np.array_equal(got, Overlap().score(twice))


def test_an_empty_list_of_pairs_gives_an_empty_array(tmp_path):
    with CachedRanker(Overlap(), tmp_path) as ranker:
        assert ranker.score([]).shape == (0,)
        assert ranker.score([]).dtype == np.float32


@pytest.mark.parametrize(
    "changed",
    [
        {"ranker": Overlap("overlap-2", weight=5.0)},
        {"ranker": Overlap(weight=5.0), "policy": "max_length=64"},
    ],
)
def test_another_model_or_policy_never_gets_an_old_score(tmp_path, changed):
    with CachedRanker(Overlap(), tmp_path) as ranker:
        ranker.score(PAIRS)
    with CachedRanker(changed.pop("ranker"), tmp_path, **changed) as ranker:
        assert np.array_equal(ranker.score(PAIRS), Overlap(weight=5.0).score(PAIRS))
        assert ranker.misses == 20


def test_a_calibration_changes_no_score_and_so_no_key(tmp_path):
    ranker = Overlap()
    with CachedRanker(ranker, tmp_path) as cached:
        before = cached.score(PAIRS)
    ranker.scale = 'platt(2.0, -1.0, of="similarity")'
    with CachedRanker(ranker, tmp_path) as cached:
        np.testing.assert_array_equal(cached.score(PAIRS), before)
        assert (cached.hits, cached.misses, cached.scale) == (len(PAIRS), 0, ranker.scale)


def test_another_scale_never_gets_an_old_score(tmp_path):
    with CachedRanker(Overlap(), tmp_path) as ranker:
        ranker.score(PAIRS)
    other = Overlap()
    other.scale = "probability"
    with CachedRanker(other, tmp_path) as ranker:
        ranker.score(PAIRS)
        assert ranker.misses == 20


def test_a_ranker_trained_while_in_use_gets_new_scores(tmp_path):
    inner = Overlap()
    with CachedRanker(inner, tmp_path) as ranker:
        ranker.score(PAIRS)
        inner.fingerprint, inner.weight = "overlap-trained", 9.0
        assert np.array_equal(ranker.score(PAIRS), Overlap(weight=9.0).score(PAIRS))
        assert ranker.fingerprint == "overlap-trained"


texts = st.text(max_size=6) | st.sampled_from(["", " ", "a", "a ", "ab", "\x00", "\ud800", "é", "é"])


@given(st.lists(st.tuples(texts, texts), max_size=12, unique=True))
@settings(max_examples=200, deadline=None)
def test_different_texts_have_different_keys(texts_of_pairs):
    keys = pair_keys([pair(q, p) for q, p in texts_of_pairs])
    assert len(set(keys)) == len(texts_of_pairs)
    assert all(len(key) == 16 for key in keys)


def test_where_the_query_ends_matters():
    assert len(set(pair_keys([pair("ab", "c"), pair("a", "bc"), pair("", "abc"), pair("abc", "")]))) == 4
    length_of_1 = "\0" * 7 + "\x01"  # texts made to look like what separates texts
    length_of_9 = "\0" * 7 + "\x09"
    assert len(set(pair_keys([pair("", f"{length_of_1}c"), pair(length_of_9, "c")]))) == 2


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None)
def test_every_float32_comes_back_to_the_bit(tmp_path_factory, values):
    class Given:
        fingerprint = "given"

        def score(self, pairs):
            return np.array([values[p.passage.index] for p in pairs], np.float32)

    folder = tmp_path_factory.mktemp("bits")
    pairs = [pair("q", f"text {n}", index=n) for n in range(len(values))]
    for _ in range(2):
        with CachedRanker(Given(), folder) as ranker:
            assert np.array_equal(ranker.score(pairs), np.array(values, np.float32))
    assert ranker.misses == 0


def test_what_is_not_a_number_is_passed_on_but_not_kept(tmp_path):
    class Broken:
        fingerprint = "broken"

        def score(self, pairs):
            return np.array([np.nan, 1.0], np.float32)[: len(pairs)]

    with CachedRanker(Broken(), tmp_path) as ranker:
        assert np.isnan(ranker.score(PAIRS[:2])[0])
    with CachedRanker(Broken(), tmp_path) as ranker:
        ranker.score(PAIRS[:2])
        assert (ranker.hits, ranker.misses) == (1, 1)


def test_a_ranker_that_miscounts_is_refused(tmp_path):
    class Short:
        fingerprint = "short"

        def score(self, pairs):
            return np.zeros(len(pairs) - 1, np.float32)

    with CachedRanker(Short(), tmp_path) as ranker, pytest.raises(BadModel, match=r"asked for 20.*\(19,\)"):
        ranker.score(PAIRS)


def test_a_ranker_without_fingerprint_is_refused(tmp_path):
    class Nameless:
        def score(self, pairs):
            return np.zeros(len(pairs), np.float32)

    with pytest.raises(WrongUse, match="Nameless has no fingerprint"):
        CachedRanker(Nameless(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_or_a_file_may_be_named(tmp_path):
    assert cache_file(tmp_path) == tmp_path / "scores.sqlite"
    assert cache_file(tmp_path / "new" / "cache") == tmp_path / "new" / "cache" / "scores.sqlite"
    assert cache_file(tmp_path / "mine.db") == tmp_path / "mine.db"
    with CachedRanker(Overlap(), tmp_path / "new" / "cache") as ranker:
        ranker.score(PAIRS)
    assert (tmp_path / "new" / "cache" / "scores.sqlite").is_file()


def test_a_text_file_is_named_as_no_cache_and_left_alone(tmp_path):
    notes = tmp_path / "notes.db"
    notes.write_text("my notes, " * 1000)
    with pytest.raises(BadData, match=r"notes\.db: .*delete it with its -wal"):
        CachedRanker(Overlap(), notes)
    assert notes.read_text() == "my notes, " * 1000


def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "theirs.sqlite"
    with sqlite3.connect(path) as sql:
        sql.execute("CREATE TABLE scores (ranker, pair, score)")
    sql.close()
    before = path.read_bytes()
    with pytest.raises(BadData, match="of another program"):
        CachedRanker(Overlap(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["theirs.sqlite"]


def test_a_cache_of_another_version_is_refused(tmp_path):
    CachedRanker(Overlap(), tmp_path).close()
    sql = sqlite3.connect(cache_file(tmp_path))
    sql.execute("PRAGMA user_version = 9")
    sql.close()
    with pytest.raises(BadData, match="version 9, this program writes version 2"):
        CachedRanker(Overlap(), tmp_path)


def test_a_cache_of_version_1_gets_checksums(tmp_path):
    pairs = many(5000)
    with CachedRanker(Overlap(), tmp_path) as ranker:
        scores = ranker.score(pairs)
    with sqlite3.connect(cache_file(tmp_path)) as sql:
        sql.executescript(
            "CREATE TABLE old (ranker INTEGER NOT NULL, pair BLOB NOT NULL, score REAL NOT NULL, "
            "PRIMARY KEY (ranker, pair)) WITHOUT ROWID; "
            "INSERT INTO old SELECT ranker, pair, score FROM scores; "
            "DROP TABLE scores; ALTER TABLE old RENAME TO scores; PRAGMA user_version = 1;"
        )
    sql.close()
    with CachedRanker(Overlap(), tmp_path) as ranker:
        assert np.array_equal(ranker.score(pairs), scores)
        assert (ranker.hits, ranker.misses) == (5000, 0)
        assert ranker._store.version == 2
        assert ranker._store.verify() == (1, 5000)


def test_a_changed_score_is_refused(tmp_path):
    with CachedRanker(Overlap(), tmp_path) as ranker:
        ranker.score(PAIRS)
    with sqlite3.connect(cache_file(tmp_path)) as sql:
        sql.execute("UPDATE scores SET score = score + 1 WHERE pair = (SELECT min(pair) FROM scores)")
    sql.close()
    with (
        pytest.raises(BadData, match=r"scores\.sqlite: .*not the one that was kept.*delete it"),
        CachedRanker(Overlap(), tmp_path) as ranker,
    ):
        ranker.score(PAIRS)


def many(n, query="q"):
    return [pair(query, f"passage {i} {'x' * (i % 50)}") for i in range(n)]


def test_a_damaged_file_is_said_so_and_never_answers(tmp_path):
    with CachedRanker(Overlap(), tmp_path) as ranker:
        ranker.score(many(3000))
    path = cache_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[8192:-4096] = os.urandom(len(data) - 12288)
    path.write_bytes(data)
    with (  # the damage may show on opening or on reading
        pytest.raises(BadData, match=r"scores\.sqlite: the score cache is damaged"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", RankhouseWarning)
        with CachedRanker(Overlap(), tmp_path) as ranker:
            ranker.score(many(3000))


def test_a_cut_off_file_is_said_so(tmp_path):
    with CachedRanker(Overlap(), tmp_path) as ranker:
        ranker.score(many(3000))
    path = cache_file(tmp_path)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(BadData, match="damaged"), CachedRanker(Overlap(), tmp_path) as ranker:
        ranker.score(many(3000))


def test_a_locked_file_is_said_so(tmp_path):
    CachedRanker(Overlap(), tmp_path).close()
    holder = sqlite3.connect(cache_file(tmp_path), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(OutputFailed, match=r"scores\.sqlite: .*locked; wait"):
        CachedRanker(Overlap("new"), tmp_path, timeout=0.05)
    holder.execute("ROLLBACK")
    holder.close()


def test_known_scores_can_be_read_while_another_process_writes(tmp_path):
    with CachedRanker(Overlap(), tmp_path) as ranker:
        ranker.score(PAIRS)
    holder = sqlite3.connect(cache_file(tmp_path), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with CachedRanker(Overlap(), tmp_path, timeout=0.05) as ranker:
        assert np.array_equal(ranker.score(PAIRS), Overlap().score(PAIRS))
        assert ranker.misses == 0
    holder.execute("ROLLBACK")
    holder.close()


def test_a_lock_that_lasts_while_ranking_costs_no_scores(tmp_path):
    with CachedRanker(Overlap(), tmp_path, timeout=0.05, chunk=10) as ranker:
        holder = sqlite3.connect(cache_file(tmp_path), isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.warns(RankhouseWarning, match="locked.*Ranking goes on") as seen:
            assert np.array_equal(ranker.score(PAIRS), Overlap().score(PAIRS))
        assert len(seen) == 1
        holder.execute("ROLLBACK")
        holder.close()


def test_a_full_disk_costs_no_scores(tmp_path):
    pairs = many(5000)
    with CachedRanker(Overlap(), tmp_path) as ranker:
        ranker._store._sql.execute("PRAGMA max_page_count = 20")
        with pytest.warns(RankhouseWarning, match="disk is full.*Ranking goes on") as seen:
            assert np.array_equal(ranker.score(pairs), Overlap().score(pairs))
        assert len(seen) == 1
        assert np.array_equal(ranker.score(pairs), Overlap().score(pairs))
    with CachedRanker(Overlap(), tmp_path) as ranker:
        assert np.array_equal(ranker.score(pairs), Overlap().score(pairs))
        assert ranker.hits > 0


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputFailed, match="cannot be made"):
        CachedRanker(Overlap(), tmp_path / "file" / "cache")


CHILD = """
    import sys, time
    import numpy as np
    from rankhouse.core.nouns import Pair, Passage, Query
    from rankhouse.ranking.cache import CachedRanker

    class Slow:
        fingerprint = "slow"
        def score(self, pairs):
            time.sleep(float(sys.argv[4]) * len(pairs))
            return np.array([len(p.passage.text) + 0.5 for p in pairs], np.float32)

    start, stop = int(sys.argv[2]), int(sys.argv[3])
    pairs = [Pair(Query("q", "q"), Passage("d", 0, f"text {n}" + "y" * (n % 7))) for n in range(start, stop)]
    with CachedRanker(Slow(), sys.argv[1], chunk=50) as ranker:
        print("ready", flush=True)
        ranker.score(pairs)
        print(ranker.hits, ranker.misses)
"""


def child(folder, start, stop, pause=0.0):
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            textwrap.dedent(CHILD),
            str(folder),
            str(start),
            str(stop),
            str(pause),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )


def kept(folder):
    sql = sqlite3.connect(cache_file(folder))
    try:
        return sql.execute("SELECT count(*) FROM scores").fetchone()[0]
    finally:
        sql.close()


@pytest.mark.kill
def test_a_killed_ranking_goes_on_where_it_was(tmp_path):
    killed = child(tmp_path, 0, 2000, pause=0.004)
    assert killed.stdout.readline() == "ready\n"
    until = time.monotonic() + 120
    while kept(tmp_path) < 300 and time.monotonic() < until:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    done = kept(tmp_path)
    assert 300 <= done < 2000
    assert done % 50 == 0
    out, _ = child(tmp_path, 0, 2000).communicate(timeout=600)
    assert out == f"ready\n{done} {2000 - done}\n"
    assert kept(tmp_path) == 2000


def test_two_processes_write_at_once(tmp_path):
    both = [child(tmp_path, 0, 2000, 0.0001), child(tmp_path, 1000, 3000, 0.0001)]
    outs = [process.communicate(timeout=600)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all(out.startswith("ready\n") for out in outs)
    assert kept(tmp_path) == 3000
    out, _ = child(tmp_path, 0, 3000).communicate(timeout=600)
    assert out == "ready\n3000 0\n"


def test_many_processes_may_make_the_file_at_once(tmp_path):
    crowd = [child(tmp_path, 0, 100) for _ in range(5)]
    assert [process.communicate(timeout=600)[0].split()[0] for process in crowd] == ["ready"] * 5
    assert [process.returncode for process in crowd] == [0] * 5
    assert kept(tmp_path) == 100


def test_one_ranker_serves_several_threads(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with CachedRanker(Overlap(), tmp_path) as ranker, ThreadPoolExecutor(4) as pool:
        lists = [many(200, f"q{n % 3}") for n in range(12)]
        for pairs, scores in zip(lists, pool.map(ranker.score, lists), strict=True):
            assert np.array_equal(scores, Overlap().score(pairs))


def test_the_cache_never_enters_torch():
    code = "import sys, rankhouse.ranking.cache, rankhouse.ranking.pool; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_a_schema_whose_words_are_no_text_is_damage(tmp_path):
    with closing(ScoreFile(tmp_path / "scores.sqlite", timeout=1.0)):
        pass
    raw = bytearray((tmp_path / "scores.sqlite").read_bytes())
    for place in [i for i in range(len(raw)) if raw[i : i + 5] == b"pair "]:
        raw[place + 1] = 0xC2
    (tmp_path / "scores.sqlite").write_bytes(bytes(raw))
    with (
        pytest.raises(BadData, match="damaged"),
        closing(ScoreFile(tmp_path / "scores.sqlite", timeout=1.0)) as file,
    ):
        file.verify()
