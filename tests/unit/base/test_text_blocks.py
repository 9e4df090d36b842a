"""Blocks of lines in another program's file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.text import BrokenBlockError, add_block, remove_block

LINES = st.lists(
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])),
    max_size=4,
)
TEXTS = st.lists(
    st.sampled_from(["", "[pip]", "a = 1", "  b\r", "# c", "\ufeffd"])
).map("\n".join)


@given(TEXTS, LINES)
def test_removing_added_block_restores_the_text(text, lines):
    assert remove_block(add_block(text, lines)) == text


def test_lines_added_around_a_block_are_kept():
    hooked = add_block("a = 1\n", ["b = 2"])

    assert remove_block(f"# new\n{hooked}c = 3\n") == "# new\na = 1\nc = 3\n"
    assert remove_block(hooked.replace("\n", "\r\n")) == "a = 1\r\n"


def test_block_without_both_markers_is_not_removed():
    hooked = add_block("a = 1\n", ["b = 2"])
    for text in (hooked.split("\n", 1)[1], hooked.replace("# end", "# the end")):
        with pytest.raises(BrokenBlockError):
            remove_block(text)
