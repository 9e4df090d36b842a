"""Check every hint that a test produces with gpuinstall's parser or ``sh -n``.

A line of a hint that begins with a capital letter is prose. Every other line is a
command.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator

import click
import pytest

from gpuinstall.base.advice import NOTE
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.cli.commands import COMMANDS
from gpuinstall.cli.main import main_command

JUDGED: dict[str, str | None] = {}
"""The fault of each checked line, or None."""
FOREIGN = re.compile(
    r"\$env:|[A-Z]:\\|\.exe\b|Remove-Item|New-ItemProperty|vcvarsall|winget|^rmdir /s|= (?:true|\[)"
)
"""Lines for PowerShell, cmd, and NixOS, which ``sh`` does not read."""


@pytest.fixture(autouse=True)
def _advice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check the hint of each GpuInstallError created in this process."""
    lines: list[str] = []
    make = GpuInstallError.__init__

    def made(self: GpuInstallError, *args: object, **kwargs: object):
        make(self, *args, **kwargs)  # type: ignore[arg-type]
        lines.extend((self.hint or "").splitlines())

    monkeypatch.setattr(GpuInstallError, "__init__", made)
    yield
    wrong = {line: fault for line in lines if (fault := check_hint_line(line))}
    assert not wrong


def check_hint_line(line: str) -> str | None:
    """Return the fault of a line that a user pastes, or None."""
    if line not in JUDGED:
        JUDGED[line] = _fault(line)
    return JUDGED[line]


def _fault(line: str) -> str | None:
    command = line.partition(NOTE)[0].strip()
    if not command or command[:1].isupper() or FOREIGN.search(command):
        return None
    if "   " in command:
        return "a note that a shell would read"
    if subprocess.run(
        ["sh", "-n", "-c", _filled(command)], capture_output=True, check=False
    ).returncode:
        return "no command of a shell"
    words = shlex.split(_filled(command), comments=True)
    return _of_ours(words[1:]) if words[:1] == ["gpuinstall"] else None


def _filled(command: str) -> str:
    """Replace placeholders such as ``<your command>`` with a word."""
    return re.sub(r"<[\w ./-]+>", "it", command)


def _of_ours(words: list[str]) -> str | None:
    """Parse a gpuinstall command line without running it."""
    until = next(
        (at for at, word in enumerate(words) if word in {"&&", "||", "|", ";"}),
        len(words),
    )
    words = words[:until]
    command: click.Command | None = main_command
    while (
        isinstance(command, click.Group)
        and not command.invoke_without_command
        and words
        and not words[0].startswith("-")
    ):
        command, words = (
            command.get_command(click.Context(command), words[0]),
            words[1:],
        )
    if command is None:
        return f"no command of ours: {', '.join(COMMANDS)}"
    try:
        command.make_context(
            "gpuinstall",
            words,
            resilient_parsing=False,
            help_option_names=["-h", "--help"],
        )
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return error.format_message()
    return None
