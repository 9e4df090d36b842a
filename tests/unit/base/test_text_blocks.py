"""Lines of ours in a file of others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.text import BrokenBlockError, with_block, without_block

LINES = st.lists(
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])),
    max_size=4,
)
TEXTS = st.lists(
    st.sampled_from(["", "[pip]", "a = 1", "  b\r", "# c", "\ufeffd"])
).map("\n".join)


@given(TEXTS, LINES)
def test_what_is_put_in_comes_out_to_the_byte(text, lines):
    assert without_block(with_block(text, lines)) == text


def test_what_comes_into_the_file_later_stays():
    hooked = with_block("a = 1\n", ["b = 2"])

    assert without_block(f"# new\n{hooked}c = 3\n") == "# new\na = 1\nc = 3\n"
    assert without_block(hooked.replace("\n", "\r\n")) == "a = 1\r\n"


def test_without_one_of_its_marks_no_line_is_taken_for_ours():
    hooked = with_block("a = 1\n", ["b = 2"])
    for text in (hooked.split("\n", 1)[1], hooked.replace("# end", "# the end")):
        with pytest.raises(BrokenBlockError):
            without_block(text)
