"""All commands report the table's fix for the affected machine."""

import re
from itertools import chain
from pathlib import Path

import pytest

from gpuinstall.base.machine import Environment, JetsonRelease, Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.catalog.failures.problems import (
    FixContext,
    code_told,
    fix,
    own_keys,
)
from gpuinstall.catalog.failures.table import (
    load_conditions,
    load_cuda_errors,
    load_distributions,
    load_failures,
    load_problems,
    read_table,
)
from gpuinstall.environments.environment import create_hint_placeholders
from gpuinstall.verify.diagnosis import Verification
from gpuinstall.verify.interpreter import FoundTorch, Interpreter
from gpuinstall.verify.kernel_run import KernelRun
from tests.unit.catalog.failures.subjects import subjects

FAILURES, KINDS = tuple(load_failures().values()), tuple(load_problems().values())
PYTHON = Path("/data/envs/it/bin/python")
CONTAINERS = ("docker", "podman", "kubernetes", "apptainer", "lxc")
TOLD = {name for row in load_conditions() for name in row.fills}
TOLD |= {"package", "probe"}
TOLD |= {"gpu-build", "gpu-variable", "supported-gpus", "other-gpus"}
"""Values from a text or machine, without which a line is omitted."""
KEYS = {
    *TOLD,
    *(key for known in load_distributions() for key in (known.key, known.manager)),
    *(
        *CONTAINERS,
        "container",
        "wsl",
        "jetson",
        "conda",
        "linux",
        "windows",
        "macos",
        "any",
    ),
    "several-blackwells",  # known to only one check
    "fabric-in-progress",
    *subjects(),
    "debian-12",
}


def on(distribution=None, os="linux", arch="x86_64", **environment):
    around = Environment(**environment)
    return Machine(os, arch, distribution=distribution, environment=around)


MACHINES = {
    "ubuntu": on("Ubuntu 24.04"),
    "debian": on("Debian 12"),
    "fedora": on("Fedora Linux 42"),
    "rhel": on("Rocky Linux 9.4"),
    "arch": on("Arch Linux"),
    "suse": on("openSUSE Leap 15.6"),
    "nixos": on("NixOS 25.11"),
    "alpine": on("Alpine Linux 3.22"),
    "unknown": on(),
    "windows": on(os="windows"),
    "macos": on(os="macos", arch="arm64"),
    "wsl": on("Ubuntu 24.04", wsl=True),
    "jetson": on("Ubuntu 22.04", arch="aarch64", jetson=JetsonRelease("36.4.0")),
    **{engine: on("Debian 12", container=engine) for engine in CONTAINERS},
}
PLACES = {name: FixContext.of_machine(machine) for name, machine in MACHINES.items()}


@pytest.mark.parametrize(("number", "place"), [*enumerate(MACHINES)])
def test_verification_fixes_contain_no_unfilled_placeholder(number, place):
    context = PLACES[place].knowing(**create_hint_placeholders(PYTHON))
    torch = FoundTorch("3.12.1", venv=True)
    run = KernelRun(PYTHON, (), "quick")
    proof = Verification(MACHINES[place], Interpreter(torch, torch), run, Reporter())
    fixes = {failure.id: (*map(str, fix(failure.id, context)),) for failure in FAILURES}
    for failure in FAILURES[number % 4 :: 4]:
        verified = proof.failed("linear", "failed", failure.id).fixes
        assert tuple(map(str, verified)) == fixes[failure.id]

    # Linux-only failures have no fix on Windows.
    assert all(fixes.values()) or place == "windows"
    assert not re.search(r"\{\w+\}", "\n".join(chain(*fixes.values())))


def test_problem_codes_are_unique():
    assert len(KINDS) == len({kind.code for kind in KINDS})
    listed = sum(len(failure.problems) for failure in FAILURES) + sum(
        kind.id is None for kind in KINDS
    )
    assert len(KINDS) == listed


def test_problem_and_fix_templates_are_valid():
    fixes = {failure.id: failure.fix for failure in FAILURES}
    fixes |= {kind.code: kind.fix for kind in KINDS if kind.fix}

    assert [kind.code for kind in KINDS if not is_well_formed(kind)] == []
    assert [name for name, table in fixes.items() if not can_be_filled_in(table)] == []


def is_well_formed(kind):
    """Return whether a problem's code and message follow the conventions."""
    return kind.code == kind.code.lower() and not kind.message.endswith(".")


