"""Every refusal of the service, and the bodies that report them.

Nothing that a client sends ends in a 500: handlers raise a :class:`Refusal` or any other error of
:mod:`rankhouse.core.errors`, and :func:`handlers` makes the answer. Clients read different keys, so there
are two shapes of body: Hugging Face's for its paths, one object for all others.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from rankhouse.core.errors import (
    BadData,
    BadIndex,
    BadModel,
    MissingExtra,
    MissingInput,
    OutputFailed,
    RankhouseError,
    WrongUse,
    name_few,
)

log = logging.getLogger(__name__)

TEI_PATHS: Final = frozenset({"/", "/embed", "/embed_all", "/info", "/predict", "/similarity", "/tokenize"})
"""Paths whose clients read ``{"error": text, "error_type": word}``."""


class Refusal(RankhouseError):
    """A request that is not answered as asked: ``param`` names the field that is wrong, if it is one."""

    status = 400
    code = "bad_request"
    tei = "validation"  # Hugging Face's word for it
    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class Malformed(Refusal):
    """A body that is not JSON."""

    code = "malformed_body"


class Empty(Refusal):
    """A list that must hold something holds nothing."""

    code, tei = "empty", "empty"


class Unauthorized(Refusal):
    """No key, or one that is not known."""

    status, code = 401, "invalid_api_key"
    headers = MappingProxyType({"www-authenticate": "Bearer"})


class Forbidden(Refusal):
    """Something that this key, this origin or this host may not do."""

    status, code = 403, "forbidden"


class UnknownName(Refusal):
    """A model, an index, a system or a document that is not here."""

    status, code = 404, "not_found"

    def __init__(self, kind: str, name: str, choices: Iterable[str] = (), param: str | None = None) -> None:
        choices = list(choices)
        near = get_close_matches(name, choices, 1)
        hint = f' (did you mean "{near[0]}"?)' if near else ""
        there = f"; known: {name_few(choices, 10, quoted=True)}" if choices else ""
        super().__init__(f'there is no {kind} "{name[:200]}"{hint}{there}', param)


class SlowClient(Refusal):
    """A client that took too long to send its request."""

    status, code = 408, "request_timeout"


class Outdated(Refusal):
    """Something that was decided on a state that has changed since."""

    status, code = 409, "changed_since"


class TooLarge(Refusal):
    """A body over the limit."""

    status, code = 413, "request_too_large"


class Invalid(Refusal):
    """A field of the wrong type or value; ``param`` names it."""

    status, code = 422, "invalid_value"


class NotThisModel(Refusal):
    """Something that this model cannot do, such as vectors from one that has none."""

    status, code, tei = 422, "wrong_model", "backend"


class Overloaded(Refusal):
    """More work than may wait; nothing of it was begun."""

    status, code, tei = 429, "overloaded", "overloaded"

    def __init__(self, retry_after: float) -> None:
        seconds = max(1, math.ceil(retry_after))
        super().__init__(f"the queue is full; try again in about {seconds} s")
        self.retry_after = retry_after
        milliseconds = max(100, math.ceil(retry_after * 1000))
        self.headers = {"retry-after": str(seconds), "retry-after-ms": str(milliseconds)}


class Unready(Refusal):
    """The service is starting or stopping, or a model of it is broken."""

    status, code, tei = 503, "unavailable", "unhealthy"
    headers = MappingProxyType({"retry-after": "1"})


class DeadlinePassed(Refusal):
    """The work was not done in the time it was given; the rest of it is dropped."""

    status, code, tei = 504, "deadline_passed", "backend"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "the time for this request is over; ask for less, or wait longer")


_CODES: Final[Mapping[type[RankhouseError], tuple[int, str]]] = {
    WrongUse: (422, "invalid_value"),
    BadData: (422, "invalid_value"),
    MissingInput: (404, "not_found"),
    BadModel: (503, "model_failed"),
    BadIndex: (503, "index_failed"),
    OutputFailed: (503, "write_failed"),
    MissingExtra: (503, "not_installed"),
    RankhouseError: (503, "unavailable"),
}
"""Errors of the other packages: status and code."""

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ErrorDetail(msgspec.Struct, frozen=True):
    """Description of an error.

    Attributes:
        message: The value given, what is accepted, what to do next.
        type: The kind of error.
        param: The field that is wrong.
        code: A word that programs can tell it by.
    """

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct, frozen=True):
    """An error as the clients of Cohere, Jina, Voyage, OpenAI and vLLM read it.

    Attributes:
        error: The error.
        message: Its message once more.
        detail: Its message once more.
    """

    error: ErrorDetail
    message: str
    detail: str


class TeiError(msgspec.Struct, frozen=True):
    """An error as Hugging Face's clients read it.

    Attributes:
        error: The message.
        error_type: "validation", "backend", "overloaded", "unhealthy", "tokenizer" or "empty".
        param: The field that is wrong.
    """

    error: str
    error_type: str
    param: str | None = None


def speak_tei(request: Request) -> None:
    """Let errors of this request have Hugging Face's shape, whatever its path."""
    request.state.speaks_tei = True


def error_answer(request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed."""
    status, code, message = fault_of(error, request.url.path)
    param = error.param if isinstance(error, Refusal) else None
    headers = dict(error.headers or {}) if isinstance(error, Refusal | HTTPException) else {}
    if getattr(request.state, "speaks_tei", request.url.path in TEI_PATHS):
        word = error.tei if isinstance(error, Refusal) else "backend" if status >= 500 else "validation"
        body: msgspec.Struct = TeiError(message, word, param)
    else:
        kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        body = ErrorBody(ErrorDetail(message, kind, param, code), message, message)
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def fault_of(error: Exception, path: str) -> tuple[int, str, str]:
    """Return status, code and message of an error, which answers a request for a path."""
    if isinstance(error, Refusal):
        return error.status, error.code, str(error)
    if isinstance(error, HTTPException):
        name = HTTPStatus(error.status_code).phrase
        message = error.detail or name
        if error.status_code == HTTPStatus.NOT_FOUND and message == name:  # Starlette's, where no route fits
            message = f"there is nothing at {path:.200}; /openapi.json lists every path"
        return error.status_code, name.lower().replace(" ", "_"), message
    if isinstance(error, RankhouseError):
        kind = next(kind for kind in _CODES if isinstance(error, kind))
        return *_CODES[kind], str(error)
    return 500, "internal", "the service failed; its log says why"


def refusal(scope: Scope, error: Exception, *, closes: bool = False) -> Response:
    """Return the answer to a request that is refused before a handler, or after one failed."""
    response = error_answer(Request(scope), error)
    if closes:
        response.headers["connection"] = "close"
    return response


def handlers(answer: Callable[[Request, Exception], Response] = error_answer) -> dict[Any, Any]:
    """Return Starlette's ``exception_handlers`` of the service; what nobody foresaw is logged."""

    async def handle(request: Request, error: Exception) -> Response:
        if not isinstance(error, RankhouseError | HTTPException):
            log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer(request, error)

    return dict.fromkeys((RankhouseError, HTTPException, Exception), handle)
