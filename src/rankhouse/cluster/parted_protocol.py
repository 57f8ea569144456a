"""What a replica holds and answers, and how a refusal travels."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from rankhouse.core import errors
from rankhouse.core.errors import RankhouseError


class Refusal(NamedTuple):
    """Why an actor does not do what is asked.

    Attributes:
        kind: Name of the error.
        text: What it says.
    """

    kind: str
    text: str

    @classmethod
    def of(cls, error: RankhouseError) -> Refusal:
        """Return an error as it travels: not every one can be made again from its pickle."""
        return cls(type(error).__name__, str(error))

    def error(self) -> RankhouseError:
        """Return the error as it was raised there."""
        kind = getattr(errors, self.kind, RankhouseError)
        made: RankhouseError = kind.__new__(kind, self.text)
        made.__dict__.setdefault("reason", self.text)
        return made


class Responder(Protocol):
    """What an actor holds."""

    def mark(self) -> str:
        """Return a text that is the same for all replicas."""
        ...

    def answer(self, request: Any) -> Any:  # noqa: ANN401 - each kind has its own messages
        """Answer a request."""
        ...


class Setup(Protocol):
    """How a replica opens what it holds; pickled on its way there."""

    def open(self) -> Responder:
        """Open it."""
        ...
