"""Python's documentation as a collection: names, signatures, order."""

import importlib
import json
import subprocess
import sys

import pytest

from rankhouse.core.errors import MissingInput
from rankhouse.demo import run as demo
from rankhouse.demo.docstrings import LEFT_OUT, Documentation
from rankhouse.demo.run import collect


@pytest.fixture(scope="module")
def documents():
    return {document.id: document for document in collect()}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Document a small library given as module name -> source: id -> (title, text)."""

    def write(**sources):
        monkeypatch.syspath_prepend(tmp_path)
        names = [name.replace("__", ".") for name in sources]
        for name, code in sources.items():
            is_package = any(other.startswith(f"{name}__") for other in sources)
            path = name.replace("__", "/")
            path = tmp_path / (f"{path}/__init__.py" if is_package else f"{path}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(code, encoding="utf-8")
        modules = {name: importlib.import_module(name) for name in names}
        for name in modules:
            del sys.modules[name]
        public = {name: module for name, module in modules.items() if "._" not in f".{name}"}
        return {d["id"]: (d["title"], d["text"]) for d in Documentation(public).documents.values()}

    return write


def test_the_collection_has_some_seven_thousand_documents_with_text_and_title(documents):
    assert 6_000 < len(documents) < 9_000
    assert all(d.title and d.text for d in documents.values())


def test_ids_are_unique_and_fit_run_files(documents):
    assert len(documents) == sum(1 for _ in collect())
    assert all(doc_id.split() == [doc_id] and doc_id.isascii() for doc_id in documents)


@pytest.mark.slow
def test_collecting_twice_gives_the_same_documents_in_the_same_order(documents):
    assert list(collect()) == list(documents.values())


@pytest.mark.parametrize(
    "name",
    [
        "argparse.ArgumentParser.add_argument",  # written in a private base class
        "asyncio.gather",  # published by a package, written in a module of it
        "bytes.decode",  # built in
        "collections.abc.Mapping.get",  # written in a private module
        "csv.reader",  # written in C
        "datetime.datetime.strptime",  # in a private module since Python 3.12
        "hashlib",  # its docstring is assigned to __doc__
        "itertools.permutations",  # compiled in
        "json.JSONDecoder",
        "os.path.join",  # written in posixpath
        "os.path.splitext",  # its docstring is borrowed afterwards
        "os.listdir",  # written in C, as posix or nt
        "pathlib.Path.exists",  # in a private module in Python 3.13
        "random.choice",  # a method of a hidden object
        "random.random",  # the same, in C
        "re.Pattern.sub",  # a class that no module names
        "socket.socket.connect",  # a C base class
        "str.split",
        "tarfile.open",  # a class method given as a function
        "textwrap.wrap",
        "topic:assignment",
    ],
)
def test_things_bear_the_names_their_users_know(documents, name):
    assert name in documents


def test_private_names_tests_and_programs_are_left_out(documents):
    assert not any(part.startswith("_") for doc_id in documents for part in doc_id.split("."))
    left_out = ("test.", "idlelib.", "lib2to3.", "turtledemo.", "unittest.test.", "tkinter.test.", "pip.")
    assert not [doc_id for doc_id in documents if f"{doc_id}.".startswith(left_out)]


def test_titles_are_signatures_and_the_text_ends_with_the_whereabouts_in_words(documents):
    assert documents["textwrap.wrap"].title == "textwrap.wrap(text, width=70, **kwargs)"
    assert documents["textwrap"].title == "module textwrap"
    assert documents["str.split"].title == "str.split(sep=None, maxsplit=-1)"
    assert documents["textwrap.wrap"].text.endswith("\n\nFunction wrap, module textwrap.")
    assert documents["str.split"].text.endswith("\n\nMethod split of class str, built in.")
    assert documents["topic:with"].title == 'with: The "with" statement'
    assert max(len(d.title) for d in documents.values()) < 200


@pytest.mark.slow
def test_nothing_of_the_library_is_imported_into_the_process_that_collects():
    code = (
        "import sys, sysconfig; sysconfig.get_path('stdlib')\n"
        "from rankhouse.demo.run import collect; before = set(sys.modules)\n"
        "n = sum(1 for _ in collect())\n"
        "import json; print(json.dumps([n, sorted(set(sys.modules) - before)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, imported = json.loads(done.stdout)
    assert count > 6_000
    assert [name for name in imported if name.partition(".")[0] in {"turtle", "antigravity", "tkinter"}] == []
    assert len(imported) < 20


def test_modules_whose_import_does_something_are_left_out():
    assert {"antigravity", "this", "test", "idlelib"} <= LEFT_OUT


def test_a_python_without_its_library_is_refused_with_a_hint(tmp_path, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text('print("{}")', encoding="utf-8")
    monkeypatch.setattr(demo, "PROGRAM", program)
    with pytest.raises(MissingInput, match=r"documents 1 names; .* libpython3-stdlib"):
        list(collect())
    program.write_text("import no_such_module", encoding="utf-8")
    with pytest.raises(MissingInput, match=r"documents 0 names \(ModuleNotFoundError: .*no_such_module"):
        list(collect())


def test_a_definition_is_published_by_its_package_and_given_once(written):
    found = written(
        pack="from pack.inner import Thing, _hidden\nfrom .other import *\n",
        pack__inner='class Thing:\n    """A thing."""\n    def use(self, how=1):\n        """Use it."""\n'
        "def _hidden(): pass\n",
        pack__other='__all__ = ["act"]\ndef act():\n    """Act."""\ndef rest():\n    """Rest."""\n',
    )
    assert set(found) == {"pack.Thing", "pack.Thing.use", "pack.act", "pack.other.rest"}


def test_what_another_public_module_defines_stays_with_it(written):
    found = written(
        first="from second import act\nfrom _third import hidden\n",
        second='def act():\n    """Act."""\n',
        _third='def hidden():\n    """Hidden."""\n',
    )
    assert set(found) == {"first.hidden", "second.act"}


def test_methods_of_a_private_base_class_belong_to_its_first_public_heir(written):
    found = written(
        m='class _Base:\n    """Base."""\n    def go(self):\n        """Go."""\n'
        "class _Middle(_Base):\n    pass\n"
        'class Heir(_Middle):\n    """Heir."""\n'
        'class Later(_Base):\n    """Later."""\n'
    )
    assert set(found) == {"m.Heir", "m.Heir.go", "m.Later"}


def test_the_heir_s_own_method_comes_before_the_private_base_s(written):
    found = written(
        m='class _Base:\n    def go(self):\n        """Base."""\n'
        'class Heir(_Base):\n    def go(self):\n        """Own."""\n'
    )
    assert found["m.Heir.go"][1].startswith("Own.")


def test_functions_made_of_a_hidden_object_s_methods_are_functions_of_the_module(written):
    found = written(
        m='class Dice:\n    """Dice."""\n    def roll(self, n):\n        """Roll."""\n'
        "_dice = Dice()\nroll = _dice.roll\n"
    )
    assert set(found) == {"m.Dice", "m.roll"}
    assert found["m.roll"][0] == "m.roll(n)"


def test_of_two_names_a_thing_bears_its_own_or_the_one_that_is_listed(written):
    found = written(
        m='def right():\n    """Right."""\nleft = right\n',
        n='__all__ = ["ask"]\ndef unix_ask():\n    """Ask."""\nask = unix_ask\n',
    )
    assert set(found) == {"m.right", "n.ask"}


def test_docstrings_assigned_afterwards_are_found(written):
    found = written(
        m='__doc__ = "The module."\ndef f(): pass\nf.__doc__ = "F."\n'
        'def _g():\n    """G."""\ndef g(): pass\ng.__doc__ = _g.__doc__\n'
    )
    assert {name: text.partition("\n")[0] for name, (_, text) in found.items()} == {
        "m": "The module.",
        "m.f": "F.",
        "m.g": "G.",
    }


def test_signatures_show_defaults_without_self_annotations_and_long_expressions(written):
    found = written(
        m="class C:\n"
        '    """C."""\n'
        "    def __init__(self, a: int, /, b=2, *rest, key=[1, 2], **more):\n"
        '        """Make it."""\n'
        "    @staticmethod\n"
        "    def s(x, *, long=('many', 'arguments', 'here'), other=object()):\n"
        '        """S."""\n'
        "    @classmethod\n"
        "    def c(cls, x):\n"
        '        """K."""\n'
        "    @property\n"
        "    def p(self):\n"
        '        """P."""\n'
        "def f(" + ", ".join(f"argument_number_{i}" for i in range(20)) + "):\n"
        '    """F."""\n'
    )
    assert found["m.C"] == (
        "class m.C(a, b=2, *rest, key=[1, 2], **more)",
        "C.\n\nMake it.\n\nClass C, module m.",
    )
    assert found["m.C.s"][0] == "m.C.s(x, *, long=..., other=...)"
    assert found["m.C.c"][0] == "m.C.c(x)"
    assert found["m.C.p"] == ("m.C.p", "P.\n\nProperty p of class C, module m.")
    assert found["m.f"][0].endswith(", ...)")
    assert len(found["m.f"][0]) <= len("m.f") + 100
