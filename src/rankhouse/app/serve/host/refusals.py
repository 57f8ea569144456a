"""Refusals that come before any handler: one shape that every client reads."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse, Response


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a refusal in the shape of the service's errors.

    Args:
        status: The HTTP status.
        message: What is wrong and what to do.
        headers: More headers.
    """
    code = HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")
    error = {"message": message, "type": code, "param": None, "code": code}
    return JSONResponse({"error": error, "message": message, "detail": message}, status, headers)
