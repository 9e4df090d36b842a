"""The rows as the loader reads them, against the same facts in another format."""

from functools import cache

from gpuinstall.base.backend import CPU
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
    rows = [(torch, row) for torch, release in releases.items() for row in release["builds"]]
    return [(torch, row, our(torch, row["tag"], row["platform"])) for torch, row in rows]


def our(torch, backend, platform):
    os, arch = PLATFORMS[platform]
    return ours()[torch, backend, os, arch]


def python(tag):
    """``cp313t`` as ``3.13t``, ``cp37m`` as ``3.7``, a remark in brackets left out."""
    digits = tag.partition(" ")[0].removeprefix("cp").removesuffix("m")
    return f"{digits[0]}.{digits[1:]}"


def test_every_cuda_build_is_there_and_no_other():
    assert len(listed()) == sum(build.backend != CPU for build in frozen_catalog().builds)


def test_every_cuda_build_has_the_code_of_the_facts():
    for torch, row, build in listed():
        assert list(build.code) == [*row["sass"], *row["ptx"]], (torch, row["tag"])


def test_every_cuda_build_has_the_toolkit_the_pythons_and_the_confidence_of_the_facts():
    for torch, row, build in listed():
        assert row["cuda_toolkit"].startswith(".".join(map(str, build.toolkit or ()))), (
            torch,
            row["tag"],
        )
        assert list(build.pythons) == [python(tag) for tag in row["pythons"]], (
            torch,
            row["tag"],
            row["platform"],
        )
        assert build.confidence == row["confidence"]
        assert list(build.evidence) == row["evidence"]
        assert build.on_default_index == row["on_pypi"]
        assert build.labelled == row["local_version"].startswith("+")


def test_every_cudnn_floor_is_that_of_the_facts():
    floors = {
        build.name: (
            str(frozen_catalog().drivers.cudnn_floor(dict(build.libraries)["cudnn"])),
            row["cudnn_min_cc"],
        )
        for _, row, build in listed()
        if "cudnn_min_cc" in row
    }

    assert floors
    assert {name: floor for name, floor in floors.items() if floor[0] != floor[1]} == {}


def test_every_cudnn_ceiling_is_that_of_the_facts():
    for torch, row, build in listed():
        cudnn = dict(build.libraries).get("cudnn")
        ceiling = cudnn and frozen_catalog().drivers.cudnn_ceiling(
            cudnn, build.toolkit and build.toolkit[0]
        )
        assert str(ceiling or None) == str(row.get("cudnn_max_cc")), (torch, row["tag"])


def test_the_first_driver_of_each_chip_is_that_of_the_facts():
    known = {str(chip): floor for chip, floor in frozen_catalog().drivers.first_drivers.items()}

    assert {
        chip: str(floor.linux) for chip, floor in known.items() if chip in facts()["first_driver"]
    } == {chip: first["linux"] for chip, first in facts()["first_driver"].items()}
    for chip, first in facts()["first_driver"].items():
        assert str(known[chip].windows) == (first["windows"] or first["linux"].split(".")[0])


def test_run_time_compilers_know_a_chip_from_the_toolkit_of_the_facts_on():
    compilers = frozen_catalog().drivers.run_time_compilers

    assert {str(chip): str(row.cuda) for chip, row in compilers.items()} == facts()[
        "run_time_compilers"
    ]


def test_companions_have_the_wheels_of_the_facts():
    names = {platform: f"{os}_{arch}" for platform, (os, arch) in PLATFORMS.items()}
    for package, versions in facts()["companions"].items():
        for version, wheels in versions.items():
            known = frozen_catalog().companions[package, version]
            told = {names[platform] for platform in wheels}
            assert known.platforms - {"macos_x86_64"} == told, (package, version)
            for tag in (
                tag for tags in wheels.values() for tag in tags if tag not in {"py3", "cp36m"}
            ):
                assert known.has_wheel(python(tag.replace("+", ""))), (package, version, tag)
            assert ("any" in known.pythons) == (wheels["linux_x86_64"] == ["py3"])


