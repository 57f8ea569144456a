"""Tables that installed packages add to; tests/hosts/test_extension.py installs one."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from rankhouse.core import notation
from rankhouse.core.errors import RankhouseError
from rankhouse.core.notation import Extensible, entries, load


@pytest.fixture
def found(monkeypatch):
    """Say what entry points there are, (name, where) each."""
    entries.cache_clear()
    load.cache_clear()

    def say(*pairs):
        points = [EntryPoint(name, where, "rankhouse.things") for name, where in pairs]
        monkeypatch.setattr(
            "importlib.metadata.entry_points", lambda group: points * (group == "rankhouse.things")
        )

    yield say
    entries.cache_clear()
    load.cache_clear()


def test_own_names_come_first_and_others_are_added(found):
    found(("mean", "statistics:mean"), ("max", "statistics:no_such"))
    table = Extensible({"max": max}, "rankhouse.things")
    assert list(table) == ["max", "mean"]
    assert len(table) == 2
    assert table["max"] is max
    assert table["mean"]([1, 3]) == 2
    assert "mean" in table
    assert table.get("median") is None


def test_own_names_are_found_without_a_look_at_packages(monkeypatch):
    monkeypatch.setattr(notation, "entries", lambda group: pytest.fail("looked at packages"))
    table = Extensible({"max": max}, "rankhouse.things")
    assert "max" in table
    assert table["max"] is max


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("no_such_module:thing", "cannot be loaded from no_such_module:thing"),
        ("statistics:no_such", "cannot be loaded from statistics:no_such"),
        ("math:pi", "is a float"),
    ],
)
def test_a_faulty_entry_point_is_named(found, where, words):
    found(("thing", where))
    with pytest.raises(RankhouseError) as error:
        Extensible({}, "rankhouse.things")["thing"]
    assert words in str(error.value)
    assert '"thing"' in str(error.value)


def test_two_packages_may_not_bring_one_name(found):
    found(("thing", "math:pi"), ("thing", "math:e"))
    with pytest.raises(RankhouseError, match="two installed packages bring .thing.*math:pi and math:e"):
        entries("rankhouse.things")
    entries.cache_clear()
    found(("thing", "math:pi"), ("thing", "math:pi"))  # one package, found in two places
    assert list(entries("rankhouse.things")) == ["thing"]


def test_reading_a_system_looks_at_no_package():
    code = (
        "import sys, rankhouse as rh; rh.system('bm25 % 5 >> crossencoder(\"DIR\")'); "
        "sys.exit('torch' in sys.modules or 'importlib.metadata' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
