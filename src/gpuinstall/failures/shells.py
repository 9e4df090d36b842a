"""The lines of a fix as the place where they are read understands them: in PowerShell, or in a container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_OF_THE_HOST = re.compile(r"sudo (reboot|poweroff|modprobe|rmmod|dmesg|nvidia-|systemctl|update-)|[^:]*&& sudo reboot")
_OF_LINUX = re.compile(
    r"sudo |env -u |ls -l /|cat /|export LD_LIBRARY|(?!.*Windows).*(\| grep|ldconfig|/etc/ld\.so|~/\.)"
)
_UNSET = re.compile(r"unset ([A-Z_ ]+)\b")
_EXPORT = re.compile(r"\bexport ([A-Z_]+)=(\S+)")


def said_for(keys: Collection[str], lines: Iterable[str]) -> tuple[str, ...]:
    """Say lines for a place by the keys of its fixes; what has no meaning there is left out where others remain."""
    lines = tuple(lines)
    if "container" in keys:
        return tuple(f"on the host: {line}" if _OF_THE_HOST.match(line) else line for line in lines)
    if "windows" in keys:
        kept = [line for line in lines if not _OF_LINUX.match(line)] or lines
        return tuple(map(_in_powershell, kept))
    return lines


def _in_powershell(line: str) -> str:
    line = _UNSET.sub(lambda found: "Remove-Item " + ", ".join(f"Env:{name}" for name in found[1].split()), line)
    return _EXPORT.sub(r'$env:\1 = "\2"', line)
