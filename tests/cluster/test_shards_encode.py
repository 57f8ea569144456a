"""Vectors and kept passages, encoded in shards and merged: the same bytes as one encoding."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import rankhouse as rh

CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]


@pytest.fixture
def tk(world):
    from rankhouse.models import bundle
    from rankhouse.models.tk import TKDesign

    design = TKDesign(words="whitespace", min_count=1, width=12, heads=2)
    bundle.save(design.fresh([document.text for document in world], seed=1), Path("tk"))
    return "tk"


@pytest.fixture(params=["dense", "dense float16", "tk", "tk int8", "tokens"])
def encode(request, world, tk, bert):
    """The command without its output, for every kind of thing that is kept."""
    kind, _, dtype = request.param.partition(" ")
    if kind == "dense":
        ranker = f"biencoder({str(bert('BertModel'))!r})"
    elif kind == "tk":
        ranker = tk
    else:
        ranker = f"crossencoder({str(bert('BertForSequenceClassification', num_labels=2))!r})"
    more = [*(["--dtype", dtype] if dtype else []), *(["--tokens"] if kind == "tokens" else CPU[:2])]
    return ["encode", "--index", "my.index", "--ranker", ranker, "--split", "words(16)", *more, *CPU[2:]]


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 45])
@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")
def test_what_is_encoded_in_shards_is_what_one_machine_writes(done, encode, contents, n):
    shutil.copytree("my.index", "copy.index")
    said = json.loads(done(*encode, "--json").stdout)
    numbers = [*range(2, n + 1), 1]
    for number in numbers:
        done(*[w.replace("my.index", "copy.index") for w in encode], "--shard", f"{number}/{n}", "--out",
             f"parts/{number}")  # fmt: skip
    merged = json.loads(done("merge", "parts", "--out", "copy.index", "--json").stdout)
    assert contents("copy.index") == contents("my.index")
    same = set(said) - {"seconds", "kept"}
    assert {name: merged[name] for name in same} == {name: said[name] for name in same}
    again = done("merge", "parts", "--out", "copy.index")  # nothing to do: what is there is that
    assert contents("copy.index") == contents("my.index"), again.stderr


@pytest.mark.slow
def test_vectors_of_another_encoder_or_index_are_refused(run, done, bert, world, contents):
    one, other = (f"biencoder({str(bert('BertModel', hidden_act=act))!r})" for act in ("gelu", "relu"))
    usual = ["encode", "--index", "my.index", *CPU, "--ranker"]
    done(*usual, other)
    before = contents("my.index/vectors")
    for number in (1, 2):
        done(*usual, one, "--shard", f"{number}/2", "--out", f"parts/{number}")
    refused = run("merge", "parts", "--out", "my.index")
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    assert contents("my.index/vectors") == before
    done("merge", "parts", "--out", "my.index", "--overwrite")
    assert contents("my.index/vectors") != before
    done(*usual, other, "--shard", "2/2", "--out", "parts/2")
    assert "ranker's weights is" in run("merge", "parts", "--out", "my.index").stderr
    rh.Index.build([*world, rh.Document("more", "ships")], "grown.index", workers=1)
    done(*usual, one, "--shard", "2/2", "--out", "parts/2")
    refused = run("merge", "parts", "--out", "grown.index")
    assert refused.returncode == 1
    assert "of an index that has changed since" in refused.stderr


def test_options_of_encode_that_a_shard_cannot_have_are_refused(run, world, bert):
    usual = ["encode", "--index", "my.index", *CPU, "--ranker", f"biencoder({str(bert('BertModel'))!r})"]
    for more, said in [
        (["--shard", "1/2"], "say where it goes"),
        (["--shard", "1/2", "--out", "p", "--vectors", "sq8"], "merge the shards, then"),
        (["--shard", "1/2", "--out", "p", "--overwrite"], "--overwrite is for"),
        (["--out", "p"], "without --shard"),
    ]:
        refused = run(*usual, *more)
        assert refused.returncode == 2, refused.stderr
        assert said in refused.stderr
        assert not Path("p").exists()
