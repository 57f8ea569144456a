"""The page's door where keys are needed: a key is given once, and a cookie stands for it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from rankhouse.app.serve.host.gates import CONTENT_POLICY, LOGIN
from rankhouse.app.serve.host.journal import Audit
from rankhouse.app.serve.host.keys import SESSION_SECONDS, Keys

_WAIT = 0.5  # seconds before a wrong key is answered
_STYLE = (
    ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:0;padding:1rem;"
    "min-height:90vh;display:grid;place-content:center}form{display:grid;gap:.75rem;width:min(22rem,90vw)}"
    "h1{font-size:1.4rem;margin:0}input,button{font:inherit;padding:.5rem;min-width:0}"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · rankhouse</title>
<style>{style}</style>
</head>
<body>
<main>
<form method="post" action="{action}">
<h1>rankhouse</h1>
{fault}<label for="key">Key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<input type="hidden" name="next" value="{there}">
<button>Sign in</button>
</form>
</main>
</body>
</html>
"""
_POLICY = CONTENT_POLICY.replace(
    "style-src 'self'",
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'",
)


def routes(keys: Keys | None, audit: Audit) -> list[BaseRoute]:
    """Return the routes that sign people in and out.

    Args:
        keys: The keys; without any, signing in leads straight to the page.
        audit: Told of every key that was given.
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
            audit.record("refused", "nobody", client=client)
            return _form(there, is_wrong=True)
        audit.record("sign in", caller.name, client=client)
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
    fault = '<p role="alert">This is not one of the keys.</p>\n' if is_wrong else ""
    content = _PAGE.format(style=_STYLE, action=LOGIN, fault=fault, there=html.escape(there))
    headers = {"content-security-policy": _POLICY, "cache-control": "no-store"}
    return Response(content, 401 if is_wrong else 200, headers, "text/html; charset=utf-8")
