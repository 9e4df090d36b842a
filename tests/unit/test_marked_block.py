"""Lines of ours in a file of others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.marked_block import block_note, with_block, without_blocks

LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), max_size=4)
TEXTS = st.lists(st.sampled_from(["", "[pip]", "a = 1", "  b\r", "# c"])).map("\n".join)


@given(TEXTS, LINES, LINES)
def test_what_is_put_in_comes_out_to_the_byte(text: str, first: list[str], last: list[str]) -> None:
    hooked = with_block(with_block(text, -1, "later", last), 0, "note", first)

    assert without_blocks(hooked) == text
    assert block_note(hooked) == "note"
    assert block_note(text) is None


def test_what_comes_into_the_file_later_stays() -> None:
    hooked = with_block("a = 1\n", -1, "note", ["b = 2"])

    assert without_blocks(f"# new\n{hooked}c = 3\n") == "# new\na = 1\nc = 3\n"
