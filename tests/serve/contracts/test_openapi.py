"""The description of the service: what it lists, and that it is OpenAPI 3.1."""

from typing import Annotated, Any

import msgspec
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from rankhouse.serve.contracts.openapi import EITHER_REFUSAL, Operation, Parameter, describe, openapi_route
from rankhouse.serve.contracts.requests import answer, read_body


class Question(msgspec.Struct):
    """What is asked."""

    query: str
    k: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Other(msgspec.Struct):
    """Something else."""

    texts: list[str]


async def echo(request):
    body = await read_body(request, Question) if request.method == "POST" else dict(request.query_params)
    return answer(body)


def described():
    k = Parameter("k", Annotated[int, msgspec.Meta(ge=1)], "how many")
    operation = Operation(
        "Ask", body=(Question, Other), answer=list[str], refusals=EITHER_REFUSAL, tag="search"
    )
    routes = [
        describe("/search", echo, "POST", operation),
        describe("/search", echo, "GET", Operation("Ask", query=(Parameter("q", required=True), k))),
        Mount("/documents", routes=[describe("/{index}/{id:path}", echo, "GET", Operation("Read"))]),
        Route("/page", echo),
        openapi_route("1.2"),
    ]
    client = TestClient(Starlette(routes=routes))
    return client.get("/openapi.json").json()


def test_each_described_route_is_listed_with_its_types():
    paths = described()["paths"]
    assert sorted(paths) == ["/documents/{index}/{id}", "/openapi.json", "/search"]
    post = paths["/search"]["post"]
    one, other = post["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    assert (one["$ref"], other["$ref"]) == ("#/components/schemas/Question", "#/components/schemas/Other")
    assert post["responses"]["200"]["content"]["application/json"]["schema"]["type"] == "array"
    assert len(post["responses"]["422"]["content"]["application/json"]["schema"]["anyOf"]) == 2
    assert [(p["name"], p["in"], p["required"]) for p in paths["/search"]["get"]["parameters"]] == [
        ("q", "query", True),
        ("k", "query", False),
    ]
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
