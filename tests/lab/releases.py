"""Small wheels with the names, tags, and requirements of real releases."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli

from tests.lab.stub_torch import modules
from tests.lab.wheelhouse import pack_installed
from tests.lab.wheels import make_wheel

LINUX, ARM, WINDOWS, MAC = (
    "linux-x86_64",
    "linux-aarch64",
    "windows-x86_64",
    "macos-arm64",
)
EVERYWHERE = (LINUX, ARM, WINDOWS, MAC)
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


@dataclass(frozen=True)
class Release:
    """A torch release with the versions of its companions."""

    torch: str
    cuda: tuple[str, ...]
    """Tags of the release's builds for Linux, without ``cpu``."""
    torchvision: str
    torchaudio: str
    triton: str
    pythons: tuple[str, ...] = PYTHONS
    default: str = "cpu"
    """Tag of the release's build on the default index."""
    windows: tuple[str, ...] | None = None
    """Tags for Windows, or None if they are the same as for Linux."""
    arm: tuple[str, ...] = ()


def _read() -> Iterator[Release]:
    text = (Path(__file__).parents[1] / "data" / "releases.toml").read_text("utf-8")
    for row in tomli.loads(text)["release"]:
        facts: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in row.items()
        }
        yield Release(**facts)


OF_NUMPY_1, *RELEASES = _read()
AUDIO_TAGS = ("cpu", "cu118", "cu121", "cu126", "cu128", "cu130")
"""The last torchaudio release has no builds for newer toolkits."""

_WHEEL_TAGS = {
    LINUX: "manylinux_2_28_x86_64",
    ARM: "manylinux_2_28_aarch64",
    WINDOWS: "win_amd64",
    MAC: "macosx_11_0_arm64",
}


def catalog_index(
    folder: Path,
    releases: Iterable[str] | None = None,
    *,
    platforms: Iterable[str] = EVERYWHERE,
    pythons: Iterable[str] = PYTHONS,
) -> Path:
    """Create the wheels of releases and dependencies; return the folder."""
    chosen = RELEASES
    if releases is not None:
        versions = set(releases)
        chosen = [
            release for release in (OF_NUMPY_1, *RELEASES) if release.torch in versions
        ]
    served = set(pythons)
    for release in chosen:
        for platform in platforms:
            for python in release.pythons:
                if python not in served:
                    continue
                tag = _wheel_tag(release, platform, python)
                _make_builds(folder / "whl", release, platform, tag)
                _make_default(folder / "simple", release, platform, tag)
    _make_everything_else(folder / "simple", chosen)
    return folder


def _make_builds(root: Path, release: Release, platform: str, wheel_tag: str):
    for tag in _tags(release, platform):
        local = "" if platform == MAC else f"+{tag}"
        _make_family(root / tag, release, tag, local, wheel_tag)
        if tag != "cpu" and platform in {LINUX, ARM}:
            make_wheel(root / tag, "triton", release.triton, wheel_tag)


def _make_default(root: Path, release: Release, platform: str, wheel_tag: str):
    tag = "cpu"
    if platform in {LINUX, ARM} and release.default in _tags(release, platform):
        tag = release.default
    _make_family(root, release, tag, "", wheel_tag)
    if tag != "cpu":
        make_wheel(root, "triton", release.triton, wheel_tag)


def _make_family(folder: Path, release: Release, tag: str, local: str, wheel_tag: str):
    make_wheel(
        folder,
        "torch",
        release.torch + local,
        wheel_tag,
        requires=_requirements(release, tag),
        requires_python=f">={release.pythons[0]}",
        modules=modules(release.torch + local, tag),
    )
    pin = (
        "torch>=2.14.0"
        if release.torchvision == "0.29.2"
        else f"torch=={release.torch}"
    )
    make_wheel(
        folder,
        "torchvision",
        release.torchvision + local,
        wheel_tag,
        requires=["numpy", pin],
    )
    if tag in AUDIO_TAGS:
        pins = [] if release.torchaudio == "2.11.0" else [f"torch=={release.torch}"]
        make_wheel(
            folder, "torchaudio", release.torchaudio + local, wheel_tag, requires=pins
        )


def _requirements(release: Release, tag: str) -> list[str]:
    always = ["filelock", "typing-extensions>=4.10.0"]
    if tag == "cpu":
        return always
    linux = 'platform_system == "Linux"'
    return [
        *always,
        f"nvidia-cudnn-cu{tag[2:4]}==9.10.2.21; {linux}",
        f"triton=={release.triton}; {linux}",
    ]


def _make_everything_else(folder: Path, releases: list[Release]):
    make_wheel(folder, "filelock", "3.20.0")
    make_wheel(
        folder, "typing-extensions", "4.15.0", modules={"typing_extensions.py": ""}
    )
    make_wheel(folder, "numpy", "2.3.4", requires_python=">=3.10")
    make_wheel(folder, "cowsay", "6.1")
    # Debian's Python has no bundled pip for new environments.
    pack_installed("pip", folder)
    for major in {tag[2:4] for release in releases for tag in release.cuda}:
        make_wheel(
            folder,
            f"nvidia-cudnn-cu{major}",
            "9.10.2.21",
            modules={"nvidia/cudnn/lib/libcudnn.txt": ""},
        )


def _tags(release: Release, platform: str) -> tuple[str, ...]:
    windows = release.cuda if release.windows is None else release.windows
    cuda = {LINUX: release.cuda, ARM: release.arm, WINDOWS: windows, MAC: ()}
    return ("cpu", *cuda[platform])


def _wheel_tag(release: Release, platform: str, python: str) -> str:
    interpreter = f"cp{python.replace('.', '')}"
    abi = "none" if platform == MAC else interpreter
    tag = _WHEEL_TAGS[platform]
    # Before manylinux_2_28, wheels for Linux declared no glibc.
    if release.torch in {"2.2.2", "2.3.1"} and platform in {LINUX, ARM}:
        tag = platform.replace("-", "_")
    return f"{interpreter}-{abi}-{tag}"
