"""Docstrings as Markdown: Sphinx' roles become code, and doctests become blocks of Python."""

import re

import griffe

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?(?:rankhouse\.)?([^`]+)`")
DOCTEST = re.compile(r"^>>> .*(?:\n(?!\n|\Z).*)*", re.MULTILINE)


class AsMarkdown(griffe.Extension):
    """Rewrites every docstring once, before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring:
            text = ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = DOCTEST.sub(lambda block: f"```pycon\n{block[0]}\n```", text)
