"""Pages: an address or a form becomes a structure, a thread does its work, a template shows what came out.

One frame, one style sheet, one script; the same view saved as one file.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from jinja2 import Environment, pass_context
from jinja2.filters import do_filesizeformat
from jinja2.runtime import Context
from markupsafe import Markup
from msgspec import Meta
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response

import rankhouse.explanation
from rankhouse.core.errors import WrongUse
from rankhouse.core.progress import clock, counted
from rankhouse.page.html import environment_of
from rankhouse.serve.contracts.requests import ANYBODY, Caller, caller_of
from rankhouse.serve.errors import error_answer, fault_of
from rankhouse.serve.folder.files import FolderProgress
from rankhouse.serve.page.extract import marked

_HERE = Path(__file__).parent
_ANSWERS = Path(rankhouse.explanation.__file__).parent / "templates"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_SPACE = re.compile(r"\n\s+")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_UNCACHED = {"cache-control": "no-store"}
Line = Annotated[str, Meta(max_length=2_000)]
"""A field of a view: one line of text."""

_MOST_FIELDS = 200


CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "html": ("page", "text/html"),
    "md": ("Markdown", "text/markdown"),
    "csv": ("CSV", "text/csv"),
    "json": ("JSON", "application/json"),
    "qrels": ("qrels", "text/plain"),
    "run": ("run", "text/plain"),
}
"""Kind of file that views are saved as -> what people call it, and its media type."""


def page(
    request: Request,
    template: str,
    content: Mapping[str, object],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a page; with ``?export=html`` the same as one file that stands alone."""
    caller, service = caller_of(request), request.app.state.service
    frame = {
        "saved": is_saved(request),
        "request": request,
        "caller": "" if caller is ANYBODY else caller.name,
        "indexes": service.catalogue.indexes,
        "work": service.work,
        "has_files": service.contents is not None,
    }
    text = filled(template, {**frame, **content})
    sent = {**_UNCACHED, **(headers or {})}
    if frame["saved"]:
        sent |= _attachment(f"{request.url.path.strip('/') or 'search'}.html")
    return Response(text.encode("utf-8", "replace"), status, sent, "text/html; charset=utf-8")


def is_saved(request: Request) -> bool:
    """Return whether a page is to stand alone, as a file."""
    return request.query_params.get("export") == "html" and request.method == "GET"


def filled(template: str, content: Mapping[str, object]) -> str:
    """Fill a template of this package."""
    return _environment().get_template(template).render(content)


