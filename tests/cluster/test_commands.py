"""--cluster: the same bytes as without it, wherever the cluster is; what is wrong with it is said."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
tools = SimpleNamespace(**run_path(str(Path(__file__).with_name("world.py"))))
CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
FIRST = ["--run", "first.run", "--queries", "queries.tsv", "--index", "my.index"]


@pytest.fixture
def rerank(knrm):
    return ["rerank", *FIRST, "--ranker", knrm, "--split", "words(16)", *CPU]


def ended(process, code=0, limit=300):
    """Wait for a command; gives what it said."""
    found = process.wait(limit)
    said = Path("log.txt").read_text()
    assert found == code, said
    assert "Traceback" not in said
    return said


def quick(said):
    """Leave out what a command says of its progress where it takes longer than half a minute."""
    waiting = ("reranking on ", "no worker is ready yet")
    return "".join(line for line in said.splitlines(keepends=True) if not line.startswith(waiting))


def test_a_cluster_of_its_own_and_a_client_of_another_give_the_same_bytes(rerank, done, cluster):
    plain = json.loads(done(*rerank, "--out", "whole.run", "--json").stdout)
    start = cluster.command(*rerank, "--out", "own.run", "--cluster-workers", 2, "--json", at="ray")
    said = json.loads(quick(ended(start)))  # nothing of Ray's own talk
    assert {name: said[name] for name in ("queries", "passages", "truncated")} == {
        name: plain[name] for name in ("queries", "passages", "truncated")
    }
    assert said["parts"] > 2
    client = f"ray://127.0.0.1:{cluster.client_port}"
    said = quick(ended(cluster.command(*rerank, "--out", "client.run", at=client)))
    assert said.count("\n") == 1, said
    whole = Path("whole.run").read_bytes()
    assert Path("own.run").read_bytes() == whole
    assert Path("client.run").read_bytes() == whole
    assert not list(Path().glob("*.parts"))


@pytest.mark.parametrize(
    ("more", "code", "reason"),
    [
        (["--cluster", "dask"], 2, '--cluster "dask" names no cluster; write  ray '),
        (["--cluster", "127.0.0.1:1"], 1, "--cluster 127.0.0.1:1: nobody answers there"),
        (["--cluster", "ray://127.0.0.1:1"], 1, "--cluster ray://127.0.0.1:1: nobody answers there"),
        (["--cluster", "ray", "--shard", "1/2"], 2, "give either --shard"),
        (["--cluster", "ray", "--device", "cuda:1"], 2, "write  --device cuda"),
        (["--cluster", "ray", "--cluster-workers", "5000"], 2, "5,000 workers of 1 processors do not fit"),
        (["--worker-cpus", "2"], 2, "--worker-cpus would change nothing here"),
    ],
)
def test_what_is_no_cluster_is_refused(run, rerank, more, code, reason):
    refused = run(*rerank, "--out", "new.run", *more)
    assert refused.returncode == code
    assert reason in refused.stderr
    assert not Path("new.run").exists()


@pytest.mark.usefixtures("world")
def test_an_index_that_is_there_is_refused_before_the_work_and_not_after_it(run):
    Path("corpus.tsv").write_text("a\tships\n")
    refused = run("index", "corpus.tsv", "--out", "my.index", "--cluster", "127.0.0.1:1")
    assert refused.returncode == 2
    assert "my.index: is an index already" in refused.stderr


def test_parts_have_to_be_kept_beside_a_file(run, rerank):
    refused = run(*rerank, "--out", "-", "--cluster", "ray")
    assert refused.returncode == 2
    assert "shards are kept beside the output" in refused.stderr


def test_without_the_extra_it_is_named(rerank, cluster):
    Path("no").mkdir()
    Path("no/sitecustomize.py").write_text("import sys; sys.modules['ray'] = None")
    path = os.pathsep.join(["no", *filter(None, [os.environ.get("PYTHONPATH")])])
    said = ended(cluster.command(*rerank, "--out", "new.run", PYTHONPATH=path), 2)
    assert 'pip install "rankhouse[cluster]"' in said


def test_other_versions_are_refused(rerank, cluster):
    with cluster.of_version(ray="1.13.0"):
        said = ended(cluster.command(*rerank, "--out", "new.run"), 1)
    assert "another Ray or Python runs there; both must be the same" in said
    assert "1.13.0" in said
    for version, reason in (
        ("0.0.1", "rankhouse 0.0.1 is installed there, not "),
        ("none", "is not installed"),
    ):
        cluster.sick(version=version)
        said = ended(cluster.command(*rerank, "--out", "new.run"), 1)
        assert reason in said
        assert "install the same version on all of them" in said
    cluster.sick()


def test_the_port_of_clients_is_no_port_of_nodes(rerank, cluster):
    clients, nodes = f"127.0.0.1:{cluster.client_port}", f"ray://{cluster.address}"
    for at, advice in ((clients, "ray://HOST:10001 for all others"), (nodes, "usually 10001, and not that")):
        said = ended(cluster.command(*rerank, "--out", "new.run", at=at), 1)
        assert "at another of its ports" in said
        assert advice in said
        assert said.count("\n") == 1, said  # and nothing of what Ray tried


def test_an_error_is_the_commands_own_and_not_tried_again(run, rerank, cluster):
    Path("queries.tsv").write_text("q1\tships\n")
    plain = run(*rerank, "--out", "new.run")
    assert plain.returncode == 1
    assert ended(cluster.command(*rerank, "--out", "new.run"), 1) == plain.stderr
    assert not Path("new.run").exists()


def test_parts_of_another_job_are_named(rerank, done, cluster):
    done(*rerank, "--shard", "1/3", "--depth", "4", "--out", "new.run.parts/1")
    said = ended(cluster.command(*rerank, "--out", "new.run"), 1)
    assert 'holds shards of another job (depth is "4" there and "1000" here)' in said
    assert "remove it to start again" in said


def test_parts_made_by_shard_and_damaged_ones(rerank, done, cluster):
    done(*rerank, "--out", "whole.run")
    for number in (1, 3):
        done(*rerank, "--shard", f"{number}/3", "--out", f"new.run.parts/{number}")
    Path("new.run.parts/1/rows.run").write_text("nothing\n")
    opened = cluster.opened
    said = ended(cluster.command(*rerank, "--out", "new.run"))
    assert cluster.opened - opened <= 2  # six shards by two workers, which load the model once
    assert "3 of 9 queries were done before" in said
    assert "is made again" in said
    assert Path("new.run").read_bytes() == Path("whole.run").read_bytes()


@pytest.mark.parametrize("client", [False, True])
def test_workers_that_do_not_see_the_folder_send_their_shards(rerank, done, cluster, client):
    done(*rerank, "--out", "whole.run")
    cluster.sick(0.3, blind=True)
    at = f"ray://127.0.0.1:{cluster.client_port}" if client else ""
    process = cluster.command(*rerank, "--out", "new.run", at=at)
    assert tools.wait_for_parts("new.run", 1, process)
    cluster.kill("worker")
    ended(process)
    cluster.sick()
    assert Path("new.run").read_bytes() == Path("whole.run").read_bytes()
    assert not Path("new.run.parts").exists()


@pytest.fixture
def blind_node(cluster):
    """A node of its own view of the disk: it does not see the parts, and has little room for its own."""
    here = Path("new.run.parts").resolve()
    here.mkdir()
    temp = cluster.temp / "tiny"
    temp.mkdir()
    probe = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none {here}"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("nobody may mount here")
    started = []

    def start(room, tries=3):
        script = (
            f"mount -t tmpfs none {here} && mount -t tmpfs -o size={room} none {temp} && "
            f"exec {sys.executable} -m ray.scripts.scripts start --block --num-cpus 4 "
            f"--address {cluster.address}"
        )
        said = cluster.temp / "blind.log"
        with said.open("w") as log:
            node = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", script], stdout=log, stderr=log,
                env=cluster.nodes_environment | {"TMPDIR": str(temp)}, start_new_session=True,
            )  # fmt: skip
        started.append(node)
        until = time.monotonic() + 300
        while "Ray runtime started" not in said.read_text():
            if node.poll() is not None and tries > 1:  # Ray gives its own processes 30 s
                started.remove(node)
                start(room, tries - 1)
                return
            assert node.poll() is None, said.read_text()
            assert time.monotonic() < until, said.read_text()
            time.sleep(0.2)

    yield start
    for node in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(node.pid, 9)
        node.wait()
    temp.rmdir()


def test_a_node_that_does_not_see_the_parts_sends_them(rerank, done, cluster, blind_node):
    done(*rerank, "--out", "whole.run")
    blind_node("50m")
    ended(cluster.command(*rerank, "--out", "new.run", "--worker-cpus", 2))  # no other node has two
    assert Path("new.run").read_bytes() == Path("whole.run").read_bytes()
    assert not Path("new.run.parts").exists()


def test_a_worker_whose_disk_is_full_is_done_without(rerank, done, cluster, blind_node):
    done(*rerank, "--out", "whole.run")
    blind_node("4k")
    said = ended(cluster.command(*rerank, "--out", "new.run", "--worker-cpus", 2), 1)
    assert "the disk is full; free some space" in said
    assert not Path("new.run").exists()
    assert not tools.parts_of("new.run")
    cluster.sick(600, spared=cluster.temp / "tiny")  # the others wait until that worker has failed
    process = cluster.command(*rerank, "--out", "new.run", "--cluster-workers", 6)
    while "the job continues without one worker: " not in Path("log.txt").read_text():
        assert process.poll() is None, Path("log.txt").read_text()
        time.sleep(0.1)
    cluster.sick()
    ended(process)
    assert Path("new.run").read_bytes() == Path("whole.run").read_bytes()
    assert not Path("new.run.parts").exists()


def test_an_index_and_vectors_are_the_same_to_the_byte(world, done, bert, contents, cluster):
    rows = [{"id": document.id, "title": document.title, "text": document.text} for document in world]
    for number in range(3):
        Path(f"{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[number::3]))
    corpora = ["0.jsonl", "1.jsonl", "2.jsonl", "--segment-tokens", 100]
    done("index", *corpora, "--out", "whole.index")
    ended(cluster.command("index", *corpora, "--out", "new.index"))
    assert contents("new.index") == contents("whole.index")
    encode = [
        "encode",
        "--ranker",
        f"biencoder({str(bert('BertModel'))!r})",
        *CPU,
        "--vectors",
        "sq8",
        "--index",
    ]
    done(*encode, "whole.index")
    said = ended(cluster.command(*encode, "new.index"))
    assert contents("new.index") == contents("whole.index")
    assert said.count(" vectors of 32 numbers") == 1
    assert not list(Path().glob("*.parts"))


RECIPE = """title = "Two rankings"
[data]
queries = { path = "queries.tsv", get = "written by the test" }
qrels = { path = "qrels.txt", get = "written by the test" }
index = { path = "my.index", get = "written by the test" }
knrm = { path = "knrm", get = "written by the test" }

