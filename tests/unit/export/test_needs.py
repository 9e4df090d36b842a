"""Requirements of a lock: GPUs, minimum driver, minimum CUDA, and glibc."""

import json
import re

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.catalog import load_catalog
from gpuinstall.cli.main import run_command_line
from gpuinstall.export.needs import find_machine_needs
from tests.unit.export.locks import cpu_lock, cuda_lock, lock, wheel

CATALOG = load_catalog()
ROCM = lock("rocm7-2", wheel("torch", "2.14.1+rocm7.2"))


def needs_of(locked):
    [needs] = find_machine_needs(locked, CATALOG)
    return needs


def test_windows_lock_requires_a_windows_driver():
    torch = wheel("torch", "2.14.1+cu126", "cp312-cp312-win_amd64")
    needs = needs_of(lock("cu126-windows-x86_64", torch))
    assert {gpus.driver for gpus in needs.gpus} == {"528.33"}


def test_amd_gpus_do_not_require_nvidia_driver():
    needs = needs_of(ROCM)
    assert needs.maker == "amd"
    assert "gfx942" in needs.gpus[0].codes
    assert {gpus.driver for gpus in needs.gpus} == {None}


def test_export_requires_highest_glibc_of_all_packages():
    old_or_new = wheel(
        "pandas", "2.3.4", "cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64"
    )
    new = wheel("scipy", "1.16", "cp312-cp312-manylinux_2_35_x86_64")
    assert needs_of(cuda_lock("cu126", old_or_new, new)).glibc == "2.35"


def test_unknown_torch_is_rejected():
    with pytest.raises(UsageError, match=r"runs on no known machine: torch 9\.9"):
        needs_of(cuda_lock("cu126", torch="9.9"))


def test_export_needs_document_lists_every_lock(tmp_path, monkeypatch, capsys):
    for locked in (cuda_lock("cu126"), cpu_lock()):
        (tmp_path / locked.name).write_text(locked.text, "utf-8")
    monkeypatch.chdir(tmp_path)

    run_command_line(["export", "needs", "--json"])

    needs = json.loads(capsys.readouterr().out)["data"]["needs"]
    assert [
        (one["lock"], one["maker"], [gpus["driver"] for gpus in one["gpus"]])
        for one in needs
    ] == [
        ("pylock.cpu.toml", None, []),
        ("pylock.cu126.toml", "nvidia", ["525.60.13"]),
    ]


def test_each_gpu_group_has_its_minimum_cuda():
    needs = needs_of(cuda_lock("cu128", torch="2.10.0"))
    groups = [
        (gpus.codes[0], gpus.codes[-1], str(gpus.cudas[0])) for gpus in needs.gpus
    ]
    assert groups[0] == ("7.0", "9.0", "12.0")
    assert [cuda for _, _, cuda in groups] == ["12.0", "12.8", "13.0", "13.3"]
    [first, second, *_] = re.findall("(?m)^  CUDA .*", needs.text)
    assert re.fullmatch(
        r"  CUDA {6}12\.0 {3}12\.0,12\.1,[0-9.,]+ {3}cuda>=12\.0", first
    )
    assert re.fullmatch(
        r"  CUDA {6}12\.8 {3}12\.8,12\.9,[0-9.,]+ {3}cuda>=12\.8", second
    )
