"""Full and half width."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.text.characters import WIDTHS, full_width, half_width


@pytest.mark.parametrize(
    ("given", "full", "half"),
    [
        ("HDMI 2m (黒)", "ＨＤＭＩ\u3000２ｍ\u3000（黒）", "HDMI 2m (黒)"),
        ("ｷﾞﾀｰ", "ギター", "ギター"),
        ("ﾊﾟﾝ １００ｇ", "パン\u3000１００ｇ", "パン 100g"),
        ("~!", "～！", "~!"),
        ("㎏ é", "㎏\u3000é", "㎏ é"),  # no wider form: stays
        ("", "", ""),
    ],
)
def test_widths_of_examples(given, full, half):
    assert full_width(given) == full
    assert half_width(given) == half


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_widths_undo_each_other_and_are_stable(text):
    full, half = full_width(text), half_width(text)
    assert full_width(full) == full_width(half) == full
    assert half_width(half) == half_width(full) == half
    assert not any("!" <= character <= "~" for character in full)


def test_compatibility_normalisation_undoes_full_width():
    assert unicodedata.normalize("NFKC", full_width("Switch 8-port")) == "Switch 8-port"


def test_the_table_has_the_text_as_it_is():
    assert WIDTHS["as-is"]("ｷ a") == "ｷ a"
