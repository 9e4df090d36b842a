"""docs/screens.md: each screen of the tool that draws it, none wider than its terminal."""

from __future__ import annotations

import re
from html import escape

from tools.screens import FIRST, PAGE, PICTURE, REFUSAL, SCREENS, middle, settled

BLOCK = re.compile(
    r"## (?P<title>.+)\n\n```console\n\$ gpuinstall (?P<words>.+)\n(?P<text>(?:.*\n)*?)```"
)


def test_every_screen_is_there_and_fits_its_terminal() -> None:
    drawn = {found["title"]: found for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))}

    assert {title: found["words"] for title, found in drawn.items()} == {
        one.title: one.words for one in SCREENS
    }
    for screen in SCREENS:
        lines = drawn[screen.title]["text"].splitlines()
        told = [
            line for line in lines if not line.startswith(("  log   ", "Repair  "))
        ]  # a command is in one piece
        assert max(map(len, told)) <= (screen.columns or 1000), screen.title


def test_the_picture_shows_an_installation_and_a_refusal_and_loads_nothing() -> None:
    text = PICTURE.read_text(encoding="utf-8")

    assert [words for words in (FIRST, REFUSAL) if escape(words.split()[-1]) not in text] == []
    assert set(re.findall(r"https?://[^\s\"')<]+", text)) == {
        "https://www.textualize.io",
        "http://www.w3.org/2000/svg",
    }
    assert not re.search(r"@import|@font-face|xlink:href|<script|<image", text)
    for page in ("README.md", "docs/index.md"):
        assert PICTURE.name in (PAGE.parent.parent / page).read_text(encoding="utf-8")


def test_what_stays_on_a_screen_is_without_the_bars_and_a_frame_of_them_is_found() -> None:
    frames = [
        "Download    a ━━   1 MB of 3 MB\n            1 MB/s, 2.0 s left",
        "Download    a ━━━  2 MB of 3 MB",
    ]
    raw = f"before\r\n{frames[0]}\r\x1b[2K\x1b[1A\x1b[2K{frames[1]}\r\x1b[2Kafter\r\n"

    assert settled(raw).split("\n") == ["before", "after"]
    assert middle(raw).endswith(frames[0])
