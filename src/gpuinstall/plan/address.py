"""Requirements by address: a folder, a file, an archive, a repository, with or without a name before it."""

from __future__ import annotations

import re
from typing import NamedTuple

_EDITABLE = r"(?:-e|--editable)(?:[\s=]+)(?P<rest>.+)"
_NAMED = r"(?a:[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\]\s*)?@\s*(?P<rest>\S.*))"
_FOLDER = r"\w[\w.-]*(?:\[[^\]]*\])?"
_PATH = r"\.{1,2}(?=[/\\\[;\s]|$)[^\s;\[]*|[/~][^\s;\[]*|[A-Za-z]:[\\/][^\s;\[]*|[^\s;\[@<>=!~]*[/\\][^\s;\[]*"
_REMOTE = r"(?:git\+[a-z]+|https?|file):[^\s;\[]+"
_FILE = r"[^\s;\[]+\.(?:whl|tar\.gz|zip)"
_UNNAMED = rf"(?P<address>{_REMOTE}|{_PATH}|{_FILE})(?P<extras>\[[^\]]*\])?(?:\s*;\s*(?P<marker>.+))?"


class Address(NamedTuple):
    """Where a package comes from, as it was written; ``name`` is empty where only the place itself knows it."""

    text: str
    name: str = ""
    extras: str = ""
    marker: str = ""

    @property
    def is_remote(self) -> bool:
        """Say whether it is no path of this machine."""
        return re.match(r"[a-z+]{2,}:", self.text) is not None


def without_editable(text: str) -> tuple[str, bool]:
    """Take ``-e`` from before a requirement, and say whether it was there."""
    found = re.fullmatch(_EDITABLE, text.strip())
    if found is None:
        return text.strip(), False
    rest = found["rest"].strip()
    return (f"./{rest}" if re.fullmatch(_FOLDER, rest) else rest), True


def is_file(text: str) -> bool:
    """Say whether a bare word is the name of a wheel or an archive."""
    return text.strip().endswith((".whl", ".tar.gz", ".zip"))


def unnamed_address(text: str) -> Address | None:
    """Read a requirement that is an address without a name before it; None for any other."""
    found = None if re.fullmatch(_NAMED, text) else re.fullmatch(_UNNAMED, text)
    if found is None:
        return None
    return Address(found["address"], _name_in(found["address"]), found["extras"] or "", found["marker"] or "")


def _name_in(address: str) -> str:
    """The name that an address tells: of its ``#egg=``, of its file, or of its last part."""
    plain, _, fragment = address.partition("#")
    if egg := re.search(r"egg=([A-Za-z0-9][\w.-]*)", fragment):
        return egg[1]
    last = re.split(r"[/\\]", plain.rstrip("/\\"))[-1].partition("@")[0]
    if file := re.fullmatch(r"(.+?)-\d.*\.(?:whl|tar\.gz|zip)", last):
        return file[1]
    return re.sub(r"\.git$", "", last) if re.match(r"[A-Za-z0-9]", last) else ""
