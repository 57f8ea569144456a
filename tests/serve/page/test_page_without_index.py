"""A service that only reranks has a page that says so."""

from starlette.testclient import TestClient


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