def test_companions_are_without_a_label_where_the_facts_say_so():
    told = {
        (package, each)
        for package, found in facts()["unlabelled_on_aarch64"].items()
        for each in found
    }
    known = {key for key, wheels in frozen_catalog().companions.items() if wheels.unlabelled}

    assert told <= known
    assert {key for key in known if key[1] in facts()["companions"][key[0]]} == told


def test_the_last_torchaudio_is_built_for_the_backends_of_the_facts():
    last, told = frozen_catalog().companions["torchaudio", "2.11.0"], facts()["torchaudio_2.11.0"]
    unseen = {backend.tag for backend in last.unverified["linux_aarch64"]}

    assert {
        backend.tag for backend in last.backends or () if backend.kind in {"cpu", "cuda"}
    } == set(told["tags"])
    assert set(told["tags"]) - unseen == set(told["aarch64"])


def test_every_release_has_its_date_and_its_default_builds():
    for torch, release in facts()["torch_releases"].items():
        known = next(
            found for version, found in frozen_catalog().releases.items() if str(version) == torch
        )
        assert known.released == release["released"]
        for platform, served in release["served"].items():
            cuda = (served["cuda"] or "").strip().removeprefix("None")
            backend = f"cu{cuda.replace('.', '')}" if cuda else CPU.tag
            build = our(torch, backend, platform)
            assert build.on_default_index
            assert [found for found in build.pythons if found[:4] != "3.15"] == [
                found for found in map(python, served["pythons"]) if found[:4] != "3.15"
            ]


def test_every_glibc_floor_is_that_of_the_platform_tag():
    floors = {"manylinux1": "2.17", "manylinux2014": "2.17", "manylinux_2_28": "2.28"}
    for torch, release in facts()["torch_releases"].items():
        for platform in ("linux_x86_64", "linux_aarch64"):
            tag = release["served"][platform]["wheel_tag"].removesuffix(platform[5:])
            build = our(torch, CPU.tag, platform)
            assert build.glibc == floors[tag.rstrip("_")], (torch, platform)


def test_cpu_builds_are_where_the_facts_have_them():
    platforms = {
        (torch, PLATFORMS[platform])
        for torch, release in facts()["torch_releases"].items()
        for platform in release["served"]
    }
    arm = {
        (str(build.torch), (build.os, build.arch))
        for build in frozen_catalog().builds
        if build.arch == "arm64"
    }
    cpu = {(torch, (os, arch)) for torch, backend, os, arch in ours() if backend == CPU.tag}

    assert cpu == platforms | {found for found in arm if found[1] == ("windows", "arm64")}
    assert ("2.7.1", ("windows", "arm64")) in cpu
    assert ("2.6.0", ("windows", "arm64")) not in cpu


def test_companions_are_those_of_the_facts():
    for torch, release in facts()["torch_releases"].items():
        known = next(
            found for version, found in frozen_catalog().releases.items() if str(version) == torch
        )
        for name, versions in (
            ("torchvision", known.torchvision),
            ("torchaudio", known.torchaudio),
        ):
            told = " ".join(release["companions"][name])
            assert versions, (torch, name)
            assert all(version in told or torch == "2.14.0" for version in versions), (torch, name)
        pins = release["companions"]["triton"]
        assert bool(pins) == bool(known.triton)
        assert not known.triton or known.triton in pins[0].replace(" ", "")


def test_driver_branches_are_those_of_the_facts():
    told = {int(branch): cuda for branch, cuda in facts()["driver_branch_to_cuda"].items()}

    assert {branch: str(cuda) for branch, cuda in frozen_catalog().drivers.branches} == told


def test_measured_drivers_report_the_cuda_of_their_branch():
    branches = dict(frozen_catalog().drivers.branches)

    for driver, measured in facts()["measured_drivers"].items():
        cuda = branches[int(driver.split(".")[0])]
        assert cuda.major * 1000 + cuda.minor * 10 == measured
