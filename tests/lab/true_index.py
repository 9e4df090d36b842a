"""Fills a stand-in torch index with every build of the catalogue, each with what its release truly requires.

torch, torchvision, torchaudio and triton of the default index are real releases; their requirements are read there
and written into small wheels of the same names, one for each backend and architecture. What belongs to one backend alone (the
maker's libraries) is kept for the backend that the default index itself serves; elsewhere it is CUDA's runtime and
cuBLAS of the build's own CUDA, and the cuDNN that the catalogue has for it. What ``ON_EVERY_PAGE`` names is listed for
every backend, with the default index's own files: which the true index has is not known.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.version import Version

from gpuinstall.base.versions import CPU
from gpuinstall.catalog import Build, Catalog, Wheel
from gpuinstall.catalog.listing import default_wheels
from gpuinstall.sources.session import Session
from gpuinstall.wheels.learned.reader import Reader
from gpuinstall.wheels.learned.store import learned_store
from tests.lab.host import Answer
from tests.lab.index import StandInIndex
from tests.lab.stub_torch import modules
from tests.lab.wheels import make_wheel

ARCHITECTURES = ("x86_64", "aarch64")
TRITON_ON_AARCH64 = Version("2.9")
"""The first torch that requires triton on aarch64."""
WITH_A_RELEASE = ("torch", "torchvision", "torchaudio", "triton")
ON_EVERY_PAGE = ("torchao", "torchcodec", "torchdata", "torchtext", "xformers")
OF_A_BACKEND = ("nvidia-", "cuda-", "cuda_")


class Needs(NamedTuple):
    """What a release requires, and the Pythons it is for."""

    requires: tuple[str, ...] = ()
    requires_python: str | None = None


def true_index(folder: Path, catalog: Catalog, session: Session, minor: str) -> Path:
    """Make the wheels of Python ``minor`` on Linux; return the folder to serve."""
    needs = _read_needs(session, minor)
    python = f"cp{minor.replace('.', '')}"
    builds = [
        build for arch in ARCHITECTURES for build in catalog.builds_for("linux", arch)
    ]
    for build in builds:
        if minor not in build.pythons or build.learned is not None:
            continue
        page = folder / "whl" / build.backend.tag
        for package in ON_EVERY_PAGE:
            make_wheel(page, package, "0")
        if ("torch", str(build.torch)) in needs:
            tag = f"{python}-{python}-manylinux_2_28_{build.arch}"
            _make(page, build, catalog, needs, tag)
    return folder


def elsewhere(session: Session) -> dict[str, str]:
    """The pages of the packages that are on every page, by their names; they lead to the files of the default index."""
    sources = replace(
        session.sources, default_index=session.default_index, find_links=()
    )
    return {
        package: "".join(map(_link, default_wheels(sources, session.client, package)))
        for package in ON_EVERY_PAGE
    }


def lead(index: StandInIndex, pages: Mapping[str, str]):
    """Have an index answer with these pages, whatever the backend."""
    respond = index.torch.respond

    def answered(path: str, headers: dict[str, str]) -> Answer:
        own = (
            pages.get(path.rstrip("/").rpartition("/")[2])
            if path.endswith("/")
            else None
        )
        return Answer(200, own.encode(), "text/html") if own else respond(path, headers)

    index.torch.respond = answered


def _link(wheel: Wheel) -> str:
    address = wheel.url.partition("#")[0]
    metadata = ""
    if wheel.metadata_sha256:
        metadata = f' data-core-metadata="sha256={wheel.metadata_sha256}"'
    return f'<a href="{address}#sha256={wheel.sha256}"{metadata}>{wheel.filename}</a><br/>\n'


def _make(
    folder: Path,
    build: Build,
    catalog: Catalog,
    needs: dict[tuple[str, str], Needs],
    tag: str,
):
    """Make the wheels of one build and of what belongs to it."""
    release = catalog.releases[build.torch]
    label = f"+{build.backend}" if build.labelled else ""
    has_triton = build.arch == "x86_64" or build.torch >= TRITON_ON_AARCH64
    triton = release.triton if has_triton and build.backend != CPU else None
    version = f"{build.torch}{label}"
    torch = needs["torch", str(build.torch)]
    make_wheel(
        folder,
        "torch",
        version,
        tag,
        requires=_torch_requires(torch, build, triton),
        requires_python=torch.requires_python,
        modules=modules(version, build.backend.tag),
    )
    companions = [("torchvision", version) for version in release.torchvision]
    companions += [("torchaudio", version) for version in release.torchaudio]
    for package, version in companions:
        found = needs.get((package, version))
        known = catalog.companions.get((package, version))
        if found is None or (known is not None and not known.loads_in(build)):
            continue
        is_labelled = known is None or build.platform not in known.unlabelled
        name = f"{version}{label}" if is_labelled else version
        make_wheel(folder, package, name, tag, requires=found.requires)
    if triton:
        allowed = SpecifierSet(triton)
        versions = [version for package, version in needs if package == "triton"]
        released = [version for version in versions if allowed.contains(version)]
        for version in released or [triton.lstrip("=~")]:
            requires = needs.get(("triton", version), Needs()).requires
            make_wheel(folder, "triton", version, tag, requires=requires)


def _torch_requires(torch: Needs, build: Build, triton: str | None) -> list[str]:
    """Return what a build requires, made from what its release on the default index does."""
    requires = [text for text in torch.requires if not text.startswith("triton")]
    if not build.on_default_index:
        requires = [text for text in requires if not text.startswith(OF_A_BACKEND)]
    if triton:
        requires.append(f"triton{triton}")
    if not build.on_default_index:
        requires += _makers_libraries(build)
    return requires


def _makers_libraries(build: Build) -> list[str]:
    """Return what a build for CUDA pins of its maker's libraries, as far as the catalogue knows."""
    if build.backend.kind != "cuda":
        return []
    major, minor = build.toolkit or (0, 0)
    label = f"-cu{major}" if major < 13 else ""
    version = f"{major}.{minor}.*" if major == 12 else f"{major}.*"
    cudnn = dict(build.libraries).get("cudnn")
    pin = f"=={cudnn}" if cudnn else ""
    return [
        f"nvidia-cuda-runtime{label}=={version}",
        f"nvidia-cublas{label}=={version}",
        f"nvidia-cudnn-cu{major}{pin}",
    ]


