"""The pages of a served folder: where a part is in its file, and what is indexed."""

import re
from types import SimpleNamespace

import pytest

from rankhouse.core.nouns import Document
from rankhouse.serve.folder.files import LOADING, FolderProgress
from rankhouse.serve.folder.prepare import EncoderAtHand, claimed, index_folder
from rankhouse.serve.host import folder as host_folder
from rankhouse.serve.host.service import open_service
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.page.document import place_of
from rankhouse.serve.page.files import titled


@pytest.fixture(scope="module")
def client(tmp_path_factory, running):
    """A service of a folder with a mailbox, a note, and files that are not read."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "in box.mbox").write_text(
        "From a\nSubject: Tides\n\nhigh water\n\nFrom b\nSubject: Locks\n\nships\n"
    )
    (folder / "note.md").write_text("# Pilots\n\nPilots steer ships.\n")
    (folder / "more.jsonl").write_text('{"id": "a", "text": "Gulls."}\n{"id": "b"}\n')
    (folder / "broken<b>.txt.gz").write_bytes(b"\x1f\x8bnonsense")
    for name in ("photo.jpg", "other.jpg", "nothing.md", ".hidden"):
        (folder / name).touch()
    with claimed(folder) as place:
        index_folder(place)
        service = open_service(ServeOptions(indexes={"mine": place.index}, contents=place.contents, port=0))
        with running(service) as client:
            client.wait(200)
            yield client


def test_search_by_meaning_does_not_wait_for_a_look_at_the_files(tmp_path, monkeypatch):
    """After a restart, pages searched by words alone until the files had been compared."""
    offered = []

    class Started(Exception):
        pass

    def start(*_):
        raise Started(list(offered))

    monkeypatch.setattr(host_folder, "started", start)
    looked = []
    monkeypatch.setattr(host_folder, "_is_ready", lambda *_: looked.append(service.standing.work) or True)
    service = SimpleNamespace(standing=FolderProgress())
    service.add_ranker = lambda name, _: offered.append((name, service.standing.sentence(by_meaning=False)))
    with claimed(tmp_path) as place, pytest.raises(Started, match="minilm"):
        host_folder.kept(place, EncoderAtHand("biencoder('x')"))(service)
    assert offered == [("minilm", "Search by meaning is starting. Until then, search is by words.")]
    assert looked == [LOADING]
    assert service.standing == FolderProgress()


def test_vectors_made_between_two_looks_at_the_progress_are_offered(tmp_path, monkeypatch):
    """Of two documents they are made in a moment, before and after which the progress reads alike."""
    offered, looks, polls = [], iter([False, False, True]), iter(range(50))
    monkeypatch.setattr(host_folder, "_PAUSE", 0.0)
    monkeypatch.setattr(host_folder, "_is_ready", lambda *_: next(looks))
    process = SimpleNamespace(poll=lambda: 0 if offered or next(polls, 0) == 49 else None)
    monkeypatch.setattr(host_folder, "started", lambda *_: process)
    monkeypatch.setattr(host_folder, "last_words", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    service = SimpleNamespace(standing=FolderProgress(), add_ranker=lambda name, _: offered.append(name))
    with claimed(tmp_path) as place, pytest.raises(KeyboardInterrupt):
        host_folder.kept(place, EncoderAtHand("biencoder('x')"))(service)
    assert offered == ["minilm"]


def test_pages_of_systems_whose_encoder_is_awaited_answer_by_words(tmp_path, running):
    (tmp_path / "note.md").write_text("Pilots steer ships.\n")
    with claimed(tmp_path) as place:
        index_folder(place)
    service = open_service(ServeOptions(indexes={"mine": place.index}, contents=place.contents, port=0))
    pages = (
        "/?query=ships&system={}", "/document?query=ships&system={}&doc=note.md",
        "/why?query=ships&system={}&doc=note.md", "/why?query=ships&system=bm25&before={}&doc=note.md",
        "/why?query=ships&system={}&top=1",
    )  # fmt: skip
    with running(service) as client:
        client.wait(200)
        for asked in pages:
            service.standing = FolderProgress()
            assert client.get(asked.format("hybrid"), accept="text/html").status == 404
            service.standing = FolderProgress(LOADING)
            found = client.get(asked.format("hybrid"), accept="text/html")
            assert found.status == 200
            assert b"Until then, search is by words." in found.body
            assert b"steer" in found.body
            assert client.get(asked.format("nonsense"), accept="text/html").status == 404
            if not asked.startswith("/document"):
                assert client.get(asked.format("hybrid") + "&export=json").status == 404


def heads(client, path, tag):
    """Return the headings of a page, as text."""
    text = client.get(path, accept="text/html").body.decode()
    found = re.findall(rf"<{tag}[ >].*?</{tag}>", text, re.DOTALL)
    return [re.sub(r"<[^>]+>", "", one) for one in found]


def test_a_part_of_a_file_says_where_it_is(client):
    assert sorted(heads(client, "/?query=ships", "h3")) == ["Locks · message 2", "Pilots"]
    part, whole = "/document?doc=in%2520box.mbox%23message%3D2", "/document?doc=note.md"
    assert heads(client, part, "h1") == ["Locks · message 2"]
    assert heads(client, part, "title") == ["Locks, message 2 · rankhouse"]
    assert (heads(client, whole, "h1"), heads(client, whole, "title")) == (["Pilots"], ["Pilots · rankhouse"])


def test_explanations_call_files_as_people_do(client):
    """A file "in box.mbox" was called "in%20box.mbox" all over the page that says why; it has a title."""
    asked = "/why?query=ships&doc=in%2520box.mbox%23message%3D2"
    assert heads(client, asked, "h1")[0].startswith("Why Locks, message 2 scores")
    for path in (asked, f"{asked}&against=note.md", "/why?query=ships&top=2"):
        text = re.sub(r"<[^>]*>", "", client.get(path, accept="text/html").body.decode())
        assert "in box.mbox#message=2" in text
        assert "%20" not in text
    assert heads(client, "/why?query=ships&top=2", "h1") == ["Why this order: bm25"]


def test_explanations_call_a_file_whose_name_begins_with_another_as_people_do(tmp_path, running):
    for name in ("a b.md", "a b.md c.md"):  # the longer one was called "a b.md%20c.md"
        (tmp_path / name).write_text("Pilots steer ships.\n")
    with claimed(tmp_path) as place:
        index_folder(place)
    service = open_service(ServeOptions(indexes={"mine": place.index}, contents=place.contents, port=0))
    with running(service) as client:
        client.wait(200)
        asks = {"top=2": "a b.md c.md", "doc=a%2520b.md&rival=a%2520b.md%2520c.md": "Compare with a b.md c"}
        for asked, name in asks.items():
            text = client.get(f"/why?query=ships&{asked}", accept="text/html").body.decode()
            shown = re.sub(r"<[^>]*>", "", text)
            assert name in shown
            assert "%20" not in shown


def test_a_record_with_a_field_of_that_name_is_no_part():
    assert place_of(Document("paris", "text", "", {"place": "France"})) == ""
    assert place_of(Document("a.pdf#page=2", "text", "", {"file": "a.pdf", "place": {"page": 2}})) == ""
    assert place_of(Document("a.pdf#page=2", "text", "", {"file": "a.pdf", "place": "page 2"})) == "page 2"


def test_the_list_of_files_says_what_is_indexed_and_what_is_not(client):
    saved, told = client.get("/files?export=json").json, client.get("/files", accept="application/json").json
    assert saved == told
    assert (told["files"], told["documents"], told["bytes"]) == (3, 4, 136)
    kinds = {one["kind"]: (one["files"], one["documents"]) for one in told["kinds"]}
    assert kinds == {"Markdown": (1, 1), "corpus": (1, 1), "mailbox": (1, 2)}
    assert [one["name"] for one in told["largest"]] == ["in box.mbox", "more.jsonl", "note.md"]
    assert [(one["name"], one["documents"]) for one in told["faults"]] == [
        ("broken<b>.txt.gz", 0), ("more.jsonl", 1),
    ]  # fmt: skip
    left = {one["reason"]: (one["count"], one["names"]) for one in told["left_out"]}
    assert left == {
        ".jpg": (2, ["other.jpg", "photo.jpg"]), "hidden": (1, [".hidden"]), "empty": (1, ["nothing.md"]),
    }  # fmt: skip
    answer = client.get("/files", accept="text/html,*/*")
    text = answer.body.decode()
    for said in (
        "mine: 4 documents from 3 files, 136 bytes",
        ".jpg: format not supported <span",
        "Hidden files and folders <span",
        "<bdi>broken&lt;b&gt;.txt.gz</bdi>",
        "the compressed data is damaged",
        '<a href="/files" aria-current="page">Files</a>',
    ):
        assert said in text
    assert "photo.jpg" in client.get("/files?export=html").body.decode()


def test_kinds_of_a_folder_are_those_of_its_files(client):
    """Manual pages and files without an ending were "other", the longest bar of all."""
    text = client.get("/collection", accept="text/html").body.decode()
    found = re.findall(r"<li><span>([^<]*)</span>.*?number\">([^<]*)<", text)
    assert sorted(found) == [("Corpus", "1"), ("Mailbox", "2"), ("Markdown", "1")]
    assert titled("reStructuredText") == "reStructuredText"
    assert (
        'You are searching <a href="/files">these files</a>'
        in client.get("/", accept="text/html").body.decode()
    )


def test_a_service_without_a_folder_has_no_such_list(client, running):
    served = ServeOptions(indexes=client.server.config.app.state.service.options.indexes, port=0)
    with running(open_service(served)) as other:
        other.wait(200)
        assert b'href="/files"' not in other.get("/", accept="text/html").body
        for one, name in ((client, b"in box.mbox#message=1"), (other, b"in%20box.mbox#message=1")):
            assert b"<bdi>%s</bdi>" % name in one.get("/?query=water", accept="text/html").body
        answer = other.get("/files")
        assert (answer.status, answer.json["message"][:26]) == (404, "no folder is served here; ")
