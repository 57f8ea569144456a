"""What can be searched: one index, or several as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from rankhouse.index.index import Index
from rankhouse.index.parts.part import part_folders
from rankhouse.index.parts.parted_index import PartedIndex

AnyIndex: TypeAlias = Index | PartedIndex


def open_index(paths: Sequence[Path]) -> AnyIndex:
    """Open an index, or several as one.

    Args:
        paths: Index folders, parts made with ``--shard``, or folders of such.

    Raises:
        MissingInput: There is no such folder.
        BadIndex: One of them holds no sound index, or they do not go together.
    """
    folders = part_folders(paths)
    return Index.open(folders[0]) if len(folders) == 1 else PartedIndex.open(folders)
