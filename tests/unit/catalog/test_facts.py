"""The rows as the loader reads them, against the same facts in another format."""

from functools import cache

from gpuinstall.base.versions import CPU
from tests.frozen import facts, frozen_catalog

PLATFORMS = {
    "linux_x86_64": ("linux", "x86_64"),
    "linux_aarch64": ("linux", "aarch64"),
    "win_amd64": ("windows", "x86_64"),
    "macos_arm64": ("macos", "arm64"),
    "macos_x86_64": ("macos", "x86_64"),
}


@cache
def ours():
    return {
        (str(build.torch), build.backend.tag, build.os, build.arch): build
        for build in frozen_catalog().builds
    }


def listed():
    """Each CUDA build of the facts beside ours."""
    releases = facts()["torch_releases"]
    rows = [
        (torch, row) for torch, release in releases.items() for row in release["builds"]
    ]
    return [
        (torch, row, our(torch, row["tag"], row["platform"])) for torch, row in rows
    ]


def our(torch, backend, platform):
    os, arch = PLATFORMS[platform]
    return ours()[torch, backend, os, arch]


def python(tag):
    """``cp313`` as ``3.13``, ``cp37m`` as ``3.7``, a remark in brackets left out."""
    digits = tag.partition(" ")[0].removeprefix("cp").removesuffix("m")
    return f"{digits[0]}.{digits[1:]}"


def test_every_cuda_build_has_the_toolkit_the_pythons_and_the_confidence_of_the_facts():
    for torch, row, build in listed():
        assert row["cuda_toolkit"].startswith(
            ".".join(map(str, build.toolkit or ()))
        ), (
            torch,
            row["tag"],
        )
        names = map(python, row["pythons"])
        pythons = [name for name in names if not name.endswith("t")]
        assert list(build.pythons) == pythons, (
            torch,
            row["tag"],
            row["platform"],
        )
        assert (build.absent == "unverified") == (row["confidence"] == "unverified")
        assert list(build.evidence) == row["evidence"]
        assert build.on_default_index == row["on_pypi"]
        assert build.labelled == row["local_version"].startswith("+")


def test_every_release_has_its_date_and_its_default_builds():
    for torch, release in facts()["torch_releases"].items():
        known = next(
            found
            for version, found in frozen_catalog().releases.items()
            if str(version) == torch
        )
        assert known.released == release["released"]
        for platform, served in release["served"].items():
            cuda = (served["cuda"] or "").strip().removeprefix("None")
            backend = f"cu{cuda.replace('.', '')}" if cuda else CPU.tag
            build = our(torch, backend, platform)
            assert build.on_default_index
            assert [found for found in build.pythons if found[:4] != "3.15"] == [
                found
                for found in map(python, served["pythons"])
                if found[:4] != "3.15" and not found.endswith("t")
            ]