def can_be_filled_in(table):
    """Return whether a fix has valid platforms and only known placeholders."""
    lines = [str(step) for steps in table.commands.values() for step in steps]
    words = {word for line in lines for word in re.findall(r"\{(.*?)\}", line)}
    return (
        {key.removesuffix("-legacy") for key in table.commands} <= KEYS
        and {name.removesuffix("-legacy") for name in table.like}
        <= load_failures().keys() | load_problems().keys()
        and words <= read_table("distributions")["placeholders"].keys() | TOLD
        and not any("\n" in line for line in lines)
    )


def test_every_cuda_error_number_has_one_code():
    numbers = [int(number) for kind in KINDS for number in kind.cuda_errors or ()]
    assert sorted(numbers) == sorted(load_cuda_errors())


def test_every_problem_code_is_used_in_source():
    package = Path(__file__).resolve().parents[4] / "src" / "gpuinstall"
    files = [*package.rglob("*.py"), *package.rglob("symptoms.toml")]
    source = "".join(path.read_text("utf-8") for path in files)
    silent = [
        kind.code
        for kind in KINDS
        if not (kind.cuda_errors or kind.told or f'"{kind.code}"' in source)
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("code", "keys", "legacy", "start"),
    [
        (
            "driver-missing",
            "ubuntu apt",
            True,
            "sudo apt-get install nvidia-driver-580",
        ),
        ("driver-missing", "fedora dnf", True, "sudo dnf install https://mirrors.rpm"),
        ("driver-missing", "arch pacman", True, "yay -S nvidia-580xx-dkms"),
        ("driver-missing", "nixos", True, "Set in configuration.nix: services.xserver"),
        ("driver-missing", "wsl ubuntu apt", False, "Install the driver in Windows"),
        ("driver-missing", "windows", False, "Install NVIDIA driver 580 or later"),
        ("driver-missing", "docker container", False, "On the host: install NVIDIA"),
        ("driver-library-mismatch", "wsl", False, "wsl.exe --shutdown"),
        ("driver-library-mismatch", "jetson", False, "sudo reboot"),
        ("driver-too-old", "jetson", False, "Install a later JetPack"),
    ],
)
def test_driver_fix_uses_platform_specific_commands(code, keys, legacy, start):
    found = fix(code, FixContext((*keys.split(), "linux"), is_legacy=legacy))
    assert str(found[0]).startswith(start)


@pytest.mark.parametrize(
    ("what", "words", "command"),
    [
        ("F07", {}, "nvidia-driver-580 &&"),
        ("F06", {"branch": 470}, "nvidia-driver-470 &&"),
        ("closed-module-on-new-gpu", {}, "580-open"),
        ("compute-mode-prohibited", {"gpu": 3}, "-i 3 "),
        # Unknown placeholders remain visible.
        ("compute-mode-prohibited", {}, "run: sudo nvidia-smi -i <gpu> "),
    ],
)
def test_fix_command_contains_values_of_its_context(what, words, command):
    assert command in str(fix(what, PLACES["ubuntu"].knowing(**words))[0])


def test_subject_specific_fix_precedes_platform_fix():
    general = PLACES["ubuntu"]
    (first, *_), (other, *_) = (
        fix("cuda-not-initialized", context)
        for context in (general.about("several-blackwells"), general)
    )
    assert "uvm_disable_hmm" in str(first)
    assert "uvm_disable_hmm" not in str(other)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("Ubuntu 22.04", ("ubuntu-22", "ubuntu", "apt")),
        ("Linux Mint", ("ubuntu", "apt")),
        ("Pop!_OS 24.04", ("ubuntu-24", "ubuntu", "apt")),
        ("Red Hat Enterprise Linux 9.4", ("rhel-9", "rhel", "dnf")),
        ("AlmaLinux 9", ("rhel-9", "rhel", "dnf")),
        ("openSUSE Leap", ("suse", "zypper")),
        ("EndeavourOS", ("arch", "pacman")),
        ("gibberish", None),
        ("", None),
    ],
)
def test_distribution_name_determines_its_package_manager(name, keys):
    assert own_keys("linux", name) == ((*keys, "linux") if keys else ("linux", "apt"))


def test_check_message_determines_problem_code():
    assert (
        code_told("ImportError: x; it passes without LD_PRELOAD=/x.so")
        == "library-preloaded"
    )
    assert code_told("the numbers differ") is None
