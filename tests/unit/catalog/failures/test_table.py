"""Fixes in the table match their platform and select their environment."""

import re
from itertools import chain, product

import pytest

from gpuinstall.base.advice import NOTE
from gpuinstall.base.machine import Machine
from gpuinstall.catalog.failures.problems import FixContext, fix, place
from gpuinstall.catalog.failures.table import Step, load_failures, load_problems
from gpuinstall.environments.environment import create_hint_placeholders
from tests.unit.catalog.failures.subjects import subjects

CHANGES = re.compile(
    r"\b(uv pip (?:install|uninstall|list|freeze)|conda install|python -m pip|gpuinstall (?:install|doctor|verify))\b"
    r"([^;&|]*)"
)
ELSEWHERE = (
    "--venv .venv-second",
    "outside conda",
    "creates a separate environment",
    "--python .venv",
    "with the Python outside",
)
"""Texts of commands that create another environment."""


@pytest.fixture
def known(tmp_path):
    """Placeholder values for an unmanaged environment."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").touch()
    return create_hint_placeholders(tmp_path / "bin" / "python")


def test_failure_ids_in_texts_exist_in_table():
    texts = [
        text
        for failure in load_failures().values()
        for text in (
            failure.cause,
            failure.apart,
            *map(str, chain(*failure.fix.commands.values())),
        )
    ]
    named = set(re.findall(r"\bF\d{2,3}\b", "\n".join(texts)))
    assert named - load_failures().keys() == set()


def test_fix_commands_contain_their_environment_path(known):
    contexts = [FixContext(("windows",)), FixContext(("kubernetes", "container"))]
    for system in ("Ubuntu 24.04", "Fedora Linux 42", "Arch Linux", "Rocky Linux 9.4"):
        context = of_distribution(system)
        contexts += [context, context.about("conda")]
    codes = [code for code, kind in load_problems().items() if kind.fix]

    wrong = set()
    for entry, context in product([*load_failures(), *codes], contexts):
        for line in map(str, fix(entry, context.knowing(**known))):
            for command, rest in CHANGES.findall(line):
                names_it = (
                    known["prefix"] in rest
                    or known["prefix"] in line.partition(command)[0]
                )
                if not names_it and not any(word in line for word in ELSEWHERE):
                    wrong.add((entry, line))

    assert wrong == set()


ALTERNATIVE = re.compile(
    r"(Or|Else|Otherwise|Still|Then|Neither|Not|Never|.*   # (else|neither|or (a|an|so|the)))\b"
)
MANAGERS = {
    "apt": r"\bapt(-get)? ",
    "dnf": r"\bdnf ",
    "pacman": r"\bpacman -S",
    "zypper": r"\bzypper ",
}
DISTRIBUTIONS = {
    "Ubuntu 24.04": "apt",
    "Debian 13": "apt",
    "Fedora Linux 42": "dnf",
    "Rocky Linux 9.4": "dnf",
    "Arch Linux": "pacman",
    "openSUSE Leap 15.6": "zypper",
}


def of_distribution(name):
    """Return the context of a Linux machine."""
    return FixContext.of_machine(Machine("linux", "x86_64", distribution=name))


OF_WINDOWS = "^Remove-Item"


def of_others(name):
    """Return a pattern for other distributions' package managers."""
    patterns = dict(MANAGERS)
    del patterns[DISTRIBUTIONS[name]]
    command = rf"^(?i:(?!.*in wsl))((?!{NOTE}).)*"
    return f"{command}({'|'.join(patterns.values())})"


@pytest.mark.parametrize(
    ("context", "never"),
    [
        (
            FixContext(("windows",)),
            r"^(sudo|grep|cat /|ulimit|unset|export|set [A-Z_]+=)",
        ),
        (
            FixContext(("wsl", "ubuntu", "apt", "linux")),
            "^sudo (modprobe|rmmod|mokutil|reboot|nvidia-smi|nvidia-modprobe)",
        ),
        (
            FixContext(("jetson", "ubuntu", "apt", "linux")),
            "^sudo (nvidia-modprobe|apt-get install dkms)",
        ),
        (FixContext(("macos",)), OF_WINDOWS),
        (FixContext(("docker", "container", "linux")), OF_WINDOWS),
        (FixContext(("conda", "linux")), OF_WINDOWS),
        *((of_distribution(name), of_others(name)) for name in DISTRIBUTIONS),
    ],
)
def test_fixes_contain_no_commands_of_other_platforms(context, never):
    codes = (*load_failures(), *load_problems())
    lines = {code: [*map(str, fix(code, context))] for code in codes}
    commands = {
        code: [line.partition(NOTE)[0] for line in fixes]
        for code, fixes in lines.items()
    }

    assert {
        code: fixes
        for code, fixes in lines.items()
        if any(re.search(never, line) for line in fixes)
    } == {}
    assert [code for code, own in commands.items() if len(own) > len(set(own))] == []
    # The first fix is not an alternative to others.
    assert [
        fixes[0] for fixes in lines.values() if fixes and ALTERNATIVE.match(fixes[0])
    ] == []


def test_container_fix_marks_commands_for_the_host():
    context = FixContext(("kubernetes", "container", "debian", "apt", "linux"))
    lines = list[str]()
    for identity, subject in product(load_failures(), subjects()):
        lines += map(str, fix(identity, context.about(subject)))
    on_host = [line for line in lines if f"{NOTE}on the host" in line]
    reboots = [line for line in lines if "sudo reboot" in line]
    restarts = [line for line in lines if "docker restart" in line]

    assert [line for line in reboots if "host" not in line and "node" not in line] == []
    assert [line for line in restarts if "kubectl" not in line] == []
    # In the container, the command would succeed and install driver libraries next to the host's.
    managers = "|".join(MANAGERS.values())
    assert [line for line in on_host if re.search(managers, line)] == []


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            Step(unset=("A_B", "C"), export={"D": "x"}),
            'Remove-Item Env:A_B; Remove-Item Env:C; $env:D = "x"',
        ),
        (Step("uv pip list --python p"), "uv pip list --python p"),
        (Step.from_document("sudo ldconfig", "x"), "None"),
    ],
)
def test_windows_fixes_use_powershell(step, said):
    assert str(place(step, ("windows",))) == said


@pytest.mark.parametrize(
    ("where", "keys", "said"),
    [
        ("kernel", ("docker", "container", "linux"), "sudo x   # on the host; why"),
        ("kernel", ("wsl", "linux"), "wsl.exe --shutdown   # in Windows"),
        ("driver", ("wsl",), "x   # in Windows, as administrator; why"),
        ("driver", ("windows",), "x   # as administrator; why"),
        ("host", ("wsl", "linux"), "sudo x   # why"),
        ("linux", ("windows",), "None"),
    ],
)
def test_fix_command_mentions_where_it_must_run(where, keys, said):
    step = Step("x", "why", root=True, place=where)
    assert str(place(step, keys)) == said
