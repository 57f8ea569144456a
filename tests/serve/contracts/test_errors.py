"""Refusals: status, headers and both shapes of body, through a real application."""

import json

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.serve import errors


def answer_to(error, path="/v2/rerank", tei=False):
    async def fail(request):
        if tei:
            errors.speak_tei(request)
        raise error

    app = Starlette(routes=[Route(path, fail)], exception_handlers=errors.handlers())
    return TestClient(app, raise_server_exceptions=False).get(path)


def test_every_client_finds_its_message():
    answer = answer_to(errors.Invalid("documents[17] is a number", "documents[17]"))
    body = answer.json()
    assert answer.status_code == 422
    assert body["error"] == {
        "message": "documents[17] is a number",
        "type": "invalid_request_error",
        "param": "documents[17]",
        "code": "invalid_value",
    }
    assert body["message"] == body["detail"] == "documents[17] is a number"


def test_hugging_faces_paths_have_their_own_shape():
    for answer in (answer_to(errors.Overloaded(2.2), "/embed"), answer_to(errors.Overloaded(2.2), tei=True)):
        assert answer.status_code == 429
        assert answer.json()["error_type"] == "overloaded"
        assert isinstance(answer.json()["error"], str)
        assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("3", "2200")


def test_an_unknown_name_says_the_nearest():
    message = answer_to(errors.UnknownName("model", "mini", ["minilm", "monot5"], "model")).json()["message"]
    assert message == 'there is no model "mini" (did you mean "minilm"?); known: "minilm", "monot5"'


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.Malformed("no JSON"), 400),
        (errors.Unauthorized("no key"), 401),
        (errors.TooLarge("70 MB"), 413),
        (errors.Unready("stopping"), 503),
        (errors.DeadlinePassed(), 504),
        (WrongUse("split"), 422),
        (BadModel("NaN"), 503),
    ],
)
def test_each_kind_has_its_status(error, status):
    assert answer_to(error).status_code == status


def test_a_fault_of_our_own_says_nothing_of_its_inside(caplog):
    answer = answer_to(KeyError("secret"))
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_what_starlette_refuses_has_the_shape_too():
    app = Starlette(routes=[Route("/a", lambda request: None)], exception_handlers=errors.handlers())
    client = TestClient(app)
    assert client.get("/b").json()["error"]["code"] == "not_found"
    refused = client.post("/a")
    assert refused.status_code == 405
    assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert json.loads(refused.text)["detail"] == "Method Not Allowed"
