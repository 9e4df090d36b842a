from typing import Any

import pytest
import tomli

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.machine import Machine
from gpuinstall.base.versions import Backend
from gpuinstall.lock.uv.builds import (
    BuildSite,
    build_tools,
    check_builds,
    report_builds,
    source_builds,
    sync_settings,
)
from tests.lab.listener import Listener

FLASH = {
    "name": "flash-attn",
    "version": "2.8.3",
    "sdist": {"url": "https://files.example/f.tar.gz"},
}
SCATTER = {
    "name": "torch-scatter",
    "version": "2.1.2",
    "sdist": {"url": "https://files.example/s.tar.gz"},
}
WHEEL = {
    "name": "numpy",
    "version": "2",
    "wheels": [{"url": "https://files.example/n.whl"}],
}


@pytest.fixture
def site(tmp_path):
    """A machine with g++ and nvcc 12.6, 8 cores and 40 GB."""
    for name, said in (("g++", ""), ("nvcc", "release 12.6, V12.6.1")):
        (tmp_path / name).write_text(
            f"#!/bin/sh\n[ \"$*\" = --version ] && echo '{said}'\n", "utf-8"
        )
        (tmp_path / name).chmod(0o755)
    versions = {"torch": "2.14.1+cu126"}
    return BuildSite(
        Backend.parse("cu126"),
        versions,
        Machine("linux", "x86_64"),
        {"PATH": str(tmp_path)},
    )


def check(site, *packages, here=True):
    heard = Listener()
    builds = source_builds(packages)
    report_builds(builds, site, heard)
    check_builds(builds, site, here=here)
    return heard.steps


def test_what_has_no_wheel_is_built_from_what_it_has():
    packages: list[dict[str, Any]] = [
        WHEEL,
        FLASH,
        {"name": "a", "directory": {"path": "."}},
        {
            "name": "b",
            "vcs": {
                "type": "git",
                "url": "https://git.example/b",
                "commit-id": "0" * 40,
            },
        },
        {"name": "c", "archive": {"url": "https://files.example/c-1.tar.gz"}},
        {"name": "d", "archive": {"url": "https://files.example/d-1-py3-none-any.whl"}},
    ]
    assert [(build.package, build.origin) for build in source_builds(packages)] == [
        ("flash-attn", "its sdist"),
        ("a", "the folder ."),
        ("b", "commit 000000000000 of https://git.example/b"),
        ("c", "an archive"),
    ]


def test_compiler_and_memory_are_said_before(site):
    said = check(site, FLASH)[0].split(", ")
    assert said == [
        "Source flash-attn 2.8.3 is built from its sdist",
        "with nvcc of CUDA 12.6",
        "a C++ compiler",
        "9 GB of memory for each job (MAX_JOBS)",
        "torch below 2.14",
        "whose headers take C++17",
    ]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"environ": {"PATH": "/nowhere", "CUDA_HOME": "/nowhere"}}, "toolkit-missing"),
        ({"backend": Backend.parse("cu130")}, "toolkit-differs"),
        ({"backend": Backend.parse("cpu")}, "build-needs-gpu"),
    ],
)
def test_what_cannot_be_built_here_is_refused(site, change, code):
    with pytest.raises(NoBuildError) as caught:
        check(site._replace(**change), FLASH)
    assert caught.value.code == code
    assert caught.value.hint


def test_a_machine_without_a_c_compiler_is_refused(site, tmp_path):
    (tmp_path / "g++").unlink()
    with pytest.raises(NoBuildError) as caught:
        check(site, FLASH)
    assert caught.value.code == "compiler-missing"


def test_another_minor_of_cuda_serves_and_what_is_built_elsewhere_is_not_checked(
    site,
):
    assert check(site._replace(backend=Backend.parse("cu128")), FLASH)
    assert check(site._replace(backend=Backend.parse("cu130")), FLASH, here=False)


def test_what_compiles_for_both_is_built_for_the_cpu_without_a_toolkit(site, tmp_path):
    (tmp_path / "nvcc").unlink()
    assert check(site._replace(backend=Backend.parse("cpu")), SCATTER)


def test_a_package_that_is_not_known_is_only_announced(site):
    assert check(site, {**FLASH, "name": "cowsay", "version": "6"}) == [
        "Source cowsay 6 is built from its sdist"
    ]


def test_uv_builds_what_imports_torch_in_the_environment_with_its_tools(site):
    builds = source_builds([FLASH, {**FLASH, "name": "deepspeed"}])
    assert tomli.loads(sync_settings(builds, site))["pip"][
        "no-build-isolation-package"
    ] == ["flash-attn"]
    assert sync_settings((), site) == "index = []\n"
    with_index = tomli.loads(
        sync_settings(builds, site, "https://index.example/whl/cu126")
    )
    assert with_index["index"] == [
        {"url": "https://index.example/whl/cu126", "ignore-error-codes": [403]}
    ]
    assert "ninja" in build_tools([FLASH])
    assert build_tools([WHEEL]) == ()
