"""Java properties files are read as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.properties import parse_properties, render_properties


def test_java_properties_syntax_is_parsed() -> None:
    text = (
        "# a comment\n"
        "! another\r\n"
        "\n"
        "plain=value\n"
        "  spaces   =  kept inside  \n"
        "colon:value\n"
        "white value\n"
        "empty=\n"
        "alone\n"
        "long=one,\\\n"
        "     two,\\\r\n"
        "\ttwo\\\\\n"
        "escapes=\\t\\u00e4\\:\\q\n"
        "key\\ with\\=both=x=y\n"
        "plain=again\n"
        "open=end\\"
    )
    assert parse_properties(text) == {
        "plain": "again",
        "spaces": "kept inside  ",
        "colon": "value",
        "white": "value",
        "empty": "",
        "alone": "",
        "long": "one,two,two\\",
        "escapes": "\tä:q",
        "key with=both": "x=y",
        "open": "end",
    }


def test_a_comment_is_not_continued() -> None:
    assert parse_properties("# not joined \\\na=1\n") == {"a": "1"}


def test_a_bad_escape_names_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_properties("a=1\nb=\\u12\n")


texts = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.dictionaries(texts.filter(bool), texts, max_size=5))
def test_rendered_properties_are_parsed_back(values: dict[str, str]) -> None:
    assert parse_properties(render_properties(values, "written by a test\nin two lines")) == values
