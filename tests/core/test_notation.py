"""The notation reads what it writes, and an error lists what is accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import Spec, choose, make, parse, write

literals = st.recursive(
    st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.booleans()),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=4,
)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda n: n.isidentifier())


@given(
    names.filter(lambda n: n.isascii()),
    st.lists(literals, max_size=3),
    st.dictionaries(names, literals, max_size=3),
)
def test_reads_back_what_it_wrote(name, args, kwargs):
    import keyword

    if keyword.iskeyword(name):
        return
    kwargs = {f"{k}_" if keyword.iskeyword(k) else k: v for k, v in kwargs.items()}
    spec = parse(write(name, *args, **kwargs))
    assert spec == Spec(name, tuple(args), kwargs)
    assert str(spec) == write(name, *args, **kwargs)


def test_reads_a_parameter_named_by_a_reserved_word():
    assert parse("jm(lambda=0.1)") == Spec("jm", (), {"lambda_": 0.1})
    assert write("jm", lambda_=0.1) == "jm(lambda=0.1)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bm25(",
        "a.b(1)",
        "1",
        "f(x)",
        "f(*[1])",
        "f(**{'a': 1})",
        "a + b",
        "f(1)(2)",
        "import os",
        "f(\0)",
    ],
)
def test_refuses_what_is_no_name_with_literals(text):
    with pytest.raises(WrongUse, match="cannot be read"):
        parse(text)


def test_an_unknown_name_gets_a_guess_and_the_table():
    with pytest.raises(
        WrongUse, match=r'"bm52" is not a known model .*did you mean "bm25".*choose from: bm25, ql'
    ):
        choose("bm52", {"ql": 1, "bm25": 2}, "model")


def test_wrong_arguments_show_what_is_accepted():
    def windows(size=10, *, stride=5):
        return (size, stride)

    assert make("windows(3, stride=2)", {"windows": windows}, "splitter") == (3, 2)
    assert make("windows", {"windows": windows}, "splitter") == (10, 5)
    with pytest.raises(WrongUse, match=r"accepted: windows\(size=10, \*, stride=5\)"):
        make("windows(step=2)", {"windows": windows}, "splitter")
