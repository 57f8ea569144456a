"""Refusals that come before any handler, told as ``contracts/errors.py`` tells all."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from rankhouse.serve.contracts.errors import error_answer


def refusal(scope: Scope, error: Exception, *, closes: bool = False) -> Response:
    """Return the answer to a request that is not let in, or that failed."""
    response = error_answer(Request(scope), error)
    if closes:
        response.headers["connection"] = "close"
    return response
