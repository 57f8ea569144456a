"""A real service in a thread: uvicorn on a free port, asked through plain sockets and http.client."""

import http.client
import importlib.util
import json
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

NEEDED = ("starlette", "uvicorn", "httptools", "prometheus_client", "jinja2", "cachetools")
collect_ignore_glob = [] if all(map(importlib.util.find_spec, NEEDED)) else ["*"]
"""Where the extra ``serve`` is not installed, there is nothing to test."""


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """Asks a service; one connection a question."""

    def __init__(self, port):
        self.port = port

    def ask(self, method, path, body=None, headers=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post(self, path, content, headers=None):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.ask("POST", path, body, {"content-type": "application/json", **(headers or {})})

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=120)

    def wait(self, until, seconds=120):
        """Ask for readiness until it has this status."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if self.get("/readyz").status == until:
                return
            time.sleep(0.02)
        raise AssertionError(f"/readyz did not become {until}")


@contextmanager
def _running(service):
    from rankhouse.serve.host import serving
    from rankhouse.serve.host.service import Phase

    listener = serving.bind(service.options.host, service.options.port)
    server = serving.Server(service)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    client = Client(listener.getsockname()[1])
    try:
        ends = time.monotonic() + 120
        while (not server.started or service.phase is Phase.STARTING) and time.monotonic() < ends:
            if server.fault is not None:
                break
            time.sleep(0.01)
        client.server = server
        yield client
    finally:
        server.should_exit = True
        thread.join(120)
        service.close()
        listener.close()
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def running():
    """From a service to a client of it, for as long as a with-block runs."""
    return _running


def _loaded(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def load():
    """From the name of a file of this folder to its module."""
    return _loaded


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The module of tiny models, with a folder."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    models = _loaded("tiny_models")
    models.folder = tmp_path_factory.mktemp("models")
    return models
