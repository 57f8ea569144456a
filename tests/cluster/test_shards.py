"""Shards of a command's work and their merge: the same bytes as one machine, however it was cut."""

import json
import random
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.core.errors import WrongUse
from rankhouse.io.checksums import sealed
from rankhouse.io.outputs import SHARD_MANIFEST
from rankhouse.jobs import jobs
from rankhouse.jobs.shards import Shard, ShardNumber, load_shard, sum_of

GOLDEN = Path(__file__).parents[1] / "golden"
CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]


@given(st.integers(1, 40), st.integers(0, 200))
def test_shards_follow_each_other_and_differ_by_one_at_most(of, total):
    shards = [ShardNumber(number, of).of_total(total) for number in range(1, of + 1)]
    assert [shards[0].start, *(s.stop for s in shards)] == [*(s.start for s in shards), total]
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "x", "1", "1/0", "-1/4", "1/4/2", "", "1/99999999"])
def test_a_shard_that_is_none_is_refused_with_slurms_words(text):
    with pytest.raises(WrongUse, match=r"--array=1-4.*\$SLURM_ARRAY_TASK_ID/4"):
        ShardNumber.parse(text)
    assert ShardNumber.parse("2/4").of_total(10) == Shard(2, 5, 10)


@pytest.fixture
def rerank(knrm):
    queries = ["--run", "first.run", "--queries", "queries.tsv", "--index", "my.index"]
    return ["rerank", *queries, "--ranker", knrm, "--depth", "10", "--split", "words(16)", *CPU]


@pytest.mark.parametrize("n", [1, 2, 4, 13])
@pytest.mark.parametrize("name", ["new.run", "new.run.gz", "new.run.zst"])
def test_a_run_reranked_in_shards_is_the_run(done, rerank, n, name):
    done(*rerank, "--out", f"whole-{name}")
    for number in range(n, 0, -1):
        done(*rerank, "--shard", f"{number}/{n}", "--out", f"parts/{number}")
    done("merge", *sorted(map(str, Path("parts").iterdir()), key=lambda p: p[::-1]), "--out", name)
    assert Path(name).read_bytes() == Path(f"whole-{name}").read_bytes()


def test_the_run_is_read_once(done, rerank, monkeypatch):
    read, original = [], jobs.read_run
    monkeypatch.setattr(jobs, "read_run", lambda path: (read.append(path), original(path))[1])
    done(*rerank, "--shard", "1/2", "--out", "parts/1")
    assert read == ["first.run"]


@pytest.fixture
def parts(done, rerank):
    for number in range(1, 5):
        done(*rerank, "--shard", f"{number}/4", "--out", f"parts/{number}")
    return Path("parts")


def test_a_part_that_is_there_is_kept_and_one_of_another_job_is_not(run, done, rerank, parts):
    before = (parts / "2" / "part.json").stat().st_mtime_ns
    assert "nothing to do" in done(*rerank, "--shard", "2/4", "--out", "parts/2").stderr
    assert (parts / "2" / "part.json").stat().st_mtime_ns == before
    again = done(*rerank, "--shard", "2/4", "--depth", "5", "--out", "parts/2")
    assert 'depth is "10" there and "5" here' in again.stderr
    finished = (parts / "2" / "part.json").read_bytes()
    for number, depth in (("3/4", "5"), ("3/4", "10"), ("2/3", "5")):
        other = run(*rerank, "--shard", number, "--out", "parts/2", "--depth", depth)
        assert other.returncode == 2
        assert "holds shard 2/4" in other.stderr
        assert "name a folder of its own for each shard" in other.stderr
    assert (parts / "2" / "part.json").read_bytes() == finished


@pytest.mark.usefixtures("rerank")
def test_what_is_wrong_with_parts_is_named(run, done, rerank, parts):
    def refusal(*paths):
        ended = run("merge", *paths, "--out", "new.run")
        assert ended.returncode == 1, ended.stderr
        assert not Path("new.run").exists()
        return ended.stderr

    assert "missing: shard 1/4, shard 3/4" in refusal("parts/2", "parts/4")
    assert "hold the same shard" in refusal("parts", "parts/2")
    done(*rerank, "--shard", "2/3", "--out", "other")
    assert "shards that overlap" in refusal("parts", "other")
    assert "is no shard" in refusal("my.index")
    assert "no such shard" in refusal("nowhere")
    shutil.copy("queries.tsv", "more.tsv")
    Path("queries.tsv").write_text(Path("queries.tsv").read_text().replace("q1\t", "q1\tnight "))
    done(*rerank, "--shard", "3/4", "--out", "parts/3")
    said = refusal("parts")
    assert "parts/3 (shard 3/4" in said
    assert "queries is" in said
    shutil.copy("more.tsv", "queries.tsv")
    done(*rerank, "--shard", "3/4", "--out", "parts/3")
    rows = parts / "1" / "rows.run"
    raw = bytearray(rows.read_bytes())
    raw[10] ^= 1
    rows.write_bytes(raw)
    assert "parts/1/rows.run: does not have the content" in refusal("parts")
    assert "damaged shard" in done(*rerank, "--shard", "1/4", "--out", "parts/1").stderr
    (parts / "2" / "report.json").unlink()
    assert "report.json: is missing" in refusal("parts")
    (parts / "2" / "part.json").write_text("{}")
    assert "parts/2/part.json: the shard is damaged" in refusal("parts")


