"""Files behind URLs: every station reads and writes them as it reads and writes local ones."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from rankhouse.cli import main as cli
from rankhouse.cli.options import PATH, SOURCE, FileCommand
from rankhouse.core.errors import MissingInput, as_called
from rankhouse.io import remote, staging
from rankhouse.io.remote import MARK, Remote

CORPUS = b"""{"id": "d1", "title": "Pilots", "text": "Pilots board ships and steer them into the harbour."}
{"id": "d2", "text": "The moon pulls the sea; harbours see high water twice a day."}
{"id": "d3", "text": "A lock lifts ships between two levels of water."}
"""
QUERIES, QRELS = b"q1\tpilots steer ships\nq2\thigh water\n", b"q1 0 d1 1\nq2 0 d2 1\n"


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """An empty cache of local copies."""
    folder = tmp_path / "copies"
    monkeypatch.setenv("RANKHOUSE_REMOTE_CACHE", str(folder))
    return folder


@pytest.fixture
def memory():
    """fsspec's file system in memory, empty."""
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    yield fs
    fs.store.clear()


@pytest.fixture(scope="session")
def s3_server():
    """The address of an S3 server on this machine."""
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def s3(s3_server, monkeypatch):
    """An S3 file system with an empty bucket named "bucket"."""
    s3fs = pytest.importorskip("s3fs")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    fs = s3fs.S3FileSystem()
    fs.mkdir("bucket")
    yield fs
    fs.invalidate_cache()
    for path in fs.find("bucket"):
        fs.rm_file(path)
    fs.rmdir("bucket")
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def data(memory):
    """A small collection in memory; gives the file system."""
    memory.pipe({"/in/corpus.jsonl": CORPUS, "/in/queries.tsv": QUERIES, "/in/qrels.txt": QRELS})
    return memory


def indexed(run, copies):
    assert run("index", "memory://in/corpus.jsonl", "--out", "memory://my.index").returncode == 0


def cut_off_after(whole):
    """Return an upload that is cut off behind so many files."""
    put, left = Remote.put, [whole]

    def cut_off(self, path, name):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        put(self, path, name)

    return cut_off


