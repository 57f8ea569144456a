"""Arguments of ``rankhouse serve``, and the service without any of them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from rankhouse.cli.commands.serve import command
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document
from rankhouse.index.lexical.build import build
from rankhouse.serve.host import settings
from rankhouse.serve.host.service import open_service
from rankhouse.serve.host.settings import demo_options, named_paths, named_rankers, short_name


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["my.index"], {"my": "my.index"}),
        (["a/index", "b/index"], {"a": "a/index", "b": "b/index"}),
        (["news=a/index", "x=y=z"], {"news": "a/index", "x": "y=z"}),
        (["My Notes é.index"], {"My-Notes": "My Notes é.index"}),
    ],
)
def test_indexes_have_names(given, names):
    assert named_paths(given, "index") == {name: Path(path) for name, path in names.items()}


@pytest.mark.parametrize(
    ("given", "name", "spec"),
    [
        ('ce=crossencoder("DIR")', "ce", 'crossencoder("DIR")'),
        ('crossencoder("models/marco")', "marco", 'crossencoder("models/marco")'),
        ("runs/tk/training", "tk", "runs/tk/training"),
        ("monot5('castorini/monot5-base')", "monot5-base", "monot5('castorini/monot5-base')"),
        ('tk(vectors="glove.txt")', "glove", 'tk(vectors="glove.txt")'),
    ],
)
def test_rankers_have_names(given, name, spec):
    assert named_rankers([given]) == {name: spec}


def test_a_path_with_an_equals_sign_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a=b.run").write_text("")
    assert named_paths(["a=b.run"], "--run") == {"a-b": Path("a=b.run")}


def test_one_name_for_two_is_refused():
    with pytest.raises(WrongUse, match=r'"my" already names my.index.*NAME='):
        named_paths(["my.index", "other/my.idx"], "index")


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--quick", "nan", "nan is not at least 0 and at most 1,000,000 seconds"),
        ("--quick", "-1", "-1.0 is not at least 0 and"),
        ("--timeout", "nan", "nan is not above 0 and at most 1,000,000 seconds"),
        ("--grace", "0", "0.0 is not above 0 and"),
    ],
)
def test_seconds_without_bounds_are_refused(option, value, told):
    """With --quick nan a ranker was measured at the start and never the default."""
    done = CliRunner().invoke(command, ["my=/absent", "--ranker", "default", option, value])
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())


def test_a_name_is_never_empty():
    assert short_name("/") == "unnamed"
    assert short_name("é") == "unnamed"


@pytest.fixture
def demo(tmp_path):
    build([Document("d1", "Pilots steer ships."), Document("d2", "A lock lifts ships.")], tmp_path / "index")
    (tmp_path / "questions.jsonl").write_text('{"id": "q1", "text": "who steers?"}\n')
    (tmp_path / "judgements.txt").write_text("q1 0 d1 2\n")
    (tmp_path / "bm25.run").write_text("q1 Q0 d1 1 2.5 bm25\n")
    return tmp_path


def test_the_demo_is_served_whole(demo, running):
    from dataclasses import replace

    options = demo_options(demo)
    assert options.rankers == {}
    assert options.judgements == demo / "judged.txt"
    with running(open_service(replace(options, port=0))) as client:
        client.wait(200)
        assert client.get("/search?query=lock").json["hits"][0]["id"] == "d2"
        assert [query["id"] for query in client.get("/api/queries").json] == ["q1"]
        page = client.get("/runs", Accept="text/html")
        assert page.status == 200
        assert b"bm25" in page.body


def test_the_demos_rankers_need_their_packages(demo, monkeypatch):
    (demo / "tk" / "ranker").mkdir(parents=True)
    (demo / "index" / "vectors" / "default").mkdir(parents=True)
    monkeypatch.setattr(settings, "minilm", lambda: Path("minilm"))
    named = demo_options(demo).rankers
    assert list(named.items()) == [
        ("minilm", "biencoder('minilm')"),  # the first decides what ranks where nobody says: the hybrid
        ("tk", str(demo / "tk")),
    ]
    monkeypatch.setattr(settings, "minilm", lambda: None)
    assert demo_options(demo).rankers == {}


def test_without_a_demo_it_is_said_how_to_begin(tmp_path):
    with pytest.raises(WrongUse, match=r"rankhouse up FOLDER"):
        demo_options(tmp_path)
