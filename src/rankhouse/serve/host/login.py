"""The page's door where keys are needed: a key is given once, and a cookie stands for it."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from rankhouse.serve.host.gates import CONTENT_POLICY, LOGIN
from rankhouse.serve.host.journal import Audit
from rankhouse.serve.host.keys import SESSION_SECONDS, Keys
from rankhouse.serve.page.sign_in import sign_in_page

_WAIT = 0.5  # seconds before a wrong key is answered


def routes(keys: Keys | None, audit: Audit) -> list[BaseRoute]:
    """Return the routes that sign people in and out.

    Args:
        keys: The keys; without any, signing in leads straight to the page.
    """
    wrong = asyncio.Lock()  # one guess at a time

    async def sign_in(request: Request) -> Response:
        if keys is None:
            return RedirectResponse("/", 303)
        if request.method != "POST":
            return _form(_inside(request.query_params.get("next", "")))
        given = dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
        there, caller = _inside(given.get("next", "")), keys.caller(given.get("key", "").strip())
        client = request.client.host if request.client else ""
        if caller is None:
            async with wrong:
                await asyncio.sleep(_WAIT)
            await asyncio.to_thread(audit.record, "refused", "nobody", client=client)
            return _form(there, is_wrong=True)
        await asyncio.to_thread(audit.record, "sign in", caller.name, client=client)
        response = RedirectResponse(there, 303)
        response.set_cookie(
            keys.cookie, keys.session(caller), SESSION_SECONDS,
            httponly=True, samesite="strict", secure=request.url.scheme == "https",
        )  # fmt: skip
        return response

    async def sign_out(request: Request) -> Response:
        del request
        response = RedirectResponse(LOGIN, 303)
        if keys is not None:
            response.delete_cookie(keys.cookie, httponly=True, samesite="strict")
        return response

    return [Route(LOGIN, sign_in, methods=["GET", "POST"]), Route("/logout", sign_out, methods=["POST"])]


def _inside(there: str) -> str:
    """Return a path of this service; anything else, another site above all, becomes the first page."""
    try:
        parts = urlsplit(there)
    except ValueError:
        return "/"
    is_path = there.startswith("/") and not there.startswith(("//", "/\\")) and there.isprintable()
    return there if is_path and not parts.netloc and not parts.scheme else "/"


def _form(there: str, *, is_wrong: bool = False) -> Response:
    return sign_in_page(LOGIN, there, CONTENT_POLICY, "This is not one of the keys." if is_wrong else "")
