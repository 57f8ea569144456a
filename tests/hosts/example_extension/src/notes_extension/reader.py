"""A reader: the entries of a BibTeX file are documents."""

import re

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Document

_ENTRY = re.compile(r"@\w+\{([^,\s]+),(.*?)\n\}", re.DOTALL)
_FIELD = re.compile(r"(\w+)\s*=\s*\{(.*?)\}", re.DOTALL)


def bibtex(path):
    """Yield the documents of a file; rankhouse says which file it was where one is faulty."""
    entries = _ENTRY.findall(path.read_text("utf-8"))
    if not entries:
        raise BadData("holds no entry like  @article{key, title = {...}}", path)
    for key, body in entries:
        fields = {name.lower(): " ".join(value.split()) for name, value in _FIELD.findall(body)}
        yield Document(key, fields.pop("abstract", ""), fields.pop("title", ""), fields)
