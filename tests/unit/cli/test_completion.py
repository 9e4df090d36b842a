from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinstall import process
from gpuinstall.shell import COMPLETED

SHOWN = "gpuinstall() { printf '<%s>' \"$@\"; }"
SHELLS = {
    "bash": (["bash", "--norc", "-i"], 'eval "$(gpuinstall completion bash)"', SHOWN),
    "zsh": (["zsh", "-f", "-i"], 'eval "$(gpuinstall completion zsh)"', SHOWN),
    "fish": (
        ["fish", "--no-config", "-i"],
        "gpuinstall completion fish | source",
        "function gpuinstall; printf '<%s>' $argv; end",
    ),
}
"""How each starts without settings, what a person evaluates, and a command in place of ours that shows its words."""


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
        ("plan --gpu 7900", "plain,Radeon RX 7900 XTX"),
        ("install --backend rocm7", "plain,rocm7.2"),
        ("lock --target xpu-w", "plain,xpu-windows-x86_64"),
    ],
)
def test_commands_and_values_are_completed(words: str, value: str) -> None:
    said = completed(
        _GPUINSTALL_COMPLETE="bash_complete",
        COMP_WORDS=f"gpuinstall {words}",
        COMP_CWORD=str(len(words.split())),
    )
    assert value in said


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("lock --target cu130-w", "<lock><--target><cu130-windows-x86_64>"),
        ("plan --gpu 4090\\ la", "<plan><--gpu><GeForce RTX 4090 Laptop GPU>"),
        ("plan --gpu '4090 la", "<plan><--gpu><GeForce RTX 4090 Laptop GPU>"),
        ("plan --gpu 'a6000", "<plan><--gpu><RTX A6000>"),
    ],
)
def test_the_shell_itself_completes_and_a_value_is_one_word(
    shell: str, typed: str, words: str, tmp_path: Path
) -> None:
    assert words in on_tab(shell, typed, tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh"])  # fish offers a choice of them
def test_a_word_that_is_in_many_values_and_begins_none_stays(shell: str, tmp_path: Path) -> None:
    assert "<plan><--gpu><60>" in on_tab(shell, "plan --gpu 60", tmp_path)


def on_tab(shell: str, typed: str, home: Path) -> str:
    """What a new shell without any settings shows after a command line, TAB and Enter, each word in ``<>``."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    words, load, shown = SHELLS[shell]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    here = {**os.environ, "PATH": path, "HOME": str(home), "ZDOTDIR": str(home), "TERM": "dumb"}
    terminal = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *words]
    with subprocess.Popen(
        terminal, env=here, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        said_until(running, f"{load}; {shown}; echo rea'dy'\n", "ready")
        seen = said_until(running, f"gpuinstall {typed}\t\necho do'ne'\n", "done")
        running.kill()
    return seen


def said_until(running: subprocess.Popen[bytes], keys: str, sign: str) -> str:
    assert running.stdin
    assert running.stdout
    running.stdin.write(keys.encode())
    running.stdin.flush()
    seen = b""
    while sign.encode() not in seen and select.select([running.stdout], [], [], 10)[0]:
        chunk = os.read(running.stdout.fileno(), 65536)
        assert chunk, seen
        seen += chunk
    return seen.decode("utf-8", "replace")
