"""The list of problems: every slug with its fix for every kind of machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli

from gpuinstall.failures.problems import FILE, FixContext, codes, fix_of, problem
from gpuinstall.failures.table import load_failures

ROWS = tomli.loads(FILE.read_text(encoding="utf-8"))
CONTAINERS = ("docker", "podman", "kubernetes", "apptainer", "lxc", "container")
SYSTEMS = ("wsl", "jetson", "ubuntu", "debian", "fedora", "apt", "dnf", "zypper", "pacman", "apk", "nixos", "windows")


def test_a_slug_that_is_not_on_the_list_is_refused() -> None:
    with pytest.raises(KeyError):
        problem("no-such-problem", "x", FixContext())


def test_every_slug_of_the_probe_is_on_the_list_and_every_one_on_the_list_is_used() -> None:
    rooms = (FILE.parents[2] / room for room in ("probe", "vendors"))
    source = "".join(path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py"))
    assert [code for code in codes() if f'"{code}"' not in source] == []


@pytest.mark.parametrize("code", codes())
def test_an_entry_of_the_catalogue_is_well_formed(code: str) -> None:
    entry = ROWS[code].get("id")
    assert entry is None or entry in load_failures()
    assert set(ROWS[code].get("needs", ())) <= {"root", "reboot"}
    fixes = ROWS[code].get("fix", {})
    assert fixes in ROWS["fixes"] if isinstance(fixes, str) else set(fixes) <= {*CONTAINERS, *SYSTEMS, "any"}


@pytest.mark.parametrize(
    ("keys", "legacy", "start"),
    [
        (("ubuntu", "apt", "linux"), False, "sudo apt-get install nvidia-driver-580-open"),
        (("ubuntu", "apt", "linux"), True, "sudo apt-get install nvidia-driver-580"),
        (("debian", "apt", "linux"), False, "sudo apt-get install linux-headers-amd64"),
        (("fedora", "dnf", "linux"), True, "sudo dnf install akmod-nvidia-580xx"),
        (("rocky", "dnf", "linux"), False, "sudo dnf module install nvidia-driver:580-open"),
        (("opensuse-leap", "zypper", "linux"), False, "sudo zypper install nvidia-open"),
        (("arch", "pacman", "linux"), True, "yay -S nvidia-580xx-dkms"),
        (("nixos", "nixos", "linux"), True, "services.xserver.videoDrivers"),
        (("alpine", "apk", "linux"), True, "install a distribution with glibc"),
        (("wsl", "ubuntu", "apt", "linux"), False, "install the driver in Windows"),
        (("windows",), False, "install NVIDIA driver 580 or newer"),
        (("docker", "container", "ubuntu", "apt"), False, "on the host: install NVIDIA driver 580"),
        (("gibberish", "linux"), False, "install NVIDIA driver 580 or newer"),
    ],
)
def test_a_driver_is_installed_by_the_commands_of_the_place(keys: tuple[str, ...], legacy: bool, start: str) -> None:
    words = (("branch", "580"), ("flavour", "" if legacy else "-open"))
    fix = fix_of("install-driver", FixContext(keys, words), legacy=legacy)
    assert fix is not None
    assert fix.startswith(start)


def test_a_word_that_nobody_knows_stays_visible() -> None:
    assert fix_of({"any": "sudo nvidia-smi -i {place}"}, FixContext()) == "sudo nvidia-smi -i <place>"


def test_the_list_is_shipped_beside_its_module() -> None:
    assert Path(FILE).name == "problems.toml"
