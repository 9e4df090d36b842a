"""Tests of the terminal picture in README.md."""

import re
from html import escape

from tools.picture import COMMANDS, PICTURE, render_final_screen


def test_readme_picture_loads_no_external_resources():
    text = PICTURE.read_text("utf-8")

    assert [words for words in COMMANDS if escape(words.split()[-1]) not in text] == []
    assert set(re.findall(r"https?://[^\s\"')<]+", text)) == {
        "https://www.textualize.io",
        "http://www.w3.org/2000/svg",
    }
    assert not re.search(r"@import|@font-face|xlink:href|<script|<image", text)


def test_progress_bars_are_removed_from_the_picture():
    frames = "Download    a ━━   1 MB of 3 MB\n            1 MB/s, 2.0 s left"
    raw = (
        f"before\r\n{frames}\r\x1b[2K\x1b[1A\x1b[2KDownload    a ━━━\r\x1b[2Kafter\r\n"
    )

    assert render_final_screen(raw).split("\n") == ["before", "after"]
