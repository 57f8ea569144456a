"""The public API is documented whole: each public name has a docstring, an example and its place."""

import importlib.util
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


def functions_of(thing):
    """A function itself, or the public methods that a class defines."""
    own = vars(thing).items() if inspect.isclass(thing) else [(thing, thing)]
    found = [getattr(value, "__func__", value) for key, value in own if not str(key).startswith("_")]
    return [function for function in found if inspect.isfunction(function)]


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_explained(name):
    for function in functions_of(getattr(rh, name)):
        arguments = [a for a in inspect.signature(function).parameters if a not in {"self", "cls"}]
        words = inspect.getdoc(function)
        missing = [a for a in arguments if not re.search(rf"^\s+{a}: ", words, re.MULTILINE)]
        assert len(arguments) < 2 or not missing, f"{name}: {function.__name__} does not explain {missing}"


@pytest.mark.parametrize("page", sorted(PAGE.parent.glob("*.md")), ids=lambda p: p.name)
def test_modules_of_the_reference_exist(page):
    shown = re.findall(r"^::: (rankhouse\.\w+\.[a-z_.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    missing = [name for name in shown if importlib.util.find_spec(name) is None]
    assert not missing, f"{page.name} names modules that are gone"