def download(name: str, content: str | bytes) -> Response:
    """Return a file that a browser saves."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return Response(data, 200, _UNCACHED | _attachment(name), KINDS[name.rpartition(".")[2]][1])


def csv_of(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV.

    A text that a spreadsheet would take for a formula, and compute, has an apostrophe before it; who wants
    texts as they are takes JSON.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_harmless(cell) for cell in row] for row in rows)
    return out.getvalue()


def _harmless(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def _attachment(name: str) -> dict[str, str]:
    """Return the header that makes a browser save what it gets."""
    return {"content-disposition": f'attachment; filename="{re.sub(r"[^A-Za-z0-9._-]+", "-", name)}"'}


def sign_in_page(action: str, there: str, fault: str = "") -> Response:
    """Return the form that asks for a key."""
    content = {"title": "Sign in", "action": action, "there": there, "fault": fault}
    return _with_own_styles("sign_in.html.j2", content, 401 if fault else 200, {})


def waiting_page(
    answer: Response, message: str, reading: FolderProgress | None, caller: Caller = ANYBODY
) -> Response:
    """Return what a browser shows, and loads again, while the service cannot answer yet."""
    seconds = answer.headers["retry-after"]
    title = "One moment" if reading is None else "Reading your files"
    content = {"title": title, "message": message, "seconds": seconds, "reading": reading}
    content["caller"] = "" if caller is ANYBODY else caller.name
    headers = {"retry-after": seconds, "connection": "close"}
    return _with_own_styles("waiting.html.j2", content, answer.status_code, headers)


def _with_own_styles(
    template: str, content: Mapping[str, object], status: int, headers: Mapping[str, str]
) -> Response:
    """Return a page that needs no other file; its policy names its styles by their digest."""
    text = filled(template, {"saved": True, **content})
    own = CONTENT_POLICY
    for kind, name in (("style", "page.css"), ("script", "waiting.js")):
        digest = base64.b64encode(hashlib.sha256(static(name).content).digest()).decode()
        own = own.replace(f"{kind}-src 'self'", f"{kind}-src 'sha256-{digest}'")
    sent = {"content-security-policy": own, **_UNCACHED, **headers}
    return Response(text.encode("utf-8", "replace"), status, sent, "text/html; charset=utf-8")


# --- files that never change under their addresses ---------------------------------------------------------

_STATIC: Final[Mapping[str, Sequence[str]]] = {
    "page.css": ("style.css", "service.css"),
    "work.css": ("shares.css.j2", "why.css", "work.css"),
    "page.js": (),
    "work.js": (),
    "icon.svg": (),
}
"""File -> the style sheets it is made of; "page" is what every page needs, "work" all but the search page."""
_MEDIA: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript", "svg": "image/svg+xml"}


class Static(NamedTuple):
    """A file whose address has a digest of its content."""

    path: str
    content: bytes
    media_type: str


@cache
def static(name: str) -> Static:
    """Return a style sheet, a script (a module) or the icon."""
    stem, _, ending = name.partition(".")
    if ending == "css":
        text = "".join(_environment().get_template(file).render() for file in _STATIC[name])
        text = _SPACE.sub("\n", text)
    else:
        text = (_HERE / "static" / name).read_text(encoding="utf-8")
    if name == "work.js":  # imports the search page's script
        text = text.replace('"./page.js"', f'"{static("page.js").path}"')
    content = text.encode()
    path = f"/static/{stem}-{hashlib.sha256(content).hexdigest()[:12]}.{ending}"
    return Static(path, content, _MEDIA[ending])


async def send_static(request: Request) -> Response:
    """Answer a request for one of these files."""
    file = next((one for one in map(static, _STATIC) if one.path == request.url.path), None)
    if file is None:
        return Response("there is no such file", 404, media_type="text/plain")
    kept = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(file.content, headers=kept, media_type=file.media_type)


# --- what templates call ----------------------------------------------------------------------------------


@cache
def _environment() -> Environment:
    made = environment_of(_HERE / "templates", _HERE / "static", _ANSWERS)
    made.finalize = visible
    made.filters |= {
        "marked": marked,
        "brief": brief,
        "clock": clock,
        "counted": counted,
        "minus": minus,
        "file_name": file_name,
        "size": size,
    }
    made.globals |= {
        "address": address, "link": link, "sheets": sheets, "exports": exports, "static": static,
    }  # fmt: skip
    return made


@pass_context
def sheets(context: Context, *names: str) -> Markup:
    """Return the elements that bring style sheets and scripts; a saved file holds its styles itself."""
    if context["saved"]:
        css = "".join(static(f"{name}.css").content.decode() for name in names)
        return Markup(f"<style>{css}</style>")  # noqa: S704 - our own style sheets
    both = Markup('<link rel="stylesheet" href="{}">\n<script type="module" src="{}"></script>\n')
    return Markup("").join(
        both.format(static(f"{name}.css").path, static(f"{name}.js").path) for name in names
    )


@pass_context
def exports(context: Context, *kinds: str, runs: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return names and addresses of the files that a view can be saved as, and of its systems' runs."""
    path, given = context["request"].url.path, context["request"].query_params.multi_items()
    kept = [one for one in given if one[0] != "export"]
    rest = [one for one in kept if one[0] != "system"]
    files = [(KINDS[kind][0], address(path, *kept, export=kind)) for kind in kinds]
    return files + [(f"run of {name}", address(path, *rest, system=name, export="run")) for name in runs]