class TestStations:
    def test_a_pipeline_over_urls_gives_the_bytes_of_local_files(self, run, data, copies, tmp_path):
        for name in ("corpus.jsonl", "queries.tsv", "qrels.txt"):
            (tmp_path / name).write_bytes(data.cat(f"/in/{name}"))
        for source, out in (("memory://in/", "memory://out/"), ("", "")):
            index = f"{out}my.index"
            assert run("index", f"{source}corpus.jsonl", "--out", index).returncode == 0
            searched = ("--index", index, "--queries", f"{source}queries.tsv", "--out", f"{out}bm25.run.gz")
            assert run("search", *searched).returncode == 0
            done = run("evaluate", "--qrels", f"{source}qrels.txt", f"{out}bm25.run.gz", "--json",
                       "--per-query", f"{out}each.tsv")  # fmt: skip
            assert done.returncode == 0
        for path in ("bm25.run.gz", "each.tsv", "my.index/manifest.json"):
            assert data.cat(f"/out/{path}") == (tmp_path / path).read_bytes()
        names = {
            p.relative_to(tmp_path).as_posix() for p in (tmp_path / "my.index").rglob("*") if p.is_file()
        }
        assert {path.removeprefix("/out/") for path in data.find("/out/my.index")} == names

    def test_messages_and_json_name_the_url(self, run, data, copies):
        done = run("index", "memory://in/corpus.jsonl", "--out", "memory://my.index", "--json")
        assert json.loads(done.stdout)["index"] == "memory://my.index"
        data.pipe("/in/bad.tsv", b"no tab\n")
        done = run("search", "--index", "memory://my.index", "--queries", "memory://in/bad.tsv", "--out", "x")
        assert done.returncode == 1
        assert done.stderr.startswith("rankhouse: memory://in/bad.tsv, line 1:")

    def test_urls_behind_names_and_in_rules(self, run, data, copies, tmp_path):
        indexed(run, copies)
        named = ("index", "news=memory://in/corpus.jsonl", "--prefix-ids", "--out", "news.index", "--json")
        assert json.loads(run(*named).stdout)["documents"] == 3
        searched = ("--index", "memory://my.index", "--queries", "memory://in/queries.tsv", "--out", "a.run")
        assert run("search", *searched).returncode == 0
        asked = ("--queries", "memory://in/queries.tsv", "--index", "memory://my.index", "--run", "a.run")
        rule = 'judged("memory://in/qrels.txt")'
        done = run("label", "--rule", rule, *asked, "--out", "memory://out/pairs.jsonl")
        assert done.returncode == 0, done.stderr
        assert b'"label":1' in data.cat("/out/pairs.jsonl").replace(b" ", b"")

    def test_encode_adds_to_an_index_and_a_ranker_may_be_remote(self, run, data, copies, tmp_path):
        pytest.importorskip("torch")
        from rankhouse.models import bundle
        from rankhouse.models.tk import TKDesign

        design = TKDesign(min_count=1, width=16, heads=4, attention_width=8, feed_forward=24)
        bundle.save(design.fresh([CORPUS.decode()]), tmp_path / "tk")
        data.put(str(tmp_path / "tk"), "/models/tk", recursive=True)
        indexed(run, copies)
        before = set(data.find("/my.index"))
        cpu = ("--precision", "fp32", "--device", "cpu")
        done = run("encode", "--index", "memory://my.index", "--ranker", "memory://models/tk", *cpu, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["kept"].startswith("memory://my.index/")
        assert before < set(data.find("/my.index"))
        whole = {path: data.cat(path) for path in data.find("/my.index")}
        assert run("index", "memory://in/corpus.jsonl", "--out", "memory://other").returncode == 0
        for shard in ("1/2", "2/2"):
            part = ("--shard", shard, "--out", f"memory://parts/{shard[0]}")
            done = run("encode", "--index", "memory://other", "--ranker", "memory://models/tk", *cpu, *part)
            assert done.returncode == 0, done.stderr
        done = run("merge", "memory://parts", "--out", "memory://other")
        assert done.returncode == 0, done.stderr
        assert {path.replace("/other", "/my.index"): data.cat(path) for path in data.find("/other")} == whole
        queries = ("--queries", "memory://in/queries.tsv")
        assert run("search", "--index", "memory://my.index", *queries, "--out", "a.run").returncode == 0
        asked = ("--run", "a.run", *queries, "--index", "memory://my.index", "--ranker", "memory://models/tk")
        for flag in ("--stored", "--no-stored"):
            done = run("rerank", *asked, flag, *cpu, "--out", f"memory://out/{flag}.run")
            assert done.returncode == 0, done.stderr
        ranked = [
            [row.split()[2] for row in data.cat(f"/out/{flag}.run").splitlines()]
            for flag in ("--stored", "--no-stored")
        ]
        assert ranked[0] == ranked[1]

    def test_a_recipe_takes_urls_as_data(self, run, data, copies, tmp_path):
        (tmp_path / "r.toml").write_text("""title = "remote"
[data]
corpus = "memory://in/corpus.jsonl"
given = "memory://in"
[steps.index]
command = "index"
corpus = "@corpus"
[steps.bm25]
command = "search"
index = "@index"
queries = "@given/queries.tsv"
""")
        done = run("run", "r.toml")
        assert done.returncode == 0, done.stderr
        data.pipe("/in/corpus.jsonl", CORPUS + b'{"id": "d4", "text": "pilots again"}\n')
        assert run("run", "r.toml").returncode == 0
        assert any("d4" in path.read_text() for path in (tmp_path / "r.out").rglob("*.run"))
        done = run("run", "r.toml", "--set", "data.corpus=memory://absent.jsonl")
        assert done.returncode != 0
        assert "memory://absent.jsonl: there is no such file" in " ".join(done.stderr.split())

    def test_slices_of_an_index_need_no_corpus_to_be_merged(self, run, data, copies, tmp_path):
        for shard in ("1/2", "2/2"):
            words = (
                "index",
                "memory://in/corpus.jsonl",
                "--shard",
                shard,
                "--out",
                f"memory://parts/{shard[0]}",
            )
            assert run(*words).returncode == 0
            assert json.loads(run(*words, "--json").stdout)["kept"] is True
        assert str(copies).encode() not in data.cat("/parts/1/part.json")
        data.rm("/in/corpus.jsonl")
        done = run("merge", "memory://parts", "--out", "memory://my.index")
        assert done.returncode == 0, done.stderr
        done = run("search", "--index", "memory://my.index", "--query", "pilots", "--json")
        assert [hit["id"] for hit in json.loads(done.stdout)] == ["d1"]

    def test_slices_and_their_merge(self, run, data, copies, tmp_path):
        pytest.importorskip("torch")
        from rankhouse.models import bundle
        from rankhouse.models.tk import TKDesign

        design = TKDesign(min_count=1, width=16, heads=4, attention_width=8, feed_forward=24)
        bundle.save(design.fresh([CORPUS.decode()]), tmp_path / "tk")
        indexed(run, copies)
        queries = ("--queries", "memory://in/queries.tsv")
        searched = ("--index", "memory://my.index", *queries, "--out", "memory://a.run")
        assert run("search", *searched).returncode == 0
        asked = ("rerank", "--run", "memory://a.run", *queries, "--index", "memory://my.index",
                 "--ranker", "tk", "--precision", "fp32", "--device", "cpu", "--threads", "1")  # fmt: skip
        for shard in ("1/2", "2/2"):
            done = run(*asked, "--shard", shard, "--out", f"memory://parts/{shard[0]}", "--json")
            assert json.loads(done.stdout)["kept"] is False
        part = json.loads(run(*asked, "--shard", "2/2", "--out", "memory://parts/2", "--json").stdout)
        assert (part["kept"], part["part"]) == (True, "memory://parts/2")
        assert str(copies).encode() not in data.cat("/parts/2/part.json")
        assert run("merge", "memory://parts", "--out", "memory://whole.run").returncode == 0
        assert run(*asked, "--out", "memory://once.run").returncode == 0
        assert data.cat("/whole.run") == data.cat("/once.run")
        data.pipe(f"/parts/1/{MARK}", b"afresh")
        done = run("merge", "memory://parts", "--out", "memory://again.run")
        assert (done.returncode, "is being written" in done.stderr) == (1, True)

    def test_a_question_that_looks_like_a_url_is_a_question(self, run, data, copies):
        indexed(run, copies)
        done = run("search", "--index", "memory://my.index", "--query", "memory://absent pilots", "--json")
        assert json.loads(done.stdout)[0]["id"] == "d1"

    def test_every_command_may_be_given_urls(self):
        context = cli.click.Context(cli.cli)
        commands = {name: cli.cli.get_command(context, name) for name in cli.COMMANDS}
        without = {name for name, one in commands.items() if not isinstance(one, FileCommand)}
        assert without <= {"demo", "models", "up"}
        files = {
            "queries",
            "test_queries",
            "valid_queries",
            "corpus",
            "ranker",
            "rankers",
            "teacher",
            "rule_text",
        }
        plain = {(name, p.name) for name, one in commands.items() for p in one.params if p.name in files
                 and p.type not in (SOURCE, PATH)}  # fmt: skip
        assert plain <= {("up", "rankers")}


class TestFolders:
    def test_what_is_there_is_neither_replaced_unasked_nor_added_to(self, run, data, copies):
        indexed(run, copies)
        before = dict(data.store)
        done = run("index", "memory://in/corpus.jsonl", "--out", "memory://my.index")
        assert done.returncode == 2
        assert "memory://my.index: is an index already" in done.stderr
        done = run("index", "memory://in/corpus.jsonl", "--out", "memory://in", "--overwrite")
        assert done.returncode == 2
        assert "memory://in: exists and is no index" in done.stderr
        assert dict(data.store) == before

    def test_an_index_is_replaced_when_asked_and_nothing_of_the_old_is_left(self, run, data, copies):
        indexed(run, copies)
        data.pipe("/my.index/segments/000007/store.bin", b"old")
        data.pipe("/in/other.jsonl", CORPUS[: CORPUS.index(b"\n") + 1])
        done = run("index", "memory://in/other.jsonl", "--out", "memory://my.index", "--overwrite", "--json")
        assert json.loads(done.stdout)["documents"] == 1
        assert not [path for path in data.find("/my.index") if "000007" in path or MARK in path]
        shutil.rmtree(copies)  # what is read next is what was uploaded
        words = ("pilots", "water")
        found = [run("search", "--index", "memory://my.index", "--query", word, "--json") for word in words]
        assert [[hit["id"] for hit in json.loads(one.stdout)] for one in found] == [["d1"], []]

    def test_append_fetches_and_uploads_only_what_is_new(self, run, data, copies):
        indexed(run, copies)
        before = {path: info["created"] for path, info in data.find("/my.index", detail=True).items()}
        data.pipe("/in/more.tsv", b"d9\tpilots again\n")
        assert run("index", "memory://in/more.tsv", "--out", "memory://my.index", "--append").returncode == 0
        after = {path: info["created"] for path, info in data.find("/my.index", detail=True).items()}
        assert [path for path in before if after[path] != before[path]] == ["/my.index/manifest.json"]
        hits = json.loads(run("search", "--index", "memory://my.index", "--query", "pilots", "--json").stdout)
        assert {hit["id"] for hit in hits} == {"d1", "d9"}

    def test_manifests_go_last(self, run, data, copies, monkeypatch):
        order, put = [], Remote.put
        monkeypatch.setattr(
            Remote, "put", lambda self, path, name: (order.append(name), put(self, path, name))
        )
        indexed(run, copies)
        assert order[-1] == "manifest.json"
        assert len(order) > 3

    def test_a_folder_being_written_is_not_read(self, run, data, copies):
        indexed(run, copies)
        data.pipe(f"/my.index/{MARK}", b"afresh")
        done = run("search", "--index", "memory://my.index", "--query", "pilots")
        assert done.returncode == 1
        assert "is being written, or its upload was cut off" in done.stderr

    @pytest.mark.quick("0", "8")
    @pytest.mark.parametrize("whole", range(0, 20, 4))
    def test_an_upload_that_is_cut_off_is_repaired_by_the_same_command(
        self, run, data, copies, monkeypatch, whole
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Remote, "put", cut_off_after(whole))
            assert run("index", "memory://in/corpus.jsonl", "--out", "memory://my.index").returncode == 130
        assert run("search", "--index", "memory://my.index", "--query", "pilots").returncode == 1
        indexed(run, copies)
        done = run("search", "--index", "memory://my.index", "--query", "pilots", "--json")
        assert [hit["id"] for hit in json.loads(done.stdout)] == ["d1"]

    @pytest.mark.quick("7")
    @pytest.mark.parametrize("whole", [0, 7, 18, 19])
    def test_an_append_that_is_cut_off_leaves_the_old_index_or_the_new(
        self, run, data, copies, monkeypatch, whole
    ):
        indexed(run, copies)
        data.pipe("/in/more.tsv", b"d9\tpilots again\n")
        words = ("index", "memory://in/more.tsv", "--out", "memory://my.index", "--append")

        def found():
            done = run("search", "--index", "memory://my.index", "--query", "pilots", "--json")
            return {hit["id"] for hit in json.loads(done.stdout)}

        with monkeypatch.context() as patch:
            patch.setattr(Remote, "put", cut_off_after(whole))
            assert run(*words).returncode == (130 if whole < 19 else 0)
        if whole < 19:
            assert found() == {"d1"}
            assert run(*words).returncode == 0
        assert found() == {"d1", "d9"}

    def test_a_folder_in_a_files_place_is_refused(self, run, data, copies):
        indexed(run, copies)
        done = run("search", "--index", "memory://my.index", "--queries", "memory://in/queries.tsv",
                   "--out", "memory://my.index")  # fmt: skip
        assert done.returncode == 2
        assert "memory://my.index: is read and written" in done.stderr
        done = run("search", "--index", "memory://my.index", "--queries", "memory://in/queries.tsv",
                   "--out", "memory://in")  # fmt: skip
        assert done.returncode == 2
        assert "memory://in: is a folder, a file is to be written" in done.stderr


class TestCopies:
    def test_a_copy_is_fetched_once_a_version(self, run, data, copies, monkeypatch):
        fetched, download = [], staging.download
        monkeypatch.setattr(
            staging,
            "download",
            lambda remote, *rest: (fetched.append(remote.name), download(remote, *rest))[1],
        )
        for _ in range(2):
            indexed_as = ("index", "memory://in/corpus.jsonl", "--out", "here.index", "--overwrite", "--json")
            assert json.loads(run(*indexed_as).stdout)["documents"] == 3
        assert fetched == ["corpus.jsonl"]
        data.pipe("/in/corpus.jsonl", CORPUS + b'{"id": "d4", "text": "new"}\n')
        assert json.loads(run(*indexed_as).stdout)["documents"] == 4

    def test_what_was_uploaded_is_not_fetched_again(self, run, data, copies, monkeypatch):
        indexed(run, copies)
        monkeypatch.setattr(staging, "_fetch", None)
        assert run("search", "--index", "memory://my.index", "--query", "pilots").returncode == 0

    def test_copies_are_cleaned_away_beyond_the_limit_but_never_in_use(self, data, copies, monkeypatch):
        data.pipe({"/a": b"x" * 600, "/b": b"y" * 600})
        monkeypatch.setenv(staging.LIMIT, "1e-6")
        a, b = Remote.at("memory://a"), Remote.at("memory://b")
        with staging.staged(a, a.listing()) as first, staging.staged(b, b.listing()) as second:
            assert first.read_bytes() == b"x" * 600
            assert second.read_bytes() == b"y" * 600
        assert [path for path in (first, second) if path.exists()] in ([first], [second])
        monkeypatch.setenv(staging.LIMIT, "0")
        staging.trim()
        assert not first.exists()
        assert not second.exists()

    def test_a_cut_off_fetch_goes_on_where_it_was(self, data, copies, monkeypatch):
        content = os.urandom(1000)
        data.pipe("/big", content)
        monkeypatch.setattr(staging, "_BLOCK", 100)
        remote = Remote.at("memory://big")
        files = remote.listing()

        def stop(done, total=None):
            if done >= 400:
                raise KeyboardInterrupt

        monkeypatch.setattr(staging.progress, "shown", lambda *_: nullcontext(stop))
        with pytest.raises(KeyboardInterrupt), staging.staged(remote, files):
            pass
        told = []
        note = nullcontext(lambda done, total=None: told.append(done))
        monkeypatch.setattr(staging.progress, "shown", lambda *_: note)
        with staging.staged(remote, files) as local:
            assert local.read_bytes() == content
        assert told[0] == 400

    def test_a_file_that_changes_while_it_is_fetched_is_refused(self, data, copies, monkeypatch):
        remote = Remote.at("memory://in/corpus.jsonl")

        def change(done, total=None):
            data.pipe("/in/corpus.jsonl", b"another content")

        monkeypatch.setattr(staging.progress, "shown", lambda *_: nullcontext(change))
        with (
            pytest.raises(MissingInput, match="was changed while it was fetched"),
            staging.staged(remote, remote.listing()),
        ):
            pass

    def test_names_that_would_leave_the_folder_are_refused(self, run, data, copies):
        data.store["/odd/../../../etc/x"] = data.open("/in/qrels.txt")
        done = run("search", "--index", "memory://odd", "--query", "x")
        assert done.returncode == 1
        assert "which no local file can be named" in done.stderr
        del data.store["/odd/../../../etc/x"]

    def test_a_limit_that_is_no_number(self, run, data, copies, monkeypatch):
        monkeypatch.setenv(staging.LIMIT, "lots")
        done = run("index", "memory://in/corpus.jsonl", "--out", "x.index")
        assert done.returncode == 2
        assert 'RANKHOUSE_REMOTE_CACHE_GB="lots"' in done.stderr

    def test_workers_fetch_by_the_same_text(self, data, copies):
        local = staging.fetched('judged("memory://in/qrels.txt")')
        assert Path(local.split('"')[1]).read_bytes() == QRELS
        assert as_called(local) == 'judged("memory://in/qrels.txt")'
        assert staging.fetched("qrels.txt") == "qrels.txt"


class TestRefusals:
    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("memory://absent", "there is no such file or folder"),
            ("foo://bucket/x", "no file system is known for it"),
            ("gs://bucket/x", 'pip install "rankhouse[cluster]" gcsfs'),
            ("http://127.0.0.1:9/x", "cannot be reached"),
        ],
    )
    def test_inputs(self, run, data, copies, url, said):
        if url.startswith("gs") and any(Path(path, "gcsfs").exists() for path in sys.path):
            pytest.skip("gcsfs is installed")
        done = run("search", "--index", url, "--query", "x")
        assert done.returncode in {1, 2}
        assert done.stderr.startswith(f"rankhouse: {url}: ")
        assert said in " ".join(done.stderr.split())

    def test_outputs(self, run, data, copies):
        done = run("index", "memory://in/corpus.jsonl", "--out", "https://example.org/my.index")
        assert done.returncode == 2
        assert "https:// is only read" in done.stderr
        done = run("rerank", "--cache", "memory://cache", "--help")
        assert done.returncode == 0
        done = run("rerank", "--run", "r", "--queries", "q", "--index", "i", "--ranker", "k", "--out", "o",
                   "--cache", "memory://cache")  # fmt: skip
        assert done.returncode == 2
        assert "only a local path" in done.stderr

    def test_without_fsspec(self, run, copies, monkeypatch):
        monkeypatch.setitem(sys.modules, "fsspec", None)
        done = run("search", "--index", "s3://bucket/x", "--query", "x")
        assert done.returncode == 2
        assert 'pip install "rankhouse[cluster]"' in done.stderr

    def test_a_failed_upload_says_where_the_work_stands(self, run, data, copies, monkeypatch):
        def refuse(self, source, path):
            raise PermissionError("read-only bucket")

        monkeypatch.setattr(type(data), "put_file", refuse)
        done = run("index", "memory://in/corpus.jsonl", "--out", "memory://my.index")
        assert done.returncode == 1
        assert "memory://my.index: may not be written with these credentials" in done.stderr
        folder = Path(done.stderr.strip().rsplit("stands in ", 1)[1])
        assert (folder / "my.index" / "manifest.json").exists()


