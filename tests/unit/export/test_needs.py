import json

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.catalog import load_catalog
from gpuinstall.cli.main import run_command_line
from gpuinstall.export.needs import machine_needs
from gpuinstall.lock.file.lock import parse
from tests.unit.export.locks import cpu_lock, cuda_lock, lock, wheel


def gpus_of(locked):
    (needs,) = machine_needs(locked, load_catalog())
    return {gpus.codes: str(gpus.driver) for gpus in needs.gpus}


def test_gpus_are_a_set_each_with_its_oldest_driver():
    codes = ("5.0", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0")
    assert gpus_of(cuda_lock("cu126")) == {codes: "525.60.13"}


def test_a_chip_that_is_newer_than_the_floor_needs_its_own_first_driver():
    assert gpus_of(cuda_lock("cu130")) == {
        ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"): "580",
        ("10.3",): "580.82.07",
        ("10.7",): "610",
    }


def test_windows_has_drivers_of_its_own():
    torch = wheel("torch", "2.14.1+cu126", "cp312-cp312-win_amd64")

    drivers = gpus_of(lock("cu126-windows-x86_64", torch))

    assert set(drivers.values()) == {"528.33"}


def test_gpus_of_another_maker_need_no_driver():
    (needs,) = machine_needs(
        lock("rocm7-2", wheel("torch", "2.14.1+rocm7.2")), load_catalog()
    )

    assert needs.maker == "amd"
    assert "gfx942" in needs.codes
    assert {gpus.driver for gpus in needs.gpus} == {None}


def test_the_newest_glibc_of_any_package_is_needed():
    old_or_new = wheel(
        "pandas", "2.3.4", "cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64"
    )
    new = wheel("scipy", "1.16", "cp312-cp312-manylinux_2_35_x86_64")

    (needs,) = machine_needs(cuda_lock("cu126", old_or_new, new), load_catalog())

    assert needs.glibc == "2.35"


def test_a_lock_of_an_unknown_torch_is_refused():
    with pytest.raises(UsageError, match=r"runs on no known machine: .* no torch 9\.9"):
        machine_needs(cuda_lock("cu126", torch="9.9"), load_catalog())


def export_needs(capsys, *words):
    run_command_line(["export", "needs", "--json", *words])
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for locked in (cuda_lock("cu126"), cuda_lock("cu130"), cpu_lock()):
        (tmp_path / locked.name).write_text(locked.text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_each_lock_has_its_own_needs(capsys):
    document = export_needs(capsys)

    assert [(one["lock"], one["maker"]) for one in document["data"]["needs"]] == [
        ("pylock.cpu.toml", None),
        ("pylock.cu126.toml", "nvidia"),
        ("pylock.cu130.toml", "nvidia"),
    ]


@pytest.mark.usefixtures("folder")
def test_a_tool_is_told_of_a_machine_for_any_lock(capsys):
    data = export_needs(capsys, "--for", "skypilot")["data"]

    assert data["format"] == "skypilot"
    assert "# A machine for pylock.cu126.toml or pylock.cu130.toml." in data["text"]
    # The second lock alone runs the first GPU, the first lock alone the second.
    assert "B200: 1" in data["text"]
    assert "V100: 1" in data["text"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--for", "slurm", "--lock", "pylock.cpu.toml"), "not-exportable"),
        (("--for", "skypilot", "--lock", "pylock.cpu.toml"), "not-exportable"),
    ],
)
def test_what_cannot_be_said_is_refused(capsys, words, code):
    assert export_needs(capsys, *words)["errors"][0]["code"] == code


def test_locks_for_different_processors_are_not_mixed(folder, capsys):
    torch = wheel("torch", "2.14.1+cu130", "cp312-cp312-manylinux_2_28_aarch64")
    other = lock("cu130-linux-aarch64", torch)
    (folder / other.name).write_text(other.text, "utf-8")

    error = export_needs(capsys, "--for", "dstack")["errors"][0]

    assert error["code"] == "several-machines"
    assert (
        export_needs(capsys, "--for", "dstack", "--lock", other.name)["status"]
        == "success"
    )


def with_compat_libraries(locked):
    text = (
        locked.text
        + '\n[tool.gpuinstall.cuda-compat]\ndriver = "580.95.05"\nurl = "https://x"\n'
    )
    return parse(locked.name, text)


def test_a_lock_with_libraries_for_older_drivers_needs_less(folder, capsys):
    locked = with_compat_libraries(cuda_lock("cu130"))
    (folder / locked.name).write_text(locked.text, "utf-8")

    run_command_line(["export", "needs", "--lock", locked.name])

    assert "pylock.cu130.toml brings cuda-compat" in capsys.readouterr().err
