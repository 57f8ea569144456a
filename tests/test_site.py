"""The front door is documented whole: each public name on its page of the reference, with words and an example."""

import inspect
import re
from pathlib import Path

import pytest

import rankhouse as rh

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "rankhouse.md"
NAMES = [name for name in rh.__all__ if name != "__version__"]


def test_the_reference_has_every_name_of_the_front_door_and_no_other():
    shown = re.findall(r"^::: rankhouse\.(\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(shown) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_words_an_example_and_documented_members(name):
    thing = getattr(rh, name)
    if not (inspect.isfunction(thing) or inspect.isclass(thing)):
        pytest.skip("an alias of a type has no docstring of its own")
    assert ">>> " in inspect.getdoc(thing), f"rankhouse.{name} shows no example"
    for member, value in vars(thing).items() if inspect.isclass(thing) else ():
        if not member.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
            assert inspect.getdoc(getattr(thing, member)), f"rankhouse.{name}.{member} says nothing"


def test_arguments_are_explained():
    for name in NAMES:
        thing = getattr(rh, name)
        functions = [thing] if inspect.isfunction(thing) else []
        if inspect.isclass(thing):
            functions = [value for key, value in vars(thing).items() if not key.startswith("_")]
        for function in functions:
            function = getattr(function, "__func__", function)
            if not inspect.isfunction(function):
                continue
            arguments = [a for a in inspect.signature(function).parameters if a not in {"self", "cls"}]
            if len(arguments) >= 2:
                words = inspect.getdoc(function)
                missing = [a for a in arguments if not re.search(rf"^\s+{a}: ", words, re.MULTILINE)]
                assert not missing, f"rankhouse.{name}: {function.__name__} does not explain {missing}"