class TestS3:
    def test_a_pipeline(self, run, s3, copies):
        s3.pipe({"bucket/corpus.jsonl": CORPUS, "bucket/queries.tsv": QUERIES, "bucket/qrels.txt": QRELS})
        assert run("index", "s3://bucket/corpus.jsonl", "--out", "s3://bucket/a/my.index").returncode == 0
        done = run("search", "--index", "s3://bucket/a/my.index", "--queries", "s3://bucket/queries.tsv",
                   "--out", "s3://bucket/bm25.run.gz")  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "written to s3://bucket/bm25.run.gz" in done.stderr
        done = run("evaluate", "--qrels", "s3://bucket/qrels.txt", "s3://bucket/bm25.run.gz", "--json")
        assert "bm25" in done.stdout, done.stderr
        done = run("index", "s3://bucket/corpus.jsonl", "--out", "s3://bucket/a/my.index")
        assert done.returncode == 2

    def test_workers_on_ray_fetch_by_url(self, run, s3, copies, tmp_path, monkeypatch):
        """A worker has a cache of its own, as it has on another machine."""
        pytest.importorskip("ray")
        pytest.importorskip("torch")
        from rankhouse.cluster.worker import JobSetup, JobWorker
        from rankhouse.jobs.encode import EncodeJob
        from rankhouse.jobs.jobs import pack
        from rankhouse.jobs.shards import Shard
        from rankhouse.models import bundle
        from rankhouse.models.tk import TKDesign

        design = TKDesign(min_count=1, width=16, heads=4, attention_width=8, feed_forward=24)
        bundle.save(design.fresh([CORPUS.decode()]), tmp_path / "tk")
        s3.put(str(tmp_path / "tk"), "bucket/tk", recursive=True)
        s3.pipe("bucket/corpus.jsonl", CORPUS)
        assert run("index", "s3://bucket/corpus.jsonl", "--out", "s3://bucket/my.index").returncode == 0
        index, ranker = staging.fetched("s3://bucket/my.index"), staging.fetched("s3://bucket/tk")
        job = EncodeJob(index=index, ranker=ranker, precision="fp32", device="cpu", threads=1)
        options = pack(job)
        assert options["index"] == "s3://bucket/my.index"
        setup = JobSetup("encode", options, job.survey(), tmp_path / "unseen", "token", tmp_path)
        monkeypatch.setenv("RANKHOUSE_REMOTE_CACHE", str(tmp_path / "elsewhere"))
        assert JobWorker(setup).run(Shard(0, 3, 3)).files is not None  # to be sent
        assert list((tmp_path / "elsewhere").glob("in/*/*/my.index/manifest.json"))

    @pytest.mark.outside
    def test_a_cluster_gives_the_bytes_of_one_machine(self, s3, copies, tmp_path):
        """Ray and its workers are processes of their own, with the same S3."""
        pytest.importorskip("ray")
        s3.pipe("bucket/corpus.jsonl", CORPUS)
        words = [sys.executable, "-m", "rankhouse", "index", "s3://bucket/corpus.jsonl", "--out"]
        quiet = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
        for out, cluster in (("one", []), ("many", ["--cluster", "ray", "--cluster-workers", "2"])):
            done = subprocess.run(
                [*words, f"s3://bucket/{out}", *cluster],
                cwd=tmp_path,
                env=quiet,
                capture_output=True,
                check=False,
                text=True,
            )
            assert done.returncode == 0, done.stderr
        s3.invalidate_cache()
        one, many = (
            {path.removeprefix(f"bucket/{out}/"): s3.cat(path) for path in s3.find(f"bucket/{out}")}
            for out in ("one", "many")
        )
        assert one
        assert many == one

    def test_a_bucket_and_keys_that_are_not_there(self, run, s3, copies, monkeypatch):
        done = run("search", "--index", "s3://nobucket/x", "--query", "x")
        assert (done.returncode, "there is no such bucket" in done.stderr) == (1, True)
        done = run("search", "--index", "s3://bucket/x", "--query", "x")
        assert (done.returncode, "there is no such file or folder" in done.stderr) == (1, True)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "absent")
        type(s3).clear_instance_cache()
        done = run("search", "--index", "s3://bucket/x", "--query", "x")
        assert (done.returncode, "AWS_ACCESS_KEY_ID" in done.stderr) == (1, True)

    def test_a_store_that_does_not_answer_is_given_up(self, run, s3, copies, monkeypatch):
        monkeypatch.setattr(remote, "_FIRST_ANSWER", 0.5)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:{1}".format(*silent.getsockname()))
            type(s3).clear_instance_cache()
            done = run("search", "--index", "s3://bucket/x", "--query", "x")
        assert (done.returncode, "cannot be reached (no answer in 0 s)" in done.stderr) == (1, True)

    @pytest.mark.kill
    def test_a_process_killed_while_it_uploads_is_repaired_by_running_again(self, run, s3, copies, tmp_path):
        s3.pipe("bucket/corpus.jsonl", CORPUS)
        words = ["index", "s3://bucket/corpus.jsonl", "--out", "s3://bucket/my.index"]
        process = subprocess.Popen([sys.executable, "-m", "rankhouse", *words], cwd=tmp_path)
        while process.poll() is None:
            s3.invalidate_cache()
            if len(s3.find("bucket/my.index")) > 3:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.01)
        was_killed = process.wait() == -signal.SIGKILL
        if was_killed and s3.exists(f"bucket/my.index/{MARK}"):
            assert run("search", "--index", "s3://bucket/my.index", "--query", "pilots").returncode == 1
            assert run(*words).returncode == 0
        done = run("search", "--index", "s3://bucket/my.index", "--query", "pilots", "--json")
        assert [hit["id"] for hit in json.loads(done.stdout)] == ["d1"]
