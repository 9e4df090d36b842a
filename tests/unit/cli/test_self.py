"""What ``self uninstall`` does to a start file of the user's."""

from __future__ import annotations

from gpuinstall.cli.self import without_own_line


def test_only_our_line_leaves_a_start_file() -> None:
    before = b"alias l=ls\r\nexport PATH=/tool:$PATH  # written by gpuinstall self path\n\xff = \x0c1\r\n"

    assert without_own_line(before) == b"alias l=ls\r\n\xff = \x0c1\r\n"
    assert without_own_line(None) is None
