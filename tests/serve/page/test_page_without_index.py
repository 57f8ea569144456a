"""A service that only reranks has a page that says so, and an index without texts shows ids and says why."""

from starlette.testclient import TestClient

import rankhouse as rh
from rankhouse.index.lexical.build import BuildOptions
from rankhouse.index.lexical.ciff import build_from_ciff, write_index


def test_a_service_without_an_index_says_what_it_does():
    from rankhouse.serve.host.application import build_app
    from rankhouse.serve.host.service import Phase, Service

    service = Service(phase=Phase.READY)
    with TestClient(build_app(service), base_url="http://127.0.0.1") as client:
        for path in ("/", "/judge", "/runs", "/train", "/queries", "/why", "/document"):
            answer = client.get(path, headers={"accept": "text/html"})
            assert answer.status_code == 200
            assert "rankhouse serve my.index" in answer.text
            assert 'href="/judge"' not in answer.text
    service.close()


def test_an_index_without_texts_shows_ids_and_says_why(folder, tmp_path, running):
    """Its search was refused on the page, though not on the command line."""
    from rankhouse.serve.host.service import open_service
    from rankhouse.serve.host.settings import ServeOptions

    write_index(rh.Index.open(str(folder / "index")), tmp_path / "ships.ciff")
    build_from_ciff(tmp_path / "ships.ciff", tmp_path / "ids", BuildOptions(workers=1))
    service = open_service(ServeOptions(indexes={"ids": tmp_path / "ids"}, port=0))
    with running(service) as client:
        answer = client.get("/?query=harbour+pilots&system=bm25&system=ql", accept="text/html")
        text = answer.body.decode()
        assert answer.status == 200
        assert text.count('data-doc="pilots"') == 2
        assert "ids was imported from a CIFF file, which holds terms but no texts" in text
        assert 'href="/document' not in text
        assert 'href="/why' not in text
        asked = {"query": "harbour pilots", "snippets": False, "k": 1}
        assert [hit["id"] for hit in client.post("/search", asked).json["hits"]] == ["pilots"]
        for view in ("document?doc=pilots", "why?query=harbour&doc=pilots"):
            refused = client.get(f"/{view}", accept="text/html")
            assert "no texts" in refused.body.decode()
            assert "<h1>That did not work</h1>" in refused.body.decode()