def visible(value: Any) -> Any:  # noqa: ANN401 - whatever a template shows
    """Return text without characters that no page may hold; all else as it is."""
    if isinstance(value, str) and _CONTROL.search(value):
        return type(value)(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", value))
    return value


def address(path: str, *more: tuple[str, object], **asked: object) -> str:
    """Return an address with its parameters; empty ones are left out, lists are repeated."""
    pairs = parameters(*more, **asked)
    query = "&".join(f"{quote(name, safe='')}={quote(one, safe='', errors='replace')}" for name, one in pairs)
    return f"{path}?{query}" if query else path


def parameters(*more: tuple[str, object], **asked: object) -> list[tuple[str, str]]:
    """Return parameters of an address, or fields of a form; empty ones are left out, lists are repeated."""
    return [(name, one) for name, value in (*more, *asked.items()) for one in _each(value)]


def _each(value: object) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _each(one)
    elif value not in (None, "", False):
        yield "1" if value is True else str(value)


@pass_context
def link(context: Context, path: str, *more: tuple[str, object], **asked: object) -> Markup:
    """Return an attribute that leads to another page; nothing in a saved file, where there are no others."""
    return Markup("") if context["saved"] else Markup(' href="{}"').format(address(path, *more, **asked))


def brief(text: str, most: int) -> str:
    """Return a text, its end cut off where it is too long."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def size(n: int) -> str:
    """Return a number of bytes as people read it."""
    return do_filesizeformat(n).replace("Bytes", "bytes")


@pass_context
def file_name(context: Context, doc_id: str) -> str:
    """Return a document's id; in a folder of files, the path as it is called there, without %20."""
    return unquote(doc_id) if context["has_files"] else doc_id


def minus(text: object) -> str:
    """Return numbers with a true minus sign."""
    return str(text).replace("-", "−")


async def read_form(request: Request) -> ImmutableMultiDict[str, str]:
    """Read the fields of a form, which browsers send like an address's parameters."""
    content = (await request.body()).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(content, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise WrongUse(f"a form of at most {_MOST_FIELDS} fields is accepted") from error
    return trimmed(ImmutableMultiDict(pairs))


def trimmed(fields: ImmutableMultiDict[str, str]) -> ImmutableMultiDict[str, str]:
    """Return fields without white space around values, and each value once."""
    return ImmutableMultiDict(list(dict.fromkeys((name, one.strip()) for name, one in fields.multi_items())))


# --- what went wrong --------------------------------------------------------------------------------------


def wants_html(request: Request) -> bool:
    """Return whether a person asks, by a browser; the page's script asks for JSON."""
    return "text/html" in request.headers.get("accept", "")


_TITLES: Final = {400: "That did not work", 422: "That did not work", 429: "Too busy", 504: "Too slow"}
"""Headings of pages for what went wrong, where HTTP has no words for people."""


def fault_page(request: Request, error: Exception) -> Response:
    """Return what is wrong with a request for a page: as a page to people, as JSON to programs."""
    answer = error_answer(request, error)
    if not wants_html(request):
        return answer
    headers = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
    came, own = request.headers.get("referer", ""), f"{request.url.scheme}://{request.url.netloc}/"
    is_elsewhere = came != str(request.url) or request.method == "POST"
    content = {
        "title": _TITLES.get(answer.status_code) or HTTPStatus(answer.status_code).phrase.capitalize(),
        "message": fault_of(error, request.url.path)[2],
        "back": came if came.startswith(own) and is_elsewhere else "",
    }
    return page(request, "error.html.j2", content, answer.status_code, headers=headers)


def error_page(request: Request, error: Exception) -> Response:
    """Answer any request that failed: one that looks gets a page, one that writes JSON."""
    return fault_page(request, error) if request.method == "GET" else error_answer(request, error)
