"""The table of model families: a name, how notation makes a model, how a bundle is rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rankhouse.models.base import Model


class Family(NamedTuple):
    """One line of the table.

    Attributes:
        make: What the notation calls: ``monot5("DIR")``, ``tk(vectors="glove.txt")``.
        rebuild: Makes a model from a bundle's policy and assets; the weights are put in afterwards.
    """

    make: Callable[..., Model[Any]]
    rebuild: Callable[[Mapping[str, Any], Mapping[str, bytes]], Model[Any]]


FAMILIES: dict[str, Family] = {}
