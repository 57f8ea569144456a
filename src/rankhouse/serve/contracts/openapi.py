"""The service described as OpenAPI 3.1: each JSON route says what it reads and answers, in types of msgspec.

A group describes its routes where it makes them::

    search = RouteGroup(service, "search", threads)
    search("POST", "/search", searched, Operation("Search an index", body=SearchBody, answer=SearchResponse))

and :func:`document` collects what the application holds. Routes that answer pages are not described.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from rankhouse.serve.contracts.requests import Threads, answer, from_query, read_body
from rankhouse.serve.errors import ErrorBody, TeiError

Method = Literal["GET", "POST", "PUT", "DELETE"]
Work = Callable[..., Any]
"""(request, what it asks) -> record or response."""

_REFUSALS: Final = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503, 504)
_PLACE: Final = re.compile(r"{(\w+)(?::\w+)?}")
_REFS: Final = "#/components/schemas/{name}"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a query string or path."""

    name: str
    kind: Any = str
    description: str = ""
    required: bool = False


@dataclass(frozen=True)
class Operation:
    """What a route does. Where several types are possible, they stand in a tuple.

    Attributes:
        body: Type of the JSON body it reads; None where it reads none.
        answer: Type of its JSON answer; None for any.
        query: The structure that the query string is converted to, or its parameters, beside ``reads``.
        media: Media type of the answer, where it is not JSON.
        refusals: Types of a refusal's body.
        reads: The structure of what is asked, where body or query string are described otherwise.
    """

    summary: str
    body: Any = None
    answer: Any = None
    query: tuple[Parameter, ...] | type[msgspec.Struct] = ()
    media: str = "application/json"
    statuses: tuple[int, ...] = (200,)
    refusals: Any = ErrorBody
    tag: str = ""
    reads: type[msgspec.Struct] | None = None


EITHER_REFUSAL: Final = (ErrorBody, TeiError)


class DescribedRoute(Route):
    """A route that says what it does."""

    operation: Operation
    method: Method


def describe(path: str, endpoint: Callable[..., Any], method: Method, operation: Operation) -> DescribedRoute:
    """Return a route that is listed in the service's description."""
    route = DescribedRoute(path, endpoint, methods=[method])
    route.operation, route.method = operation, method
    return route


def described(
    method: Method, path: str, work: Work, operation: Operation, threads: Threads | None = None
) -> DescribedRoute:
    """Return a described route, which reads what its operation says and writes what its work returns.

    Args:
        work: Gets the request, and its body or query string as the operation's type; None where the operation
            has no or several types. It may return a response of its own.
        threads: Where the work is done; None where it is a coroutine.
    """
    said = (operation.reads, operation.body, operation.query)
    kind: type[Any] | None = next((one for one in said if isinstance(one, type)), None)

    async def endpoint(request: Request) -> Response:
        asked: object = None
        if kind is not None and method == "GET":
            asked = from_query(request.query_params, kind)
        elif kind is not None:
            asked = await read_body(request, kind)
        told = await (work(request, asked) if threads is None else threads.call(work, request, asked))
        return told if isinstance(told, Response) else answer(told, operation.statuses[0])

    return describe(path, endpoint, method, operation)


class RouteGroup(NamedTuple):
    """Routes of one tag, whose works get the same service and are done in the same threads."""

    service: object
    tag: str
    threads: Threads | None = None

    def __call__(self, method: Method, path: str, work: Work, operation: Operation) -> DescribedRoute:
        """Return a described route; its work gets the service before what :func:`described` hands it."""
        operation = replace(operation, tag=operation.tag or self.tag)
        return described(method, path, partial(work, self.service), operation, threads=self.threads)


def document(routes: Iterable[BaseRoute], version: str) -> dict[str, Any]:
    """Return the description of an application, as OpenAPI 3.1."""
    listed = list(_listed(routes))
    schemas, components = _schemas(listed)
    paths: dict[str, dict[str, Any]] = {}
    for path, route in listed:
        place = _PLACE.sub(r"{\1}", path)
        # of two routes that fit, the first answers
        paths.setdefault(place, {}).setdefault(route.method.lower(), _entry(place, route, schemas))
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


