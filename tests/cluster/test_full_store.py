"""Ray's object store and the disk below it are full: a job says so, writes nothing, goes on afterwards."""

import random
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.outside
World = runpy.run_path(str(Path(__file__).with_name("world.py")))["World"]
FULL = "Ray's object store on "
ADVICE = "give the same command again"


@pytest.fixture(scope="module")
def tight():
    """A cluster whose workers do not see the driver's folder, and whose first node can be filled."""
    probe = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("nobody may mount here")
    try:
        world = World(tight=True)
    except RuntimeError as error:
        pytest.skip(f"Ray cannot start here: {error}")
    world.sick(blind=True)
    yield world
    world.stop()


@pytest.fixture
def corpora(tmp_path, monkeypatch):
    """Texts that hardly compress, so that a shard is larger than what Ray sends without its store."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(3)
    for number in range(12):
        lines = [f"d{number}-{i}\tships {rng.randbytes(2500).hex(' ', 4)}\n" for i in range(60)]
        Path(f"{number}.tsv").write_text("".join(lines))
    return [f"{number}.tsv" for number in range(12)]


def ended(process, code):
    """Wait for a command; gives what it said."""
    found = process.wait(300)
    said = Path("log.txt").read_text()
    assert found == code, said
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("where", ["workers", "driver"])
def test_shards_that_do_not_fit_are_a_sentence(tight, corpora, done, contents, where):
    done("index", *corpora, "--out", "whole.index")
    cpus = {"workers": 3, "driver": 2}[where]  # on the first node; on the second, whose own store has room
    command = ["index", *corpora, "--out", "new.index", "--worker-cpus", cpus]
    with tight.full():
        said = ended(tight.command(*command), 1)
        assert FULL in said
        assert ADVICE in said
        assert "killed" not in said
        assert ("this command is connected to" in said) == (where == "driver")
        assert sorted(path.name for path in Path().glob("new.*")) in (["new.index.parts"], [])
    ended(tight.command(*command), 0)
    assert contents("new.index") == contents("whole.index")
    assert not Path("new.index.parts").exists()


def test_a_job_that_does_not_fit_itself_is_a_sentence(tight, corpora, done, contents):
    deep = Path(*["x" * 200] * 15)  # so that the names of the files are larger than what Ray sends itself
    deep.mkdir(parents=True)
    names = [str(deep / f"{number}.tsv") for number in range(40)]
    for number, name in enumerate(names):
        Path(name).write_text(f"d{number}\tships\n")
    done("index", *names, "--out", "whole.index")
    command = ["index", *names, "--out", "new.index"]
    with tight.full():
        said = ended(tight.command(*command), 1)
        assert FULL in said
        assert ADVICE in said
    ended(tight.command(*command), 0)
    assert contents("new.index") == contents("whole.index")


def test_answers_that_do_not_fit_are_a_sentence(tight, corpora, done):
    done("index", *corpora, "--out", "whole.index")
    Path("queries.tsv").write_text("".join(f"q{i}\tships\n" for i in range(64)))
    command = ["search", "--index", "whole.index", "--queries", "queries.tsv"]
    done(*command, "--out", "whole.run")
    with tight.full():
        said = ended(tight.command(*command, "--out", "new.run"), 1)
        assert FULL in said
        assert "replicas died" not in said
        assert not Path("new.run").exists()
    ended(tight.command(*command, "--out", "new.run"), 0)
    assert Path("new.run").read_bytes() == Path("whole.run").read_bytes()
