"""Lines of ours in a file of others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.marked_block import BrokenBlockError, block_note, with_block, without_blocks

LINES = st.lists(
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), max_size=4
)
TEXTS = st.lists(st.sampled_from(["", "[pip]", "a = 1", "  b\r", "# c", "\ufeffd"])).map("\n".join)
HOOKED = "\ufeffa = 1\n# gpuinstall hook: note\nb = 2\n# end of gpuinstall hook f4027fef\nc = 3\n"


@given(TEXTS, LINES, LINES)
def test_what_is_put_in_comes_out_to_the_byte(text, first, last):
    hooked = with_block(with_block(text, -1, "later", last), 0, "note", first)

    assert without_blocks(hooked) == text
    assert block_note(hooked) == "note"
    assert block_note(text) is None


def test_what_comes_into_the_file_later_stays():
    hooked = with_block("a = 1\n", -1, "note", ["b = 2"])

    assert without_blocks(f"# new\n{hooked}c = 3\n") == "# new\na = 1\nc = 3\n"


def test_a_byte_order_mark_stays_first():
    assert with_block("\ufeffa = 1\n", 0, "note", ["b = 2"]).startswith(
        "\ufeff# gpuinstall hook: note\nb = 2\n"
    )


def test_a_file_of_windows_keeps_its_line_ends():
    hooked = with_block("a = 1\r\n", -1, "note", ["b = 2"])

    assert hooked.count("\r\n") == hooked.count("\n") == 4
    assert without_blocks(hooked) == "a = 1\r\n"


def test_an_editor_that_changes_all_line_ends_is_undone():
    hooked = with_block("a = 1\n", -1, "note", ["b = 2"])

    assert without_blocks(hooked.replace("\n", "\r\n")) == "a = 1\r\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# end of gpuinstall hook f4027fef\n", ""),
        ("# end of gpuinstall hook f4027fef", "# end of gpuinstall hook"),
        ("# gpuinstall hook: note\n", ""),
        ("b = 2\n", "b = 2\nindex-url = https://index.example/\n"),
        ("b = 2\n", ""),
        ("c = 3\n", "c = 3\n# gpuinstall hook: note\n"),
    ],
)
def test_a_block_that_does_not_hold_together_is_an_error(before, after):
    assert without_blocks(HOOKED) == "\ufeffa = 1\nc = 3\n"
    with pytest.raises(BrokenBlockError):
        without_blocks(HOOKED.replace(before, after))
