"""The sign-in form: the one page that is seen without a key, so it brings its own style sheet along."""

from __future__ import annotations

import base64
import hashlib

from starlette.responses import Response

from rankhouse.serve.page.render import filled, style


def sign_in_page(action: str, there: str, policy: str, fault: str = "") -> Response:
    """Return the form that asks for a key.

    Args:
        policy: The service's Content-Security-Policy; its styles are those of this page.
        fault: What was wrong with the last one; "" for nothing.
    """
    content = {"title": "Sign in", "action": action, "there": there, "fault": fault}
    text = filled("sign_in.html.j2", {"saved": True, "here": {"path": action, "caller": ""}, **content})
    digest = base64.b64encode(hashlib.sha256(style().content).digest()).decode()
    own = policy.replace("style-src 'self'", f"style-src 'sha256-{digest}'")
    headers = {"content-security-policy": own, "cache-control": "no-store"}
    return Response(
        text.encode("utf-8", "replace"), 401 if fault else 200, headers, "text/html; charset=utf-8"
    )
