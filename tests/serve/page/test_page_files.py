"""The pages of a served folder: where a part is in its file."""

import re

import pytest

from rankhouse.core.nouns import Document
from rankhouse.serve.folder.prepare import claimed, index_folder
from rankhouse.serve.host.service import open_service
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.page.extract import place_of


@pytest.fixture(scope="module")
def client(tmp_path_factory, running):
    """A service of a folder with a mailbox, a note, and files that are not read."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "in box.mbox").write_text(
        "From a\nSubject: Tides\n\nhigh water\n\nFrom b\nSubject: Locks\n\nships\n"
    )
    (folder / "note.md").write_text("# Pilots\n\nPilots steer ships.\n")
    with claimed(folder) as place:
        index_folder(place)
        service = open_service(ServeOptions(indexes={"mine": place.index}, port=0))
        with running(service) as client:
            client.wait(200)
            yield client


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


def test_a_record_with_a_field_of_that_name_is_no_part():
    assert place_of(Document("paris", "text", "", {"place": "France"})) == ""
    assert place_of(Document("a.pdf#page=2", "text", "", {"file": "a.pdf", "place": {"page": 2}})) == ""
    assert place_of(Document("a.pdf#page=2", "text", "", {"file": "a.pdf", "place": "page 2"})) == "page 2"
