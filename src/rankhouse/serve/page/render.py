"""Pages: an address or a form becomes a structure, a thread does its work, a template shows what came out.

One frame, one style sheet, one script; the same view saved as one file.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from msgspec import Meta, Struct
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import rankhouse.explanation
from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.progress import counted
from rankhouse.core.results import Marks
from rankhouse.page.html import environment_of
from rankhouse.serve.contracts.requests import ANYBODY, Threads, caller_of, from_query
from rankhouse.serve.errors import error_answer, fault_of

_HERE = Path(__file__).parent
_ANSWERS = Path(rankhouse.explanation.__file__).parent / "templates"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_SPACE = re.compile(r"\n\s+")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_UNCACHED = {"cache-control": "no-store"}
Line = Annotated[str, Meta(max_length=2_000)]
"""A field of a view: one line of text."""

_MOST_FIELDS = 200


class Kind(NamedTuple):
    """A kind of file that views are saved as: what people call it, and its type."""

    name: str
    media_type: str


KINDS: Mapping[str, Kind] = {
    "html": Kind("page", "text/html"),
    "md": Kind("Markdown", "text/markdown"),
    "csv": Kind("CSV", "text/csv"),
    "json": Kind("JSON", "application/json"),
    "qrels": Kind("qrels", "text/plain"),
    "run": Kind("run", "text/plain"),
}


class Static(NamedTuple):
    """A file that never changes under its address, which has a digest of its content."""

    path: str
    content: bytes
    media_type: str


def page(
    request: Request,
    template: str,
    content: Mapping[str, object],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a page; with ``?export=html`` the same as one file that stands alone."""
    saved = is_saved(request)
    caller = caller_of(request)
    here = {"path": request.url.path, "caller": "" if caller is ANYBODY else caller.name}
    service = request.app.state.service
    frame = {"saved": saved, "here": here, "work": service.work, "has_files": service.contents is not None}
    text = filled(template, {**frame, **content})
    sent = {**_UNCACHED, **(headers or {})}
    if saved:
        sent |= _attachment(f"{request.url.path.strip('/') or 'search'}.html")
    return Response(text.encode("utf-8", "replace"), status, sent, "text/html; charset=utf-8")


def is_saved(request: Request) -> bool:
    """Return whether a page is to stand alone, as a file."""
    return request.query_params.get("export") == "html" and request.method == "GET"


def filled(template: str, content: Mapping[str, object]) -> str:
    """Return a template of this room, filled."""
    return _environment().get_template(template).render(content)


def download(name: str, content: str | bytes) -> Response:
    """Return a file that a browser saves."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return Response(data, 200, _UNCACHED | _attachment(name), KINDS[name.rpartition(".")[2]].media_type)


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


def exports(request: Request, *kinds: str) -> list[tuple[str, str]]:
    """Return names and addresses of the files that a view can be saved as."""
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "export"]
    return [(KINDS[kind].name, address(request.url.path, *kept, export=kind)) for kind in kinds]


def _attachment(name: str) -> dict[str, str]:
    """Return the header that makes a browser save what it gets."""
    return {"content-disposition": f'attachment; filename="{re.sub(r"[^A-Za-z0-9._-]+", "-", name)}"'}


def sign_in_page(action: str, there: str, policy: str, fault: str = "") -> Response:
    """Return the form that asks for a key; its styles are named in the service's Content-Security-Policy."""
    content = {"title": "Sign in", "action": action, "there": there, "fault": fault}
    return _with_own_styles("sign_in.html.j2", content, policy, 401 if fault else 200)


def waiting_page(answer: Response, message: str, policy: str) -> Response:
    """Return what a browser shows, and loads again, while the service cannot answer yet."""
    seconds = answer.headers["retry-after"]
    content = {"title": "One moment", "message": message, "seconds": seconds}
    headers = {"retry-after": seconds, "connection": "close"}
    return _with_own_styles("waiting.html.j2", content, policy, answer.status_code, headers=headers)


