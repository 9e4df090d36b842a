"""The nodes of cards in a container: opening one starts its card, and closing it may take for ever."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from gpuinstall.facts.source import ThisMachine
from gpuinstall.vendors.nvidia.linux import refused_cards
from tests.lab.pace import within

if TYPE_CHECKING:
    from pathlib import Path

DRIVER = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int open64(const char *path, int flags, int mode) {
    if (strstr(path, "/wedged")) sleep(600);
    if (strstr(path, "/denied")) return errno = EPERM, -1;
    return syscall(SYS_openat, -100, path, flags, mode);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to play the driver")
def test_a_card_that_never_opens_is_left_and_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "driver.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=DRIVER, text=True, check=True)
    for name in ("wedged", "denied"):
        (tmp_path / name).touch()
    slow = f"..{tmp_path}/wedged"
    monkeypatch.setenv("LD_PRELOAD", str(library))

    with within(9):
        refused = refused_cards(ThisMachine(), [slow, f"..{tmp_path}/denied"])

    assert refused == {f"..{tmp_path}/denied"}