[loop]
k1 = [0.5, 1.4]

[steps.bm25]
command = "search"
index = "@index"
queries = "@queries"
model = "bm25(k1={k1})"

[steps.again]
command = "rerank"
run = "@bm25"
queries = "@queries"
index = "@index"
ranker = "@knrm"
device = "cpu"
precision = "fp32"

[[table]]
name = "Both"
rows = { BM25 = "@bm25", KNRM = "@again" }
qrels = "@qrels"
measures = "AP"
"""


@pytest.fixture
def recipe(knrm):
    Path("r.toml").write_text(RECIPE)


def results(folder):
    """Return what a recipe's steps made, but for times."""
    steps = json.loads(Path(folder, "manifest.json").read_text())["steps"]
    for step in steps:
        step["files"].pop("said.json", None)  # how long it took
    return [{k: v for k, v in step.items() if k not in ("started", "seconds")} for step in steps]


def test_passes_of_a_recipe_run_at_the_same_time(recipe, done, cluster):
    done("run", "r.toml", "--out", "here.out")
    cluster.sick()
    process = cluster.command("run", "r.toml", "--out", "there.out")
    said = ended(process)
    order = [line.split(": ")[1][:4] for line in said.splitlines() if line.startswith("[")]
    assert order[:2] == ["rank", "rank"], said  # two are at work before one is done
    assert order.count("done") == 4
    assert results("here.out") == results("there.out")
    assert "4 steps (4 kept)" in ended(cluster.command("run", "r.toml", "--out", "there.out"))


