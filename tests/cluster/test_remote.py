"""--cluster with inputs and outputs behind URLs: an S3 server here, workers that fetch for themselves."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
FIRST = ["--run", "first.run", "--queries", "queries.tsv", "--index", "my.index"]


@pytest.fixture
def bucket(monkeypatch):
    """A bucket of an S3 server on this machine."""
    moto, s3fs = pytest.importorskip("moto.server"), pytest.importorskip("s3fs")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    settings = {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()),
        "AWS_EC2_METADATA_DISABLED": "true",
        "RANKHOUSE_REMOTE_CACHE": str(Path("copies").resolve()),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    store = s3fs.S3FileSystem()
    store.mkdir("bucket")
    yield store, settings
    store.invalidate_cache()
    store.rm("bucket", recursive=True)  # the next server of this process would still have it
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def remote(bucket, cluster):
    """The store, and the program on a cluster of its own with the store's address."""
    store, settings = bucket

    def call(*arguments, code=0):
        process = cluster.command(*arguments, "--cluster-workers", 2, at="ray", **settings)
        found, said = process.wait(300), Path("log.txt").read_text()
        assert found == code, said
        assert "Traceback" not in said
        return said

    return SimpleNamespace(store=store, call=call, settings=settings)


def downloaded(store, name):
    """Fetch a folder of the bucket; gives where it stands."""
    shutil.rmtree("fetched", ignore_errors=True)
    store.get(f"bucket/{name}", "fetched", recursive=True)
    return Path("fetched")


def test_remote_files_are_fetched_by_the_workers(knrm, done, remote):
    rerank = ["rerank", *FIRST, "--ranker", knrm, "--split", "words(16)", *CPU]
    done(*rerank, "--out", "whole.run")
    for name in ("first.run", "queries.tsv", "my.index", "knrm"):
        remote.store.put(name, f"bucket/{name}", recursive=Path(name).is_dir())
    words = [f"s3://bucket/{word}" if Path(word).exists() else word for word in rerank]
    remote.call(*words, "--out", "s3://bucket/new.run")
    assert remote.store.cat("bucket/new.run") == Path("whole.run").read_bytes()
    assert not list(Path("copies").rglob("*.parts"))


@pytest.mark.usefixtures("world")
def test_vectors_go_into_an_index_in_a_bucket(done, bert, contents, remote):
    checkpoint = str(bert("BertModel"))
    remote.store.put(checkpoint, "bucket/checkpoint", recursive=True)
    remote.store.put("my.index", "bucket/my.index", recursive=True)
    done("encode", "--index", "my.index", "--ranker", f"biencoder({checkpoint!r})", *CPU)
    ranker = 'biencoder("s3://bucket/checkpoint")'
    said = remote.call("encode", "--index", "s3://bucket/my.index", "--ranker", ranker, *CPU)
    assert "40 documents" in said
    assert contents(downloaded(remote.store, "my.index")) == contents("my.index")
    assert not list(Path("copies").rglob("*.parts"))
