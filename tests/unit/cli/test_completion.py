from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinstall import process
from gpuinstall.cli.shells import COMPLETED


def completed(**asked: str) -> list[str]:
    done = process.run([sys.executable, "-m", "gpuinstall"], env={**os.environ, **asked})
    assert (done.status, done.err) == (0, "")
    return done.out.splitlines()


@pytest.mark.parametrize("shell", COMPLETED)
def test_a_shell_gets_its_script(shell: str) -> None:
    done = process.run([sys.executable, "-m", "gpuinstall", "completion", shell])
    assert (done.status, done.err) == (0, "")
    assert "_GPUINSTALL_COMPLETE" in done.out


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("export re", "plain,requirements"),
        ("plan --gpu 4090", "plain,GeForce RTX 4090"),
        ("install --backend cu12", "plain,cu126"),
        ("plan --why cu13", "plain,cu130"),
        ("lock --target cu130-w", "plain,cu130-windows-x86_64"),
    ],
)
def test_commands_and_values_are_completed(words: str, value: str) -> None:
    said = completed(
        _GPUINSTALL_COMPLETE="bash_complete",
        COMP_WORDS=f"gpuinstall {words}",
        COMP_CWORD=str(len(words.split())),
    )
    assert value in said


def test_powershell_hands_over_the_line_and_the_word() -> None:
    asked = {"_GPUINSTALL_COMPLETE": "powershell_complete", "COMP_WORDS": "gpuinstall plan --gpu 5090"}
    assert "'GeForce RTX 5090'" in completed(**asked, COMP_WORD="5090")


def test_bash_itself_completes(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash on this machine")
    (tmp_path / "script").write_bytes(
        process.run([sys.executable, "-m", "gpuinstall", "completion", "bash"]).out.encode()
    )
    asked = f"""
        source {tmp_path}/script
        COMP_WORDS=(gpuinstall lock --target cu130-w) COMP_CWORD=3
        $(complete -p gpuinstall | sed 's/.*-F \\([^ ]*\\).*/\\1/') gpuinstall
        echo "${{COMPREPLY[@]}}"
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    here = {**os.environ, "PATH": path}
    done = subprocess.run([bash, "-c", asked], env=here, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["cu130-windows-x86_64"], done.stderr