@pytest.mark.parametrize("option", [["--overwrite"], ["--report", "page.html"]])
def test_options_of_merge_that_change_nothing_are_refused(run, parts, option):
    refused = run("merge", parts, "--out", "new.run", *option)
    assert refused.returncode == 2
    assert f"{option[0]} would change nothing here: these are shards of rerank" in refused.stderr
    assert not Path("new.run").exists()


@pytest.fixture(params=["crossencoder", "monot5", "duot5", "tk", "tk kept"])
def ranker(request, world, done):
    """The notation of a ranker of each family; words of the last one are kept in the index."""
    pytest.importorskip("transformers")
    family = request.param.split()[0]
    if family == "tk":
        from rankhouse.models import bundle
        from rankhouse.models.tk import TKDesign

        design = TKDesign(words="whitespace", min_count=1, width=12, heads=2)
        bundle.save(design.fresh([document.text for document in world], seed=1), Path("tk"))
        if request.param == "tk kept":
            done("encode", "--index", "my.index", "--ranker", "tk", "--split", "words(16)", *CPU)
        return "tk"
    bert, t5 = ("bert/tiny_bert_seqcls2", "bert/vocab.txt"), ("monot5/tiny_t5_v1_0", "monot5/spiece.model")
    source, words = bert if family == "crossencoder" else t5
    shutil.copytree(GOLDEN / source, "checkpoint")
    shutil.copy(GOLDEN / words, "checkpoint")
    if family == "duot5":  # one ranker compares, another chooses the passages that it compares
        return """duot5("checkpoint", passages="monot5('checkpoint')")"""
    return f'{family}("checkpoint")'


@pytest.mark.slow
def test_shards_of_every_family_in_any_order_are_the_run(done, ranker):
    usual = ["rerank", "--run", "first.run", "--queries", "queries.tsv", "--index", "my.index", *CPU]
    usual += ["--ranker", ranker, "--split", "words(16)", "--depth", "12"]
    done(*usual, "--out", "whole.run")
    rng = random.Random(4)
    for n in (2, 5):
        numbers = rng.sample(range(1, n + 1), n)
        for number in numbers:
            done(*usual, "--shard", f"{number}/{n}", "--out", f"parts{n}/{number}")
        rng.shuffle(numbers)
        done("merge", *(f"parts{n}/{number}" for number in numbers), "--out", "new.run")
        assert Path("new.run").read_bytes() == Path("whole.run").read_bytes()


def test_a_folder_of_other_things_is_no_place_for_a_part(run, rerank, contents):
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear")
    refused = run(*rerank, "--shard", "1/2", "--out", "mine")
    assert refused.returncode == 2
    assert "holds something else (letter.txt)" in refused.stderr
    assert contents(Path("mine")).keys() == {"letter.txt"}


def test_reports_of_shards_add_up(done, rerank, parts):
    whole = json.loads(done(*rerank, "--out", "whole.run", "--alone", "--json").stdout)
    merged = json.loads(done("merge", "parts", "--out", "new.run", "--json").stdout)
    for name in ("queries", "documents", "passages", "tail", "unknown", "without_text", "truncated"):
        assert merged[name] == whole[name], name
    assert (merged["command"], merged["parts"]) == ("rerank", 4)
    for number in range(1, 3):
        done(*rerank, "--shard", f"{number}/2", "--out", f"alone/{number}", "--alone", "--cache", "scores")
    alone = json.loads(done("merge", "alone", "--out", "alone.run", "--json").stdout)
    assert alone["times"].keys() == whole["times"].keys()
    assert Path("alone.run").read_bytes() == Path("whole.run").read_bytes()


def test_shards_that_an_earlier_version_made_are_merged(done, rerank, parts, knrm):
    queries = ["--run", "first.run", "--queries", "queries.tsv", "--index", "my.index"]
    rule = f"taught({json.dumps(knrm)}, threshold=0.0, scale='score')"
    for number in (1, 2):
        shard = ["--shard", f"{number}/2", "--out", f"labels/{number}"]
        done("label", "--rule", rule, *queries, "--depth", "10", *CPU, *shard)
    for folder in ("parts/1", "labels/1"):
        shard = load_shard(Path(folder))
        report = json.loads((shard.folder / jobs.REPORT).read_text())
        del report["query_tokens_lost"]
        (shard.folder / jobs.REPORT).write_text(json.dumps(report))
        files = shard.manifest.files | {jobs.REPORT: sum_of(shard.folder / jobs.REPORT)}
        manifest = msgspec.structs.replace(shard.manifest, files=files)
        (shard.folder / SHARD_MANIFEST).write_bytes(sealed(msgspec.json.encode(manifest)))
    done(*rerank, "--out", "whole.run")
    done("merge", "parts", "--out", "new.run")
    assert Path("new.run").read_bytes() == Path("whole.run").read_bytes()
    done("merge", "labels", "--out", "labels.jsonl")
