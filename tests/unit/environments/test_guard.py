import os
import venv as venv_module

import pytest
from packaging.requirements import Requirement

from gpuinstall.base import process
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.environments.guard import (
    FamilyMember,
    format_constraints,
    format_pip_section,
    write_guard,
)

VERSIONS = {"torch": "2.14.1+cu126", "triton": "3.8.0"}
WHEEL = "https://index.example/whl/cu126/torchvision-0.29.2%2Bcu126-cp311-cp311-manylinux_2_28_x86_64.whl"


def test_torch_family_is_constrained_to_installed_build():
    beside = (
        FamilyMember("torchvision", address=WHEEL, sha256="ab" * 32),
        FamilyMember("torchaudio", version="2.11.0"),
        FamilyMember(
            "torchcodec", address="https://index.example/whl/cu126/torchcodec-1.whl"
        ),
        FamilyMember("xformers"),
    )
    lines = format_constraints(VERSIONS, beside, "cu126")
    assert lines == [
        "torch==2.14.1+cu126",
        "torch!=0+pinned.by.gpuinstall",
        "triton==3.8.0",
        "triton!=0+pinned.by.gpuinstall",
        f"torchvision @ {WHEEL}#sha256={'ab' * 32}",
        "torchaudio==2.11.0",
        "torchcodec @ https://index.example/whl/cu126/torchcodec-1.whl",
        "# no build of xformers is known for cu126:",
        "xformers==0+gpuinstall.found.none.for.cu126",
    ]


@pytest.mark.parametrize(
    ("backend", "label"),
    [("rocm7.2", "rocm7.2"), ("jp6-cu126", "jp6.cu126"), ("cpu", "cpu")],
)
def test_constraint_placeholder_is_a_valid_version(backend, label):
    (_, line) = format_constraints({}, [FamilyMember("torchaudio")], backend)
    assert str(Requirement(line).specifier) == f"==0+gpuinstall.found.none.for.{label}"


def test_pip_section_lists_constraints_and_links():
    assert format_pip_section(
        ("/srv/mine.txt", "file:///a%20b/c.txt"), ("https://index.example/torch/",)
    ) == [
        "[install]",
        "constraint = /srv/mine.txt file:///a%20b/c.txt",
        "find-links =",
        "    https://index.example/torch/",
    ]


@pytest.fixture
def venv(tmp_path):
    """An environment with the constraints of gpuinstall."""
    if os.name == "nt":
        pytest.skip("the embeddable Python has no venv")
    folder = tmp_path / "a b" / ".venv"
    venv_module.create(folder, symlinks=os.name != "nt")
    write_guard(folder, "pylock.cu126.toml", ["torch==2.14.1+cu126"], USERS)
    return folder


USERS = ("/srv/mine.txt", "https://index.example/team.txt")


def constraint_of(folder, *words, **variables):
    """Return pip's variable for constraints in a process of an environment."""
    shown = "import os; print(os.environ.get('PIP_CONSTRAINT'))"
    python = interpreter(folder)
    inherited = {**os.environ, **variables}
    done = process.run([str(python), "-c", shown, *words], env=inherited)
    assert done.ok, done.err
    return done.out.strip()


def test_moved_environment_constrains_pip_at_its_new_path(venv):
    first, *constraints = (venv / "gpuinstall-constraints.txt").read_text().splitlines()
    assert constraints == ["torch==2.14.1+cu126"]
    assert "_gpuinstall.pth" in first
    moved = venv.rename(venv.parent / "moved")
    own = (moved / "gpuinstall-constraints.txt").as_uri()
    assert "%20" in own
    for word in ("pip", "pip3", "/a/bin/pip3.12", "pip.exe", "-mpip"):
        assert constraint_of(moved, word) == " ".join((*USERS, own)), word
    assert constraint_of(moved, "pip", PIP_CONSTRAINT=f"b {own}") == f"b {own}"


@pytest.mark.parametrize("words", ["train.py", "pipx", "pip --python /other install"])
def test_other_programs_receive_no_constraints(venv, words):
    assert constraint_of(venv, *words.split()) == "None"


def test_pip_works_without_deleted_constraints(venv):
    (venv / "gpuinstall-constraints.txt").unlink()
    assert constraint_of(venv, "pip") == "None"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
@pytest.mark.parametrize(
    ("address", "mode"), [("me:token@index.example", 0o600), ("index.example", 0o644)]
)
def test_constraints_with_credentials_are_private(tmp_path, address, mode):
    usual = os.umask(0o022)
    try:
        address = f"https://{address}/constraints.txt"
        (tmp_path / "lib/python3.12/site-packages").mkdir(parents=True)
        write_guard(tmp_path, "pylock.cpu.toml", [], (address,))
    finally:
        os.umask(usual)
    written = next(tmp_path.rglob("*.pth"))
    assert written.stat().st_mode & 0o777 == mode
