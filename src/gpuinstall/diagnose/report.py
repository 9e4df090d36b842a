"""The report for somebody else: one Markdown file without secrets, host and user names."""

from __future__ import annotations

import getpass
import json
import platform
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.base.text import visible
from gpuinstall.machine.source import home_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.base.finding import Finding
    from gpuinstall.diagnose.examination import Examination

PUBLIC = {
    "/root",
    "root",
    "localhost",
    "linux",
    "debian",
    "ubuntu",
    "fedora",
    "rocky",
    "arch",
    "nixos",
    "nvidia",
    "tegra",
    "jetson",
    "cuda",
    "docker",
}
"""Names that many machines and accounts come with: they identify no user, and the facts themselves contain them."""

PrivateWords = tuple[tuple[str, str], ...]
"""The words that must not leave a machine, each with the one that replaces it."""

# Four numbers alone are a version (nvidia-cudnn-cu12 9.10.2.21): an address has a port or a word before it.
_ADDRESS = r"\b\d{1,3}(?:\.\d{1,3}){3}\b"
_SECRETS = (
    (re.compile(r"(?<=://)[^/\s@\"]+@"), ""),
    (
        re.compile(
            r"(?i)\b([\w-]*(?:token|secret|password|passwd|api[_-]?key|signature|credential|authorization)[\w-]*)"
            r"(\"?\s*[=:]\s*\"?(?:bearer |basic )?)[^\s\",;&]+"
        ),
        r"\1\2removed",
    ),
    (re.compile(r"(?i)(--[\w-]*(?:token|secret|password)[\w-]* |\bbearer )[^\s\"]+"), r"\1removed"),
    (re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}"), "GPU-removed"),
    (
        re.compile(rf"{_ADDRESS}(?=:\d)|(?:(?<=://)|(?<=\bto )|(?<=\bhost )){_ADDRESS}"),
        "address-removed",
    ),
    (
        re.compile(r"\b(?:hf|gh[opsu]|github_pat|glpat|pypi|npm|sk|xox[abp])[-_][\w-]{16,}"),
        "removed",
    ),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.[\w.-]+"), "removed"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "address-removed"),
    (re.compile(r"(?<=/home/)[^/\s\"]+|(?<=/Users/)[^/\s\"]+|(?<=\\Users\\)[^\\\s\"]+"), "user"),
)


def render_report(examination: Examination, version: str) -> str:
    """Return the report; whatever names a person or a host is taken out."""
    data = examination.to_dict()
    rows = [f"# gpuinstall {version}: report\n", "## DoctorFindings\n"]
    for finding in examination.findings:
        rows += _rows_of(finding)
    if not examination.findings:
        rows.append("none")
    for name in ("machine", "preflight", "environment"):
        document = json.dumps(data[name], indent=2)
        rows.append(f"\n## {name.capitalize()}\n\n```json\n{document}\n```")
    rows.append("")
    return without_secrets(scrubbed("\n".join(rows), own_words()))


def _rows_of(finding: Finding) -> Iterator[str]:
    row = f"- **{visible(finding.message)}**"
    if finding.id:
        row += f" [{finding.id}]"
    if not finding.blocking:
        row += " (does not block)"
    yield row
    why = finding.why or finding.evidence
    if why:
        yield f"  - why: {visible(why)}"
    for line in (finding.fix or "").splitlines():
        yield f"  - do: `{visible(line)}`"


def without_secrets(text: str) -> str:
    """Return a text without passwords, tokens, addresses, GPU serials and the names of home folders."""
    for pattern, stand_in in _SECRETS:
        text = pattern.sub(stand_in, text)
    return text


def own_words() -> PrivateWords:
    """Return the words that must not leave this machine."""
    user = ""
    with suppress(KeyError, OSError, ImportError):
        user = getpass.getuser()
    return private_words(
        platform.node(),
        user,
        str(home_folder()),
    )


def private_words(
    host: str,
    user: str,
    home: str,
) -> PrivateWords:
    """Return the words that must not leave a machine.

    Args:
        host: Its name, with or without the domain.
        user: The name of the user's account.
        home: The path of the user's folder.
    """
    words = (
        # Before the user's name, which it contains.
        (home, "/home/user"),
        (host, "host"),
        (host.partition(".")[0], "host"),
        (user, "user"),
    )
    private = []
    for word, replacement in words:
        # One or two letters stand in many texts without being the name.
        if len(word) > 2 and word not in PUBLIC:
            private.append((word, replacement))
    return tuple(private)


def scrubbed(text: str, private: PrivateWords) -> str:
    """Return a text without these words."""
    for word, replacement in private:
        whole_word = rf"(?<!\w){re.escape(word)}(?!\w)"
        text = re.sub(whole_word, replacement, text)
    return text
