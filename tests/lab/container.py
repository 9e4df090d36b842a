"""The start of a container, as far as a runtime makes things anew for each: /dev and the loader's cache. Needs root."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

START = """set -e
mkdir -p "$0/dev"
mount -t tmpfs lab "$0/dev"
cp -a /dev/null /dev/zero /dev/urandom "$0/dev/"
mkdir "$0/dev/nvidia-caps" "$0/dev/dri"
mknod -m 666 "$0/dev/nvidia-caps/nvidia-cap1" c 1 3
mount --bind "$0/dev" /dev
cp /etc/ld.so.cache "$0/cache"
mount --bind "$0/cache" /etc/ld.so.cache
exec "$@"
"""


def can_contain() -> bool:
    """Whether this machine can play a container."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return is_root and shutil.which("unshare") is not None


def contained(folder: Path, words: Sequence[str | Path]) -> list[str]:
    """Return the command that runs another one in a container of its own, with its files in a folder."""
    namespace = ("unshare", "--mount", "--propagation", "private")
    return [*namespace, "sh", "-c", START, str(folder), *map(str, words)]
