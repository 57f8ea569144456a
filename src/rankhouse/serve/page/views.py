"""Views: an address or a form becomes a structure, a thread does its work, a page tells what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.serve.contracts.requests import Threads, from_query
from rankhouse.serve.errors import error_answer
from rankhouse.serve.page.render import page

Handler = Callable[[Request, Exception], Any]
Line = Annotated[str, Meta(max_length=2_000)]
"""A field of a view: one line of text."""

_MOST_FIELDS = 200


class FormWork(NamedTuple):
    """What a posted form does: the structure of its fields, and a function of the request and that."""

    fields: type[Struct]
    write: Callable[[Request, Any], Response]


def view(
    path: str,
    threads: Threads,
    fields: type[Struct],
    show: Callable[[Request, Any], Response],
    form: FormWork | None = None,
) -> Route:
    """Return the route of a view: ``show`` makes the page of an address's fields, in a thread."""

    async def answer(request: Request) -> Response:
        try:
            if request.method == "POST" and form is not None:
                asked: Struct = from_query(await read_form(request), form.fields)
                return await threads.call(form.write, request, asked)
            return await threads.call(show, request, from_query(_trimmed(request.query_params), fields))
        except RankhouseError as error:
            return fault_page(request, error)

    return Route(path, answer, methods=["GET", "POST"] if form else ["GET"])


async def read_form(request: Request) -> ImmutableMultiDict[str, str]:
    """Read the fields of a form, which browsers send like an address's parameters."""
    content = (await request.body()).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(content, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise WrongUse(f"a form of at most {_MOST_FIELDS} fields is accepted") from error
    return _trimmed(ImmutableMultiDict(pairs))


def _trimmed(fields: ImmutableMultiDict[str, str]) -> ImmutableMultiDict[str, str]:
    """Return fields without white space around values, and each value once."""
    return ImmutableMultiDict(list(dict.fromkeys((name, one.strip()) for name, one in fields.multi_items())))


# --- what went wrong --------------------------------------------------------------------------------------


def wants_html(request: Request) -> bool:
    """Return whether a person asks, by a browser; the page's script asks for JSON."""
    return "text/html" in request.headers.get("accept", "")


def fault_page(request: Request, error: RankhouseError) -> Response:
    """Return what is wrong with a request for a page."""
    answer = error_answer(request, error)
    return _as_page(request, answer, str(error)) if wants_html(request) else answer


def fault_handlers(known: Mapping[Any, Handler]) -> dict[Any, Handler]:
    """Return handlers of errors that tell people on a page what they tell programs in JSON."""

    def shown(handler: Handler) -> Handler:
        async def answer(request: Request, error: Exception) -> Response:
            told: Response = await handler(request, error)
            if request.method != "GET" or not wants_html(request):
                return told
            body = msgspec.json.decode(bytes(told.body))
            return _as_page(request, told, str(body.get("message") or body.get("error") or ""))

        return answer

    return {kind: shown(handler) for kind, handler in known.items()}


def _as_page(request: Request, answer: Response, message: str) -> Response:
    """Return a page that says what an answer for programs says."""
    status = answer.status_code
    headers = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
    came, own = request.headers.get("referer", ""), f"{request.url.scheme}://{request.url.netloc}/"
    is_elsewhere = came != str(request.url) or request.method == "POST"
    content = {
        "title": HTTPStatus(status).phrase.capitalize(),
        "message": message,
        "back": came if came.startswith(own) and is_elsewhere else "",
    }
    return page(request, "error.html.j2", content, status, headers=headers)
