"""Which files for Windows are looked at: made in the forms that their publishers use; the pages were not asked live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from gpuinstall.api import choose
from gpuinstall.catalog import Wheel, load_catalog
from gpuinstall.extensions.choice import Surroundings, choose_extension
from gpuinstall.extensions.rows import load_extensions
from gpuinstall.lock.target import Target
from gpuinstall.plan import Plan
from gpuinstall.request import Request
from gpuinstall.vendors import rules_for
from gpuinstall.words import machine_in_words

if TYPE_CHECKING:
    from gpuinstall.catalog import Build
    from gpuinstall.extensions.choice import ExtensionChoice
    from gpuinstall.extensions.rows import ExtensionFile
    from gpuinstall.learned.row import LearnedRow

# From facts of what users install: the forms are real, the numbers are of several releases.
NAMES = [
    ("nunchaku", "nunchaku-1.2.1+cu130torch2.13-cp312-cp312-win_amd64.whl", "13.0", "2.13"),
    ("nunchaku", "nunchaku-1.3.0+cu13.0torch2.11-cp312-cp312-win_amd64.whl", "13.0", "2.11"),
    ("flash-attn", "flash_attn-2.8.3+cu132torch2.13-cp312-cp312-win_amd64.whl", "13.2", "2.13"),
    (
        "flash-attn",
        "flash_attn-2.8.3+cu128torch2.9.0cxx11abiFALSE-cp312-cp312-win_amd64.whl",
        "12.8",
        "2.9",
    ),
    (
        "sageattention",
        "sageattention-2.2.0+cu130torch2.10.0andhigher.post6-cp310-abi3-win_amd64.whl",
        "13.0",
        "2.10",
    ),
    (
        "spas-sage-attn",
        "spas_sage_attn-0.1.0+cu130torch2.9.0andhigher.post4-cp39-abi3-win_amd64.whl",
        "13.0",
        "2.9",
    ),
]


def file_named(name: str, filename: str) -> ExtensionFile:
    table = load_extensions()
    [*_, source] = table.rows[name].sources
    package, version, _, tags = parse_wheel_filename(filename)
    url = f"https://files.example/{filename}"
    wheel = Wheel(package, version, filename, url, tags, source=source.id)
    return table.file(wheel, source)


@pytest.mark.parametrize(("name", "filename", "cuda", "torch"), NAMES)
def test_the_names_tell_cuda_and_torch(name: str, filename: str, cuda: str, torch: str) -> None:
    file = file_named(name, filename)

    assert (file.cuda, file.torch) == (cuda, torch)
    assert file.and_newer == ("andhigher" in filename)


def chosen(torch: str, gpu: str = "RTX 4090") -> ExtensionChoice:
    catalog = load_catalog()
    there = machine_in_words((gpu,), "580.88", os="windows", arch="x86_64")
    plan = choose(there, Request((f"torch=={torch}",), python="3.12"), catalog)
    assert isinstance(plan, Plan)
    tags = frozenset(Target("cu130", os="windows").tags("3.12"))
    rules = rules_for(there, catalog, {"cuda"})
    here = Surroundings(plan.runnable, [(rules, gpu) for gpu in there.gpus], tags)

    def read(file: ExtensionFile, build: Build) -> LearnedRow:
        raise AssertionError((file, build))

    files = [file_named(name, filename) for name, filename, *_ in NAMES if name == "sageattention"]
    return choose_extension(load_extensions().rows["sageattention"], files, here, read)


def test_a_file_for_newer_torches_too_is_none_for_an_older_one() -> None:
    [rejected] = chosen("2.9.1").rejected

    assert rejected.reason.code in {"other-torch", "other-cuda"}


@pytest.mark.parametrize(("torch", "minor"), [("2.7.1", "3.3"), ("2.9.1", "3.5")])
def test_triton_for_windows_goes_with_the_triton_of_torch(torch: str, minor: str) -> None:
    catalog = load_catalog()

    assert catalog.triton_for_windows(Version(torch)) == (f"triton-windows=={minor}.*",)
