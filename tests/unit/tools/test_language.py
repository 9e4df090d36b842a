"""The language checks of ``make lint``."""

import pytest
from tools.language import check_files


def found(tmp_path, monkeypatch, name, text):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, "utf-8")
    return [(each.line, each.message) for each in sorted(check_files([name]))]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", '"""Return that\nof torch."""\n', [(1, "rewrite 'that of'")]),
        ("a.py", "# It lies beside\n# torch.\n", [(1, "rewrite 'beside'")]),
        ("a.py", '"""Read ``those of`` and "those of"."""\n', []),
        ("a.py", "x = 'is told'\n", []),
        ("src/a.py", "x = f'is told {1}'\n", [(1, "rewrite 'is told'")]),
        (
            "src/a.py",
            "# prose: their text\nx = 'is told'\n",
            [(2, "rewrite 'is told'")],
        ),
        ("src/a.py", "x = 'is told'  # prose: their text\n", []),
        ("a.md", "a\n\n```sh\nbeside\n```\n\nanew\n", [(7, "rewrite 'anew'")]),
        ("a.md", "anew <!-- prose: a quotation -->\n", []),
        ("a.txt", "# goes with\n    goes with\n", [(1, "rewrite 'goes with'")]),
        ("a.txt", "# the colour\n", [(1, "colour ==> color")]),  # prose: an example
        ("a.py", "# colour  prose: CSS\n", []),
    ],
)
def test_banned_phrases_are_found_only_in_prose(
    tmp_path, monkeypatch, name, text, expected
):
    rows = found(tmp_path, monkeypatch, name, text)

    assert [row for row in rows if "D" not in row[1][:1]] == expected


def test_long_or_split_docstring_summary_is_reported(tmp_path, monkeypatch):
    text = (
        f'"""Return\nit."""\nX = 1\n"""{"x " * 37}."""\ndef f():\n    """Return it"""\n'
    )

    assert found(tmp_path, monkeypatch, "a.py", text) == [
        (1, "D205 1 blank line required between summary line and description"),
        (4, "summary line has 81 columns; the limit is 79"),
        (6, "D400 First line should end with a period"),
    ]
