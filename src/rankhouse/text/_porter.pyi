from collections.abc import Callable

from typing_extensions import Buffer

def stem(word: str) -> str: ...
def terms(
    text: str, kinds: Buffer, stopped: frozenset[str], other: Callable[[str], str]
) -> list[str] | None: ...
def matches(
    text: str, kinds: Buffer, stopped: frozenset[str], other: Callable[[str], str], wanted: dict[str, float]
) -> list[tuple[int, int, str]] | None: ...
