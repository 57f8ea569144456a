"""The service described as OpenAPI 3.1: each JSON route says what it reads and answers, in types of msgspec.

A group describes its routes where it makes them::

    search = RouteGroup(service, "search", threads)
    search("POST", "/search", searched, Operation("Search an index", body=SearchBody, answer=SearchResponse))

and :func:`document` collects what the application holds. Routes that answer pages are not described.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from inspect import cleandoc
from typing import Any, Final, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from rankhouse.serve.contracts.requests import Threads, answer, decode, from_query
from rankhouse.serve.errors import ErrorBody, TeiError

Method = Literal["GET", "POST", "PUT", "DELETE"]
Work = Callable[..., Any]
"""(service, request, what it asks) -> record or response."""

EITHER_REFUSAL: Final = (ErrorBody, TeiError)
_REFUSALS: Final = (400, 401, 403, 404, 408, 409, 413, 422, 429, 431, 500, 503, 504)
_PLACE: Final = re.compile(r"{(\w+)(?::\w+)?}")
_FIELD: Final = re.compile(r"^ {4}(\w+): (.+(?:\n {5,}.+)*)", re.MULTILINE)
"""A field in the docstring of a record."""


@dataclass(frozen=True)
class Operation:
    """Operation of a route. Where several types are possible, they stand in a tuple.

    ``query`` is the record that the query string is converted to; ``media`` the media type of an answer that
    is not JSON; ``refusals`` are the types of a refusal's body.
    """

    summary: str
    body: Any = None
    answer: Any = None
    query: type[msgspec.Struct] | None = None
    media: str = "application/json"
    status: int = 200
    refusals: Any = ErrorBody


class DescribedRoute(Route):
    """A route that says what it does."""

    operation: Operation
    method: Method
    tag: str


class RouteGroup(NamedTuple):
    """Routes of one tag, whose works get the same service; without threads they are coroutines."""

    service: object
    tag: str
    threads: Threads | None = None

    def __call__(self, method: Method, path: str, work: Work, operation: Operation) -> DescribedRoute:
        """Return a route that reads what its operation says and writes what its work returns.

        The work gets the service, the request, and its body or query string as the operation's type; None
        where there is none or more than one. It may return a response of its own.
        """
        body, query = operation.body, operation.query

        async def endpoint(request: Request) -> Response:
            asked: object = None
            if query is not None:
                asked = from_query(request.query_params, query)
            elif isinstance(body, type):
                asked = decode(await request.body(), body)
            if self.threads is None:
                result = await work(self.service, request, asked)
            else:
                result = await self.threads.call(work, self.service, request, asked)
            return result if isinstance(result, Response) else answer(result, operation.status)

        route = DescribedRoute(path, endpoint, methods=[method])
        route.operation, route.method, route.tag = operation, method, self.tag
        return route


def document(routes: Iterable[BaseRoute], version: str) -> dict[str, Any]:
    """Return the description of an application, as OpenAPI 3.1."""
    listed = [route for route in routes if isinstance(route, DescribedRoute)]
    kinds = {id(kind): kind for route in listed for kind in _types(route.operation)}
    made, components = msgspec.json.schema_components(
        kinds.values(), ref_template="#/components/schemas/{name}"
    )
    known = dict(zip(kinds, made, strict=True))

    def schema(kind: Any) -> Mapping[str, Any]:  # noqa: ANN401 - any type there is
        if isinstance(kind, tuple):
            return {"anyOf": [known[id(one)] for one in kind]}
        return {} if kind is None else known[id(kind)]

    paths: dict[str, dict[str, Any]] = {}
    for route in listed:  # of two that fit, the first answers
        place = _PLACE.sub(r"{\1}", route.path)
        paths.setdefault(place, {}).setdefault(route.method.lower(), _entry(place, route, schema))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rankhouse",
            "version": version,
            "description": "Rerank, embed, search, explain and judge.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _types(own: Operation) -> Iterator[Any]:
    for kind in (own.body, own.answer, own.refusals):
        yield from kind if isinstance(kind, tuple) else [] if kind is None else [kind]


def _entry(path: str, route: DescribedRoute, schema: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
    own, name = route.operation, re.sub(r"\W+", "_", path).rstrip("_")
    success = {"schema": schema(own.answer)} if own.media == "application/json" else {}
    contents = {own.status: {own.media: success}}
    refusal = {"application/json": {"schema": schema(own.refusals)}}
    contents |= dict.fromkeys(_REFUSALS, refusal)
    entry: dict[str, Any] = {
        "summary": own.summary,
        "operationId": f"{route.method.lower()}{name}",
        "tags": [route.tag],
        "responses": {
            str(status): {"description": HTTPStatus(status).phrase, "content": content}
            for status, content in contents.items()
        },
    }
    text = {"type": "string", "minLength": 1}
    parameters = [
        {"name": one, "in": "path", "required": True, "schema": text} for one in _PLACE.findall(path)
    ]
    if parameters := parameters + _parameters(own.query):
        entry["parameters"] = parameters
    if own.body is not None:
        content = {"application/json": {"schema": schema(own.body)}}
        entry["requestBody"] = {"required": True, "content": content}
    return entry


def _parameters(query: type[msgspec.Struct] | None) -> list[dict[str, Any]]:
    """Return the parameters of a query string: the fields of its record, described as in its docstring."""
    if query is None:
        return []
    _, records = msgspec.json.schema_components([query])
    record, said = records[query.__name__], dict[str, str]()
    for kind in reversed(query.__mro__):
        said |= dict(_FIELD.findall(cleandoc(kind.__doc__ or "")))
    parameters = []
    for name, field in record["properties"].items():
        text = field.pop("description", "") or " ".join(said.get(name, "").split())
        field.pop("default", None)
        choices = [one for one in field.pop("anyOf", [field]) if one != {"type": "null"}]
        one = {"name": name, "in": "query", "required": name in record.get("required", ())}
        one["schema"] = choices[0] if len(choices) == 1 else {"anyOf": choices}
        parameters.append(one | ({"description": text} if text else {}))
    return parameters
