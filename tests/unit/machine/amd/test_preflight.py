"""AMD's preflight: a kernel's compute driver that answers, one that does not, and none."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.machine.amd import prober as asked
from gpuinstall.machine.amd.prober import AmdProber, kfd_version
from gpuinstall.machine.prober import Preflight

CARDS = tuple(Gpu(index, "AMD Navi 31", vendor="amd", architecture="gfx1100") for index in range(2))
TWO = Machine("linux", "x86_64", gpus=CARDS)


def preflight(machine: Machine) -> Preflight:
    return AmdProber().preflight(machine, SilentReporter())


def test_a_driver_that_answers_leaves_the_proof_to_the_kernels(
    monkeypatch,
):
    monkeypatch.setattr(asked, "kfd_version", lambda: (1, 17))
    found = preflight(TWO)

    assert [(card.index, card.outcome) for card in found.cards] == [
        (0, "unproven"),
        (1, "unproven"),
    ]
    assert found.problems == ()


def test_a_driver_that_does_not_answer_fails_every_card_before_anything_is_downloaded(
    monkeypatch,
):
    def refuse() -> tuple[int, int]:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(asked, "kfd_version", refuse)
    found = preflight(TWO)
    (fault,) = found.problems

    assert [(card.index, card.outcome) for card in found.cards] == [(0, "failed"), (1, "failed")]
    assert (fault.code, fault.gpus) == ("kfd-not-answering", (0, 1))
    assert "No such device" in fault.message
    assert "dmesg" in (fault.fix or "")


def test_a_card_that_may_not_be_used_is_not_asked_for(monkeypatch):
    monkeypatch.setattr(asked, "kfd_version", lambda: (1, 17))
    closed = Finding("kfd-not-permitted", "/dev/dri/renderD128 may not be opened", gpus=(0,))

    assert [card.index for card in preflight(replace(TWO, problems=(closed,))).cards] == [1]


def test_windows_and_machines_without_such_gpus_are_not_asked():
    nvidia = Machine("linux", "x86_64", gpus=(Gpu(0, "NVIDIA A100", vendor="nvidia"),))

    assert preflight(replace(TWO, os="windows")).cards == preflight(nvidia).cards == ()


def test_what_is_no_compute_driver_does_not_answer(tmp_path):
    (tmp_path / "kfd").touch()

    with pytest.raises(OSError, match="ioctl"):
        kfd_version(str(tmp_path / "kfd"))
    with pytest.raises(FileNotFoundError):
        kfd_version(str(tmp_path / "none"))
