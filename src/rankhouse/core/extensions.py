"""What other installed packages add under names of their own, by Python's entry points (docs/extending.md).

Looking them up takes tens of milliseconds, so a table asks for them only where its own names do not suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from rankhouse.core.errors import RankhouseError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


@cache
def entries(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group, name -> where; RankhouseError if two packages claim a name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and only for names not known

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise RankhouseError(
                f'two installed packages bring "{entry.name}" for {group}: {other.value} and {entry.value}; '
                "uninstall one of them"
            )
    return found


@cache
def load(group: str, name: str) -> Any:  # noqa: ANN401 - what the package says
    """Import what an entry point names; RankhouseError if it cannot be imported."""
    entry = entries(group)[name]
    try:
        return entry.load()
    except Exception as error:  # an import runs any code
        package = entry.dist.name if entry.dist else "an installed package"
        raise RankhouseError(
            f'"{name}" of {package}, an extension for {group}, cannot be loaded from {entry.value} '
            f"({type(error).__name__}: {error}); mend or uninstall that package"
        ) from error


class Extensible(Mapping[str, T]):
    """A table of names that installed packages may add to; its own names come first.

    Args:
        own: Name -> what it stands for.
        group: The group of entry points.
        fits: Whether what one of them names is of the right kind.
        kind: What that is, for the error.
    """

    def __init__(
        self,
        own: Mapping[str, T],
        group: str,
        fits: Callable[[object], bool] = callable,
        kind: str = "callable",
    ) -> None:
        self._own, self._group, self._fits, self._kind = own, group, fits, kind

    def __getitem__(self, name: str) -> T:
        if name in self._own:
            return self._own[name]
        if name not in entries(self._group):
            raise KeyError(name)
        loaded: T = load(self._group, name)
        if not self._fits(loaded):
            raise RankhouseError(
                f'"{name}", an extension for {self._group}, is a {type(loaded).__name__} '
                f"({entries(self._group)[name].value}); it must be a {self._kind}"
            )
        return loaded

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in entries(self._group)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in entries(self._group) if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)
