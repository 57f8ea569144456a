"""A request as its handler sees it: what it asks, who asks, until when; and the threads for its work.

Bodies, addresses and forms become msgspec's types: nulls and unknown fields are allowed, wrong fields named.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import msgspec
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.serve.contracts.shapes import Texts
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.errors import Empty, Invalid, Malformed

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker

T = TypeVar("T")
Rankers = Callable[[], Mapping[str, "ServedRanker"]]
"""The rankers of a service by name, as they are now."""
_surrogates = re.compile("[\ud800-\udfff]")
_MISSING: Final = re.compile("Object missing required field `(.*)`")
_BOUND = re.compile(r"expected `(?P<what>\w+)` (?P<length>of length )?(?P<sign>[<>]=) (?P<to>\d+)")


def decode(body: bytes, kind: type[T]) -> T:
    """Turn JSON into a type; Malformed, Invalid or Empty say what is wrong with it.

    Halves of surrogate pairs, which no encoding knows, become U+FFFD; 3.0 is 3.
    """
    decoder: msgspec.json.Decoder[T] = _decoder(kind)  # type: ignore[arg-type]  # a type can be hashed
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
        except msgspec.DecodeError:
            if b"\\ud" not in body and b"\\uD" not in body:
                raise
        return decoder.decode(_amended(body))
    except msgspec.ValidationError as error:
        _refuse(error)
    except (ValueError, RecursionError) as error:
        reason = str(error) or "nested too deeply"
        raise Malformed(f"the body is not JSON ({reason}); send an object as JSON in UTF-8") from None


def from_query(params: ImmutableMultiDict[str, str], kind: type[T]) -> T:
    """Turn parameters of an address into a type; empty ones count as not given, a list takes all of its name.

    Invalid names one that is missing, or of the wrong type or value.
    """
    fields = msgspec.structs.fields(cast(type[msgspec.Struct], kind))
    lists = {field.encode_name for field in fields if re.search(r"\b(list|tuple)\[", str(field.type))}
    given: dict[str, object] = {}
    for name in params:
        values = [value for value in params.getlist(name) if value]
        if values:
            given[name] = values if name in lists else values[-1]
    return converted(given, kind)


def converted(given: Mapping[str, object], kind: type[T], schema: str = "/openapi.json") -> T:
    """Turn values by name, maybe texts, into a type; Invalid names a wrong one, and where the schema is."""
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        _refuse(error, "", schema)


def given(body: bytes, *names: str) -> dict[str, bytes]:
    """Return the fields of these names that a body holds and that are not null, as JSON."""
    fields = decode(body, dict[str, msgspec.Raw])
    known = {name: bytes(fields[name]) for name in names if name in fields}
    return {name: value for name, value in known.items() if value != b"null"}


def listed(texts: Texts) -> list[str]:
    """Return a text or several as a list."""
    return [texts] if isinstance(texts, str) else texts


def answer(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON answer."""
    return Response(msgspec.json.encode(content), status, headers, "application/json")


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - any type there is
    return msgspec.json.Decoder(kind)


def _refuse(
    error: msgspec.ValidationError, whole: str = "the body: ", schema: str = "/openapi.json"
) -> NoReturn:
    reason, _, at = str(error).partition(" - at `$")
    place = at.removesuffix("`").removeprefix(".")
    if missing := _MISSING.fullmatch(reason):
        place = ".".join(filter(None, (place, missing[1])))
        reason = f"is missing; {schema} says what it is"
    reason = reason[:1].lower() + reason[1:]
    if (bound := _BOUND.fullmatch(reason)) and bound["what"] in {"int", "str"}:
        of = f" character{'s' * (bound['to'] != '1')}" if bound["length"] else ""
        reason = f"must be at {'most' if bound['sign'] == '<=' else 'least'} {int(bound['to']):,}{of}"
    if not place:
        raise Invalid(f"{whole}{reason}") from None
    if reason.startswith("expected `array` of length >= 1"):
        raise Empty(f"{place} is empty; give at least one", place) from None
    raise Invalid(f"{place}: {reason}", place) from None


def _amended(body: bytes) -> bytes:
    """Return JSON without halves of surrogate pairs, and with 3 for 3.0: JSON knows no difference."""
    value = json.loads(body, parse_constant=_no_number, parse_float=_number)
    return _surrogates.sub("\ufffd", json.dumps(value, ensure_ascii=False)).encode()


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


@dataclass(frozen=True)
class Caller:
    """Caller, by its name in logs, and whether it may change anything."""

    name: str
    may_write: bool = True


ANYBODY = Caller("anybody")
"""Caller where there are no keys."""


def caller_of(request: Request) -> Caller:
    """Return who asks, as the key gate found out."""
    caller: Caller = getattr(request.state, "caller", ANYBODY)
    return caller


class ClientDeadline(Deadline):
    """A deadline that has also passed when the client has hung up."""

    gone: threading.Event

    @property
    def passed(self) -> bool:
        """Whether nobody still waits."""
        return self.gone.is_set() or super().passed


def deadline_of(request: Request, seconds: float | None = None) -> Deadline:
    """Return when nobody still waits for an answer: its time is over, or the client gone.

    The time is the seconds that the client asks for, and at most what the service gives a request.
    """
    lifeline = getattr(request.state, "lifeline", None)
    ends = (None if lifeline is None else lifeline.expires, Deadline.after(seconds).at)
    deadline = ClientDeadline(min((moment for moment in ends if moment is not None), default=None))
    deadline.gone = threading.Event() if lifeline is None else lifeline.gone
    return deadline


class Threads:
    """Threads for the work of a group of handlers, so many at a time; more work waits for its turn."""

    def __init__(self, name: str, most: int = 64) -> None:
        self._pool = ThreadPoolExecutor(most, name)

    async def call(self, work: Callable[..., T], *arguments: object) -> T:
        """Return what a function returns; a handler whose client hangs up does not wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *arguments))

    async def result(self, start: Callable[[], Future[T]]) -> T:
        """Return the result of work that a thread begins; a hang-up cancels it."""
        starting = asyncio.get_running_loop().run_in_executor(self._pool, start)
        try:
            future = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_cancel)
            raise
        return await asyncio.wrap_future(future)


def _cancel(starting: asyncio.Future[Future[T]]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()


TEXTS: Final = Threads("texts", 8)
"""Split and tokenise texts; slow work there delays only its own kind."""
