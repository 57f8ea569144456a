"""What a person asked of a page: parameters of the address and fields of a form, read with care."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from urllib.parse import parse_qsl

from starlette.datastructures import MultiDict, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.serve.page.faults import fault_page
from rankhouse.serve.search.asking import Threads

Fields = QueryParams | MultiDict
Show = Callable[[Request], Response]
Write = Callable[[Request, Fields], Response]

MOST_FIELDS = 200
LONGEST_QUERY = 2_000


def view(path: str, threads: Threads, show: Show, write: Write | None = None) -> Route:
    """Return the route of a view; what people got wrong is told on a page.

    Args:
        show: Makes the page; runs in a thread, as it waits for indexes and models.
    """

    async def answer(request: Request) -> Response:
        work: Callable[[], Response] = partial(show, request)
        if request.method == "POST" and write is not None:
            work = partial(write, request, await _form(request))
        return await told(request, partial(threads.call, work))

    return Route(path, answer, methods=["GET", "POST"] if write else ["GET"])


async def told(request: Request, work: Callable[[], Awaitable[Response]]) -> Response:
    """Return what some work makes, or the page that says what is wrong."""
    try:
        return await work()
    except RankhouseError as error:
        return fault_page(request, error)


async def _form(request: Request) -> Fields:
    """Read the fields of a form, which browsers send like an address's parameters."""
    content = (await request.body()).decode("utf-8", "replace")
    try:
        return MultiDict(parse_qsl(content, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError as error:
        raise WrongUse(f"a form of at most {MOST_FIELDS} fields is accepted") from error


def words(fields: Fields, name: str, longest: int = LONGEST_QUERY) -> str:
    """Return a text, without white space around it.

    Args:
        name: Of the field; "" where it is not there.

    Raises:
        WrongUse: It is longer.
    """
    text = fields.get(name, "").strip()
    if len(text) > longest:
        raise WrongUse(f"{name} has {len(text):,} characters; at most {longest:,} are accepted")
    return text


def number(fields: Fields, name: str, usual: int, low: int, high: int) -> int:
    """Return a whole number.

    Raises:
        WrongUse: Anything else.
    """
    text = fields.get(name, "").strip()
    if not text:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and low <= int(text) <= high):
        raise WrongUse(f'{name}="{text[:40]}": give a whole number from {low:,} to {high:,}')
    return int(text)


def several(fields: Fields, name: str, most: int, what: str) -> list[str]:
    """Return the values of a field that may be there several times, each once.

    Raises:
        WrongUse: There are more.
    """
    given = list(dict.fromkeys(one for one in fields.getlist(name) if one))
    if len(given) > most:
        raise WrongUse(f"{len(given)} {what} were chosen; choose at most {most}")
    return given


def one_of(fields: Fields, name: str, choices: Sequence[str] | Mapping[str, object]) -> str:
    """Return one of the values that a choice has; the first where none was sent.

    Args:
        choices: What there is; one or more.

    Raises:
        WrongUse: Another one.
    """
    given = fields.get(name, "")
    if given and given not in choices:
        raise WrongUse(f'{name}="{given[:80]}": choose one of {", ".join(choices)}')
    return given or next(iter(choices))
