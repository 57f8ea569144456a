"""What went wrong, as a page for people; programs and the page's script get JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import RankhouseError
from rankhouse.serve.contracts.errors import error_answer
from rankhouse.serve.page.render import page

Handler = Callable[[Request, Exception], Any]


def wants_html(request: Request) -> bool:
    """Return whether a person asks, by a browser; the page's script asks for JSON."""
    return "text/html" in request.headers.get("accept", "")


def fault_page(request: Request, error: RankhouseError) -> Response:
    """Return what is wrong with a request for a page."""
    answer = error_answer(request, error)
    return _as_page(request, answer, str(error)) if wants_html(request) else answer


def _as_page(request: Request, answer: Response, message: str) -> Response:
    """Return a page that says what an answer for programs says."""
    status = answer.status_code
    headers = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
    content = {
        "title": HTTPStatus(status).phrase.capitalize(),
        "message": message,
        "back": _own_page(request),
    }
    return page(request, "error.html.j2", content, status, headers)


def handlers(known: Mapping[Any, Handler]) -> dict[Any, Handler]:
    """Return handlers of errors that tell people on a page what they tell programs in JSON."""

    def shown(handler: Handler) -> Handler:
        async def answer(request: Request, error: Exception) -> Response:
            told: Response = await handler(request, error)
            if request.method != "GET" or not wants_html(request):
                return told
            return _as_page(request, told, _message(told))

        return answer

    return {kind: shown(handler) for kind, handler in known.items()}


def _message(told: Response) -> str:
    """Return what an answer for programs says."""
    body = msgspec.json.decode(bytes(told.body))
    return str(body.get("message") or body.get("error") or "")


def _own_page(request: Request) -> str:
    """Return where a person came from, if it is a page of this service."""
    came, own = request.headers.get("referer", ""), f"{request.url.scheme}://{request.url.netloc}/"
    is_elsewhere = came != str(request.url) or request.method == "POST"
    return came if came.startswith(own) and is_elsewhere else ""
