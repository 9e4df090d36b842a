from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.cli.main import run_command_line

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

OTHERS = {
    "numpy": "a requirement",
    "--dry-run": "--dry-run",
    "--jupyter": "--jupyter",
    "--replace": "--replace",
    "--upgrade": "--upgrade",
    "--upgrade-package=numpy": "--upgrade-package",
}


def test_going_back_is_combined_with_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = {}
    for option, name in OTHERS.items():
        status = run_command_line(["install", "--rollback", option])
        error = capsys.readouterr().err
        is_named = f"error: --rollback cannot be combined with {name}\n" in error
        if status != 2 or not is_named or "do    gpuinstall install --rollback\n" not in error:
            wrong[option] = error
    assert wrong == {}