def _with_own_styles(
    template: str,
    content: Mapping[str, object],
    policy: str,
    status: int,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    """Return a page that needs no other file; the policy names its styles by their digest."""
    text = filled(template, {"saved": True, **content})
    digest = base64.b64encode(hashlib.sha256(style("page").content).digest()).decode()
    own = policy.replace("style-src 'self'", f"style-src 'sha256-{digest}'")
    sent = {"content-security-policy": own, **_UNCACHED, **headers}
    return Response(text.encode("utf-8", "replace"), status, sent, "text/html; charset=utf-8")


def static_routes() -> list[BaseRoute]:
    """Return the routes of style sheets, scripts and the icon."""
    files = {
        file.path.rpartition("/")[2]: file for file in (*map(style, SHEETS), *map(script, SCRIPTS), icon())
    }

    async def send(request: Request) -> Response:
        file = files.get(request.path_params["name"])
        if file is None:
            return Response("there is no such file", 404, media_type="text/plain")
        kept = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(file.content, headers=kept, media_type=file.media_type)

    return [Route("/static/{name}", send)]


SHEETS: Final[Mapping[str, Sequence[str]]] = {
    "page": ("style.css", "service.css"),
    "work": ("shares.css.j2", "why.css", "work.css"),
}
"""Style sheet -> the files it is made of: what every page needs, and what all but the search page need."""
SCRIPTS: Final = ("page", "work")


@lru_cache(maxsize=len(SHEETS))
def style(name: str) -> Static:
    """Return a style sheet."""
    sheet = "".join(_environment().get_template(file).render() for file in SHEETS[name])
    return _static(name, "css", _SPACE.sub("\n", sheet).encode(), "text/css; charset=utf-8")


@lru_cache(maxsize=len(SCRIPTS))
def script(name: str) -> Static:
    """Return a script, a module; that of the other pages imports the search page's by its address."""
    source = (_HERE / "static" / f"{name}.js").read_text(encoding="utf-8")
    if name != "page":
        source = source.replace('"./page.js"', f'"{script("page").path}"')
    return _static(name, "js", source.encode(), "text/javascript")


@pass_context
def sheets(context: Context, *names: str) -> Markup:
    """Return the elements that bring style sheets and scripts; a saved file holds its styles itself."""
    if context["saved"]:
        css = "".join(style(name).content.decode() for name in names)
        return Markup(f"<style>{css}</style>")  # noqa: S704 - our own style sheets
    both = Markup('<link rel="stylesheet" href="{}">\n<script type="module" src="{}"></script>\n')
    return Markup("").join(both.format(style(name).path, script(name).path) for name in names)


@lru_cache(maxsize=1)
def icon() -> Static:
    """Return the icon."""
    return _static("icon", "svg", (_HERE / "static" / "icon.svg").read_bytes(), "image/svg+xml")


def _static(name: str, ending: str, content: bytes, media_type: str) -> Static:
    return Static(f"/static/{name}-{hashlib.sha256(content).hexdigest()[:12]}.{ending}", content, media_type)


# --- what templates call ----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = environment_of(_HERE / "templates", _HERE / "static", _ANSWERS)
    made.finalize = visible
    made.filters |= {"marked": marked, "brief": brief, "counted": counted, "minus": minus}
    made.globals |= {"address": address, "link": link, "sheets": sheets, "icon": icon}
    return made


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


def marked(text: str, marks: Marks) -> Iterator[tuple[str, bool]]:
    """Cut a text where words are to be marked."""
    last = 0
    for start, end in marks:
        if last < start:
            yield text[last:start], False
        yield text[start:end], True
        last = end
    if last < len(text):
        yield text[last:], False


def brief(text: str, most: int) -> str:
    """Return a text, its end cut off where it is too long."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def minus(text: object) -> str:
    """Return numbers with a true minus sign."""
    return str(text).replace("-", "−")


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


def fault_page(request: Request, error: Exception) -> Response:
    """Return what is wrong with a request for a page: as a page to people, as JSON to programs."""
    answer = error_answer(request, error)
    if not wants_html(request):
        return answer
    headers = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
    came, own = request.headers.get("referer", ""), f"{request.url.scheme}://{request.url.netloc}/"
    is_elsewhere = came != str(request.url) or request.method == "POST"
    content = {
        "title": HTTPStatus(answer.status_code).phrase.capitalize(),
        "message": fault_of(error, request.url.path)[2],
        "back": came if came.startswith(own) and is_elsewhere else "",
    }
    return page(request, "error.html.j2", content, answer.status_code, headers=headers)


def error_page(request: Request, error: Exception) -> Response:
    """Answer any request that failed: one that looks gets a page, one that writes JSON."""
    return fault_page(request, error) if request.method == "GET" else error_answer(request, error)
