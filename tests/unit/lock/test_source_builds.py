from typing import Any

import pytest
import tomli

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.base.versions import Backend
from gpuinstall.lock.uv.builds import (
    BuildContext,
    check_builds,
    create_sync_settings,
    create_torch_entry,
    find_build_tools,
    find_source_builds,
    report_builds,
)
from tests.unit.lock.wheels_here import packages

HASHES = {"sha256": "0" * 64}


def with_sdist(name, version):
    """Return a package with only an sdist."""
    url = f"https://files.example/{name.replace('-', '_')}-{version}.tar.gz"
    sdist = {"url": url, "hashes": HASHES}
    [package] = packages({"name": name, "version": version, "sdist": sdist})
    return package


FLASH = with_sdist("flash-attn", "2.8.3")
SCATTER = with_sdist("torch-scatter", "2.1.2")
NUMPY = "https://files.example/numpy-2.0-py3-none-any.whl"
[WHEEL] = packages({"name": "numpy", "wheels": [{"url": NUMPY, "hashes": HASHES}]})
CPU, CU128, CU130 = map(Backend.parse, ("cpu", "cu128", "cu130"))


@pytest.fixture
def site(tmp_path):
    """Create a machine with g++ and nvcc 12.6."""
    for name, said in (("g++", ""), ("nvcc", "release 12.6, V12.6.1")):
        (tmp_path / name).write_text(
            f"#!/bin/sh\n[ \"$*\" = --version ] && echo '{said}'\n", "utf-8"
        )
        (tmp_path / name).chmod(0o755)
    return BuildContext(
        Backend.parse("cu126"),
        {"torch": "2.14.1+cu126"},
        Machine("linux", "x86_64"),
        {"PATH": str(tmp_path)},
    )


def test_package_without_wheel_is_built_from_source():
    repository = {
        "type": "git",
        "url": "https://git.example/b",
        "commit-id": "0" * 40,
    }
    others = packages(
        {"name": "a", "directory": {"path": "."}},
        {"name": "b", "vcs": repository},
        {
            "name": "c",
            "archive": {"url": "https://files.example/c-1.tar.gz", "hashes": HASHES},
        },
        {
            "name": "d",
            "archive": {
                "url": "https://files.example/d-1-py3-none-any.whl?a=1",
                "hashes": HASHES,
            },
        },
        {
            "name": "e",
            "archive": {
                "url": "https://files.example/e-1.tar.gz?x=.whl",
                "hashes": HASHES,
            },
        },
        {
            "name": "f",
            "sdist": {
                "name": "f-1.tar.gz",
                "url": "https://files.example/f-1-py3-none-any.whl",
                "hashes": HASHES,
            },
        },
    )
    assert {
        build.package: build.origin
        for build in find_source_builds([WHEEL, FLASH, *others])
    } == {
        "flash-attn": "its sdist",
        "a": "the folder .",
        "b": "commit 000000000000 of https://git.example/b",
        "c": "an archive",
        "e": "an archive",
        "f": "its sdist",
    }


def test_source_builds_without_compilers_are_rejected(site):
    bare = {"environ": {"PATH": "/nowhere", "CUDA_HOME": "/nowhere"}}
    rows: tuple[Any, ...] = (
        (FLASH, {}, None),
        # Another minor version of CUDA is compatible.
        (FLASH, {"backend": CU128}, None),
        (FLASH, {"backend": CU130}, "toolkit-differs"),
        (FLASH, {"backend": CPU}, "build-needs-gpu"),
        (FLASH, bare, "toolkit-missing"),
        # A package for both is built for the CPU without a toolkit.
        (SCATTER, {"backend": CPU}, None),
        (SCATTER, {"backend": CPU, **bare}, "compiler-missing"),
    )
    wrong = []
    for package, change, expected in rows:
        builds = find_source_builds([package])
        code = None
        try:
            check_builds(builds, replace(site, **change), here=True)
        except NoBuildError as error:
            code = error.hint and error.code
        if code != expected:
            wrong.append((package.name, change, code))
    assert wrong == []


def test_lock_for_another_machine_skips_compiler_check(site):
    elsewhere = replace(site, backend=CU130)
    check_builds(find_source_builds([FLASH]), elsewhere, here=False)


def test_build_that_imports_torch_disables_isolation(site):
    builds = find_source_builds([FLASH, with_sdist("deepspeed", "1.0")])
    index = "https://index.example/whl/cu126"
    indexes = [create_torch_entry(index, is_explicit=False)]
    settings = tomli.loads(create_sync_settings(builds, site, indexes))
    assert settings["pip"] == {"no-build-isolation-package": ["flash-attn"]}
    [row] = settings["index"]
    assert (row["url"], row["explicit"]) == (index, False)
    without = create_sync_settings((), site, [])
    assert tomli.loads(without) == {"index": [], "pip": {}}
    assert "ninja" in find_build_tools([FLASH])
    assert find_build_tools([WHEEL]) == ()


def test_build_notice_counts_omitted_environment_variables(site):
    lines = []

    class Quiet(Reporter):
        def notice(self, label, text):
            lines.append(f"{label} {text}")

    place = replace(site, environ={"GH_PAT": "s3cret", "MINE": "1"})
    packages = [with_sdist("x", "1.0")]
    report_builds(find_source_builds(packages), place, Quiet())
    report_builds(find_source_builds(packages, requested=()), place, Quiet())
    start = "Source x 1.0 is built from its sdist, without"
    assert lines == [
        f"{start} 1 environment variable",
        f"{start} 2 environment variables",
    ]
