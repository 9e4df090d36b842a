import re

import pytest

from gpuinstall.base.regex import regex


def test_a_pattern_is_compiled_at_its_first_use():
    unclosed = regex("(")

    with pytest.raises(re.error):
        unclosed.search("text")


def test_it_has_the_methods_of_a_compiled_pattern():
    number = regex(r"([a-z])\d+", re.IGNORECASE)

    assert number.sub(r"\1", "A12 b3") == "A b"
    assert number.fullmatch("A12")
    assert number.groups == 1
