"""The description of the service: what it lists, and that it is OpenAPI 3.1."""

from typing import Annotated, Any

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from rankhouse.serve.contracts.openapi import EITHER_REFUSAL, Operation, RouteGroup, document


class Choice(msgspec.Struct, kw_only=True):
    """What is chosen.

    Attributes:
        k: How many,
            at most.
    """

    k: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Question(Choice, kw_only=True):
    """What is asked."""

    query: Annotated[str, msgspec.Meta(description="The words.")]


class Other(msgspec.Struct):
    """Something else."""

    texts: list[str]


async def echo(service, request, asked):
    return [service, asked]


def client():
    group = RouteGroup("kept", "search")
    both = Operation("Ask", body=(Question, Other), answer=list[str], refusals=EITHER_REFUSAL)
    routes = [
        group("POST", "/search", echo, both),
        group("GET", "/search", echo, Operation("Ask", query=Question)),
        group("GET", "/documents/{index}/{id:path}", echo, Operation("Read")),
        Route("/page", echo),
    ]
    return TestClient(Starlette(routes=routes))


def described():
    return document(client().app.routes, "1.2")


def test_a_work_gets_its_service_and_what_is_asked():
    assert client().get("/search?query=ships&k=2").json() == ["kept", {"k": 2, "query": "ships"}]
    assert client().get("/documents/a/b/c").json() == ["kept", None]


def test_each_described_route_is_listed_with_its_types():
    paths = described()["paths"]
    assert sorted(paths) == ["/documents/{index}/{id}", "/search"]
    post = paths["/search"]["post"]
    one, other = post["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    assert (one["$ref"], other["$ref"]) == ("#/components/schemas/Question", "#/components/schemas/Other")
    assert post["responses"]["200"]["content"]["application/json"]["schema"]["type"] == "array"
    assert len(post["responses"]["422"]["content"]["application/json"]["schema"]["anyOf"]) == 2
    assert paths["/search"]["get"]["parameters"] == [
        {"name": "k", "in": "query", "required": False, "description": "How many, at most.",
         "schema": {"type": "integer", "minimum": 1}},
        {"name": "query", "in": "query", "required": True, "description": "The words.",
         "schema": {"type": "string"}},
    ]  # fmt: skip
    read = paths["/documents/{index}/{id}"]["get"]["parameters"]
    assert [(p["name"], p["in"]) for p in read] == [("index", "path"), ("id", "path")]


def test_it_is_openapi_and_every_reference_leads_somewhere():
    import schemathesis

    made = described()
    schemathesis.openapi.from_dict(made).validate()

    def references(value: Any):
        if isinstance(value, dict):
            yield from [value["$ref"]] if "$ref" in value else ()
            for one in value.values():
                yield from references(one)
        elif isinstance(value, list):
            for one in value:
                yield from references(one)

    names = {reference.rsplit("/", 1)[1] for reference in references(made)}
    assert names == made["components"]["schemas"].keys()
