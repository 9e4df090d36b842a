"""Rewriting of stories, and the report of a failure."""

from tests.stories import test_stories as stories

TEXT = "wheel a 1\n\n# One.\n$ a\n    old\n\n# Two.  \n$ b\n    ×\n"


def test_accept_updates_only_one_story(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(TEXT.encode())
    story = stories.Story(file, "wheel a 1", "# One.\n$ a\n    old")

    stories.accept(story, "# One.\n$ a\n    new\n    line")

    expected = TEXT.replace("    old", "    new\n    line")
    assert file.read_bytes().decode() == expected


def test_accept_keeps_a_passing_story(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(TEXT.encode())

    stories.accept(stories.Story(file, "", TEXT), TEXT)

    assert file.read_bytes() == TEXT.encode()


def test_failure_shows_diff_and_command():
    message = stories.difference("$ a\n    old", "$ a\n    new", "a.py::a[a: b]")

    assert "-    old\n+    new\n" in message
    assert "-m pytest 'a.py::a[a: b]' --accept" in message
