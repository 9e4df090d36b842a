"""``make card``, rehearsed on the machine that the first run is expected on: a sandbox in a cloud, with an H200.

Its driver and its torch are played. Python 3.12 and torch lie in an environment outside of home, the driver in a
read-only folder that the loader does not know by itself, and the sandbox reports an old kernel, as gVisor does.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tools import card

from gpuinstall.uv import uv
from tests.lab.clone import interpreter
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.stub_torch import modules
from tests.lab.wheels import make_wheel

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.fixtures import Play

H200 = FakeGpu("NVIDIA H200", cc="9.0", memory_mib=143771, pci="10de:2335")
MACHINE = FakeDriver((H200,), driver="580.159.03", cuda=13000)
TORCH = "2.11.0+cu130"
OLD_KERNEL = r"""
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
int uname(struct utsname *told) {
    int status = syscall(SYS_uname, told);
    strcpy(told->release, "4.4.0");
    return status;
}
"""


def image(folder: Path) -> Path:
    """An environment with torch, as an image has it; return its Python."""
    wheel = make_wheel(folder, "torch", TORCH, "cp312-cp312-manylinux_2_28_x86_64", modules=modules(TORCH, "cu130"))
    python = folder / "image" / "bin" / "python"
    created = [uv(), "venv", "--quiet", "--no-project", "--python", interpreter("3.12"), folder / "image"]
    installed = [uv(), "pip", "install", "--quiet", "--no-index", "--no-deps", "--python", python, wheel]
    for command in (created, installed):
        subprocess.run(list(map(str, command)), check=True)
    return python


def lay_out(folder: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the driver where only LD_LIBRARY_PATH leads, and have the kernel say that it is old."""
    driver = folder / "driver" / "580.159.03"
    driver.mkdir(parents=True)
    for library in libraries.glob("*/*.so.1"):
        shutil.copy2(library, driver)
    driver.chmod(0o555)
    kernel = folder / "kernel.so"
    compiler = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(kernel)]
    subprocess.run(compiler, input=OLD_KERNEL, text=True, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("LD_PRELOAD", str(kernel))


@pytest.mark.heavy
def test_every_step_is_taken_and_stands_on_the_page(
    tmp_path: Path, play: Play, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = image(tmp_path / "opt")
    play(MACHINE)
    lay_out(tmp_path, libraries, monkeypatch)
    monkeypatch.setattr(card, "FOLDER", tmp_path / "card")
    monkeypatch.setattr(card, "EVIDENCE", tmp_path / "card" / "evidence")
    monkeypatch.setattr(sys, "argv", ["card", str(python)])

    with pytest.raises(SystemExit) as end:
        card.main()
    page = (tmp_path / "card" / "evidence" / "card.md").read_text(encoding="utf-8")
    probe = json.loads((tmp_path / "card" / "evidence" / "00-probe.json").read_text(encoding="utf-8"))
    platform = json.loads((tmp_path / "card" / "evidence" / "machine" / "platform.json").read_text(encoding="utf-8"))

    assert end.value.code == 0, page
    assert platform["release"] == "4.4.0"
    assert probe["data"]["driver"]["version"] == "580.159.03"
    assert probe["data"]["problems"] == []
    assert "verify](06-verify.json) | 0 |" in page
    assert re.search(r"install --into\]\([\w.-]+\) \| 0 \|", page), page
    assert re.search(r"--into, undone\]\([\w.-]+\) \| 5 \|", page), page
    assert f"| {TORCH} |" in page
    assert "torch listed no GPU to compare with the probe's." in page, "as the small one does"
