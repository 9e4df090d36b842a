"""What the files of an environment show, read from real records and real folders; nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.diagnose.evidence import read_contents
from gpuinstall.diagnose.repair import RepairSource, read_repair, repair_steps, run_repairs
from gpuinstall.environments.environment import Marker, advice_words, renewing_arguments
from gpuinstall.sources import Sources
from tests.frozen import frozen_catalog
from tests.unit.diagnose.evidence import found as found_in

LINUX = Machine("linux", "x86_64", "glibc", "2.36")
LIBRARY = b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e\x00" + bytes(80)
FOREIGN = LIBRARY.replace(b"\x3e", b"\xb7")


class Site:
    """An environment on a disk that a test fills."""

    def __init__(self, venv: Path):
        self.venv = venv
        self.folder = venv / "lib" / "python3.12" / "site-packages"
        self.folder.mkdir(parents=True)
        (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.12.4\n")

    def add(self, name: str, version: str, *requires: str, files: dict[str, bytes] | None = None):
        """Put a package with its record there."""
        files = files or {f"{name.replace('-', '_')}/__init__.py": b"x = 1\n"}
        record = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        record.mkdir()
        for path, content in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(content)
        rows = [f"{path},sha256=x,{len(content)}" for path, content in files.items()]
        (record / "RECORD").write_text("\n".join([*rows, f"{record.name}/RECORD,,", ""]))
        demands = "".join(f"Requires-Dist: {each}\n" for each in requires)
        (record / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{demands}\ntext"
        )

    def findings(self, machine: Machine = LINUX) -> list[Finding]:
        """What the doctor says of it."""
        contents = read_contents(self.venv)
        repair = read_repair(
            self.venv, contents.version("torch"), Sources(), frozen_catalog().family
        )
        words, renewing = advice_words(interpreter(self.venv)), renewing_arguments(self.venv)
        return found_in(
            machine,
            venv=self.venv,
            contents=contents,
            repair=repair,
            words=words,
            renewing=renewing,
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path / ".venv")
    made.add(
        "torch",
        "2.14.1+cu126",
        "filelock",
        'triton==3.5 ; platform_system == "Linux"',
        'numpy ; extra == "more"',
    )
    made.add("filelock", "3.20")
    made.add("triton", "3.5.0")
    return made


def test_a_whole_environment_has_no_findings(site):
    assert site.findings() == []


def test_an_absent_environment_holds_nothing(tmp_path):
    assert read_contents(tmp_path / "absent").packages == ()


def test_a_file_that_is_gone_is_named_with_the_command_that_brings_it_back(site):
    (site.folder / "torch" / "__init__.py").unlink()
    (finding,) = site.findings()
    assert (finding.code, finding.blocking) == ("files-lost", True)
    assert (
        finding.message
        == "torch 2.14.1+cu126 is damaged: 1 of 1 files is missing or truncated: torch/__init__.py"
    )
    where = (
        f"--python {site.venv}/bin/python --no-deps --index https://download.pytorch.org/whl/cu126"
    )
    assert (
        str(finding.fixes[0])
        == f"uv pip install {where} --reinstall-package torch torch==2.14.1+cu126"
    )


def test_a_file_that_was_cut_is_found(site):
    (site.folder / "triton" / "__init__.py").write_bytes(b"x")
    assert [finding.message.split()[0] for finding in site.findings()] == ["triton"]


def test_what_torch_does_not_need_is_not_looked_at(site):
    site.add("rich", "14.0", "pygments")
    (site.folder / "rich" / "__init__.py").unlink()
    assert site.findings() == []


@pytest.mark.parametrize(
    ("missing", "asked"), [("filelock", "filelock"), ("triton", "triton==3.5")]
)
def test_a_requirement_that_is_not_there_is_named(site, missing, asked):
    next(site.folder.glob(f"{missing}-*")).rename(site.folder / "away")
    (finding,) = site.findings()
    assert finding.code == "requirement-unmet"
    assert finding.message == f"torch 2.14.1+cu126 requires {asked}, and it is not installed"
    assert str(finding.fixes[-1]).endswith(f" {asked}")


def test_a_requirement_in_another_version_is_named(site):
    next(site.folder.glob("triton-*")).rename(site.folder / "triton-3.4.0.dist-info")
    assert (
        site.findings()[0].message
        == "torch 2.14.1+cu126 requires triton==3.5, and 3.4.0 is installed"
    )


def test_extras_of_a_requirement_are_followed(site):
    site.add("torchvision", "0.29.1+cu126", "cuda-toolkit[cublas]==12.6")
    site.add(
        "cuda-toolkit",
        "12.6",
        'nvidia-cublas ; extra == "cublas"',
        'nvidia-cufft ; extra == "cufft"',
    )
    assert [finding.message for finding in site.findings()] == [
        "cuda-toolkit 12.6 requires nvidia-cublas, and it is not installed"
    ]


def test_a_companion_of_another_torch_is_named_with_its_entry(site):
    site.add("torchaudio", "2.10.0+cu126", "torch==2.10.0")
    (finding,) = site.findings()
    assert (finding.code, finding.id, finding.blocking) == ("torchaudio-mismatch", "F48", True)
    assert (
        finding.message
        == "torchaudio 2.10.0+cu126 requires torch==2.10.0, and 2.14.1+cu126 is installed"
    )
    assert (finding.fix or "").startswith(
        f"gpuinstall install --venv {site.venv} --replace torch torchaudio "
    )


def test_a_repair_keeps_what_only_the_user_has(site):
    site.add("torchaudio", "2.10.0+cu126", "torch==2.10.0")
    site.add("pandas", "2.3.0", "numpy", 'xlrd ; extra == "excel"')
    site.add("numpy", "2.2.6")
    site.add("xlrd", "2.0.1")
    site.add("ring-a", "1.0", "ring-b")
    site.add("ring-b", "1.0", "ring-a")
    site.add("mine", "0.1")
    (site.folder / "mine-0.1.dist-info" / "direct_url.json").write_text("{}")
    (finding,) = site.findings()
    again = f"gpuinstall install --venv {site.venv} --replace torch torchaudio pandas==2.3.0 ring-a==1.0 xlrd==2.0.1"
    assert (finding.fix or "").splitlines() == [
        f"{again}   # install both together; without mine, not installed from an index"
    ]


def test_compiled_files_of_another_python_are_named(site):
    site.add(
        "markupsafe", "3.0", files={"markupsafe/_speedups.cpython-311-x86_64-linux-gnu.so": LIBRARY}
    )
    site.add("torchvision", "0.29.1+cu126", "markupsafe")
    assert [finding.message for finding in site.findings()] == [
        "markupsafe 3.0 is compiled for Python 3.11, and this is Python 3.12"
    ]


def test_libraries_for_another_processor_are_named(site):
    site.add("torchvision", "0.29.1+cu126", files={"torchvision/image.so": FOREIGN})
    (finding,) = site.findings()
    assert (
        finding.message
        == "torchvision 0.29.1+cu126 is compiled for aarch64 processors, and this is x86_64"
    )
    arm = Machine("linux", "arm64", "glibc", "2.36")
    assert site.findings(arm) == []


def test_a_folder_torch_without_a_torch_is_named(tmp_path):
    site = Site(tmp_path / ".venv")
    (site.folder / "torch").mkdir()
    (finding,) = site.findings()
    assert (finding.code, finding.blocking) == ("torch-damaged", True)


def test_leftovers_are_a_note_and_removing_them_a_step(site):
    for name in ("~orch", "~orch-2.1.0.dist-info"):
        (site.folder / name).mkdir()
    (finding,) = site.findings()
    assert (finding.id, finding.blocking) == ("F97", False)
    results = run_repairs(repair_steps([finding], site.venv), {}, SilentReporter())
    assert [result.message for result in results] == [None]
    assert not list(site.folder.glob("~*"))


def test_a_build_without_code_for_the_card_is_found_without_running_anything(site):
    card = Gpu(0, "NVIDIA GeForce GTX 1080", compute_capability=ComputeCapability(6, 1))
    machine = Machine("linux", "x86_64", "glibc", "2.36", gpus=(card,))
    assert site.findings(machine) == []
    (finding,) = found_in(machine, "2.14.1+cu130")
    assert (finding.code, finding.id) == ("no-code", "F37")


def test_an_environment_of_ours_is_repaired_from_its_own_lock(site):
    Marker("1", "pylock.cu126.toml", "0" * 64, "3.12", "2.14.1", "cu126", "f", {}).write(site.venv)
    (site.venv / "pylock.cu126.toml").touch()
    (site.folder / "torch" / "__init__.py").unlink()
    (finding,) = site.findings()
    lock = site.venv / "pylock.cu126.toml"
    step = f"uv pip install --python {site.venv}/bin/python -r {lock} --reinstall-package torch"
    assert str(finding.fixes[-1]) == step


def test_only_steps_in_this_environment_are_taken(site):
    python = site.venv / "bin" / "python"
    finding = site.findings  # the lines below are what a fix may hold
    assert finding() == []
    lines = {
        f"uv pip install --python {python} 'numpy<2'   # why": True,
        f"gpuinstall install --venv {site.venv} --replace": True,
        "uv pip install --python /usr/bin/python3 numpy": False,
        "gpuinstall install": False,
        "sudo apt-get install nvidia-driver-580-open && sudo reboot": False,
        f"uv pip install --python {python} numpy && sudo reboot": False,
        "rm -r /home/user/~important": False,
        "unset LD_LIBRARY_PATH": False,
    }
    for line, taken in lines.items():
        assert bool(repair_steps([_fix(line)], site.venv)) is taken, line


def _fix(line: str) -> Finding:
    from gpuinstall.base.finding import Finding

    return Finding("x", "x", fixes=(line,), where="environment")


def test_what_is_missing_is_named_by_its_specifier_alone():
    source = RepairSource(Path("/e"))
    asked = Requirement("numpy[extra]>=2; python_version > '3'")
    assert str(source.install(asked)) == "uv pip install --python /e/bin/python 'numpy>=2'"