def test_a_step_that_fails_is_named_and_what_ran_beside_it_is_kept(recipe, run, cluster):
    Path("queries.jsonl").write_text('{"id": "q1", "text": "ships", "0.5": "ships", "0.9": "ships"}\n')
    asked = RECIPE.replace("queries.tsv", "queries.jsonl").replace("model = ", 'field = "{k1}"\nmodel = ', 1)
    Path("r.toml").write_text(asked)
    plain = run("run", "r.toml", "--out", "here.out")
    assert plain.returncode == 1
    said = ended(cluster.command("run", "r.toml", "--out", "there.out"), 1)
    assert said.splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert list(Path("there.out/work").glob("bm25.k1=0.5-*/step.json"))


def test_a_pass_whose_process_is_killed_is_done_again(recipe, cluster):
    process = cluster.command("run", "r.toml", "--out", "there.out")
    while not cluster.kill("worker"):
        assert process.poll() is None, Path("log.txt").read_text()
        time.sleep(0.01)
    assert "4 steps (0 kept)" in ended(process)


def test_terminated_it_ends_in_good_order_and_goes_on_later(rerank, done, cluster):
    done(*rerank, "--out", "whole.run")
    cluster.sick(1)
    process = cluster.command(*rerank, "--out", "new.run")
    assert tools.wait_for_parts("new.run", 1, process)
    process.terminate()
    assert "terminated" in ended(process, 143).splitlines()
    assert not Path("new.run").exists()
    cluster.sick()
    assert "queries were done before" in ended(cluster.command(*rerank, "--out", "new.run"))
    assert Path("new.run").read_bytes() == Path("whole.run").read_bytes()
