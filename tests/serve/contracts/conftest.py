"""A running service with tiny rankers of every kind."""

import pytest


@pytest.fixture(scope="session")
def service(tiny):
    """A service of tiny models, opened once."""
    from rankhouse.serve.host.service import open_service
    from rankhouse.serve.host.settings import ServeOptions
    from rankhouse.systems.rankers import ComputeOptions

    specs = {
        kind: tiny.tiny_model(kind, tiny.folder) for kind in ("crossencoder", "biencoder", "monot5", "tk")
    }
    opened = open_service(ServeOptions(rankers=specs, port=0, compute=ComputeOptions("fp32", "cpu", 1)))
    opened.warm()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def client(service):
    """Ask the service, through its application."""
    from starlette.testclient import TestClient

    from rankhouse.serve.host.application import build_app

    with TestClient(build_app(service), base_url="http://127.0.0.1", raise_server_exceptions=False) as asked:
        yield asked
