from __future__ import annotations

import tomli
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.export.uv_project import ADDED, append, put, restored, statements

TEXT = '''# the project
title = "x"  # a title

[tool.uv]
conflicts = [
    # why
    [{ extra = "a" }, { extra = "b" }],
    ["[not.a.header]"],
]
text = """
[nor.this]
"""

[other]
a.b = 1
[[tool.uv.index]]
name = "one"
'''

PIECES = st.lists(
    st.sampled_from(
        [
            "",
            "# note",
            "a = 1",
            "b = [\n  1,\n]",
            "[tool.uv]",
            "[tool]",
            "[[tool.uv.index]]",
            "c = '''\n[x]\n'''",
            "\n",
        ]
    ),
    max_size=8,
)


def valid(text: str) -> bool:
    try:
        tomli.loads(text)
    except tomli.TOMLDecodeError:
        return False
    return True


def test_headers_and_keys_are_found_whatever_a_value_looks_like():
    assert [(".".join(one.table), one.key) for one in statements(TEXT)] == [
        ("", "title"),
        ("tool.uv", ""),
        ("tool.uv", "conflicts"),
        ("tool.uv", "text"),
        ("other", ""),
        ("other", "a"),
        ("tool.uv.index", ""),
        ("tool.uv.index", "name"),
    ]


def test_a_new_key_goes_to_the_end_of_its_table():
    lines = put(TEXT, ("tool", "uv"), "package", ["false"]).splitlines()
    assert lines[lines.index(f"package = false{ADDED}") - 1] == '"""'


def test_an_old_value_becomes_a_comment_above_the_new_one():
    edited = put(TEXT, ("tool", "uv"), "conflicts", ["[]"])
    assert "# by gpuinstall, was:     # why\n" in edited
    assert tomli.loads(edited)["tool"]["uv"]["conflicts"] == []


def test_a_table_that_is_not_there_is_added_at_the_end():
    edited = put(TEXT, ("tool", "uv", "sources"), "torch", ["[", '    { index = "a" },', "]"])
    assert edited.startswith(TEXT)
    assert tomli.loads(edited)["tool"]["uv"]["sources"] == {"torch": [{"index": "a"}]}


def test_a_key_that_is_no_bare_one_is_quoted():
    assert tomli.loads(put("", ("a",), "b.c d", ["1"])) == {"a": {"b.c d": 1}}


def test_what_somebody_added_to_our_table_stays_in_it_when_ours_goes():
    theirs = put("", ("dependency-groups",), "torch-cpu", ["[]"]) + 'dev = ["pytest"]\n'
    assert tomli.loads(restored(theirs)) == {"dependency-groups": {"dev": ["pytest"]}}
    assert ADDED not in restored(theirs)


@given(PIECES.map("\n".join).filter(valid))
def test_taking_every_edit_back_gives_the_same_bytes(text):
    edited = put(text, ("tool", "uv"), "a", ["[", "    1,", "]"])
    edited = put(edited, ("dependency-groups",), "torch-cpu", ['["torch"]'])
    edited = append(edited, "[[tool.uv.index]]", [f'name = "x"{ADDED}'])
    assert restored(edited) == text