def _read_needs(session: Session, minor: str) -> dict[tuple[str, str], Needs]:
    """What each release of the family on the default index requires."""
    sources = replace(
        session.sources, default_index=session.default_index, find_links=()
    )
    fitting = _fitting(minor)
    wheels = [
        wheel
        for package in WITH_A_RELEASE
        for wheel in default_wheels(sources, session.client, package)
        if not fitting.isdisjoint(wheel.tags)
    ]
    with ThreadPoolExecutor(8) as pool:
        read = pool.map(lambda wheel: _needs(wheel, session), wheels)
        return {
            (wheel.package, str(wheel.version)): needs
            for wheel, needs in zip(wheels, read, strict=True)
        }


def _fitting(minor: str) -> set[Tag]:
    """The tags of the wheels whose requirements are read: for Python ``minor`` on Linux x86_64 with glibc 2.28."""
    version = tuple(map(int, minor.split(".")))
    systems = [f"manylinux_2_{glibc}_x86_64" for glibc in range(28, 4, -1)]
    # torch before 2.7 has none but the oldest of these.
    systems += [f"manylinux{release}_x86_64" for release in (2014, 2010, 1)]
    return {
        *cpython_tags(version, platforms=systems),
        *compatible_tags(version, platforms=systems),
    }


def _needs(wheel: Wheel, session: Session) -> Needs:
    reader = Reader(session.sources, session.client, learned_store(), session.reporter)
    metadata = reader.metadata(wheel)
    return Needs(
        tuple(metadata.get_all("Requires-Dist", ())), metadata["Requires-Python"]
    )
