"""Adapters for other people's frameworks, one file a host; nothing else of the package imports them.

A package adds one, a module, by an entry point of the group ``rankhouse.hosts`` (docs/extending.md).
"""

from rankhouse.core.notation import entries, load

_GROUP = "rankhouse.hosts"


def __getattr__(name: str) -> object:
    """Import an installed package's adapter when it is first asked for (PEP 562)."""
    if name.startswith("_") or name not in entries(_GROUP):
        raise AttributeError(
            f"module 'rankhouse.hosts' has no attribute '{name}', and no installed package adds it"
        )
    return load(_GROUP, name)