def openapi_route(version: str) -> Route:
    """Return the route of ``/openapi.json``; it describes the application it is part of."""
    made: dict[int, dict[str, Any]] = {}

    async def openapi(request: Request) -> Response:
        routes = request.app.routes
        if id(routes) not in made:
            made[id(routes)] = document(routes, version)
        return answer(made[id(routes)])

    return describe("/openapi.json", openapi, "GET", Operation("This description", tag="service"))


@dataclass
class _Schemas:
    """The schema of each type, by the type's identity."""

    known: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def __getitem__(self, kind: Any) -> Mapping[str, Any]:  # noqa: ANN401 - any type there is
        if isinstance(kind, tuple):
            return {"anyOf": [self.known[id(one)] for one in kind]}
        return {} if kind is None else self.known[id(kind)]


def _listed(routes: Iterable[BaseRoute], before: str = "") -> Iterator[tuple[str, DescribedRoute]]:
    for route in routes:
        if isinstance(route, DescribedRoute):
            yield before + route.path, route
        elif isinstance(route, Mount):
            yield from _listed(route.routes or (), before + route.path)


def _schemas(listed: Iterable[tuple[str, DescribedRoute]]) -> tuple[_Schemas, dict[str, Any]]:
    kinds: dict[int, Any] = {}
    for _, route in listed:
        own = route.operation
        types = [own.body, own.answer, own.refusals, *(p.kind for p in _parameters(own))]
        flat = [one for kind in types for one in (kind if isinstance(kind, tuple) else (kind,))]
        kinds |= {id(kind): kind for kind in flat if kind is not None}
    schemas, components = msgspec.json.schema_components(kinds.values(), ref_template=_REFS)
    return _Schemas(dict(zip(kinds, schemas, strict=True))), components


def _entry(path: str, route: DescribedRoute, schemas: _Schemas) -> dict[str, Any]:
    own = route.operation
    name = re.sub(r"\W+", "_", path).rstrip("_")
    entry: dict[str, Any] = {
        "summary": own.summary,
        "operationId": f"{route.method.lower()}{name}",
        "responses": _responses(own, schemas),
    }
    if own.tag:
        entry["tags"] = [own.tag]
    parameters = [_parameter(Parameter(name), "path", schemas) for name in _PLACE.findall(path)]
    parameters += [_parameter(one, "query", schemas) for one in _parameters(own)]
    if parameters:
        entry["parameters"] = parameters
    if own.body is not None:
        entry["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[own.body]}},
        }
    return entry


def _parameters(own: Operation) -> list[Parameter]:
    """Return the parameters of the query string; those of a structure are its fields."""
    if isinstance(own.query, tuple):
        return list(own.query)
    parameters = []
    for one in msgspec.structs.fields(own.query):
        kind, description, required = one.type, "", one.required
        if get_origin(kind) is Annotated:
            kind, *metas = get_args(one.type)
            for meta in metas:
                if meta.description is None:
                    kind = Annotated[kind, meta]
                description += meta.description or ""
                required |= bool((meta.extra or {}).get("required"))  # refused with words of its own
        parameters.append(Parameter(one.encode_name, kind, description, required))
    return parameters


def _parameter(parameter: Parameter, where: str, schemas: _Schemas) -> dict[str, Any]:
    plain = {"type": "string", "minLength": 1} if where == "path" else {"type": "string"}
    schema = plain if parameter.kind is str else schemas[parameter.kind]
    required = where == "path" or parameter.required
    entry = {"name": parameter.name, "in": where, "required": required, "schema": schema}
    return entry | ({"description": parameter.description} if parameter.description else {})


def _responses(own: Operation, schemas: _Schemas) -> dict[str, Any]:
    success = {"schema": schemas[own.answer]} if own.media == "application/json" else {}
    responses: dict[str, Any] = {
        str(status): {"description": HTTPStatus(status).phrase, "content": {own.media: success}}
        for status in own.statuses
    }
    refusal = {"application/json": {"schema": schemas[own.refusals]}}
    return responses | {
        str(status): {"description": HTTPStatus(status).phrase, "content": refusal} for status in _REFUSALS
    }
