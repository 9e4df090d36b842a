"""The libraries of cuda-compat: where manifests list their archive, and what comes out of a tar or a folder."""

import io
import json
import tarfile

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.environments.cuda_compat.package import (
    CompatArchive,
    library_version,
    listed_archive,
    unpack_libraries,
)
from tests.lab.cuda_compat import TARS, make_tar

LINKS = {
    "libcuda.so": "libcuda.so.1",
    "libcuda.so.1": "libcuda.so.580.95.05",
    "libcuda.so.580.95.05": "",
    "libnvidia-ptxjitcompiler.so.1": "libnvidia-ptxjitcompiler.so.580.95.05",
    "libnvidia-ptxjitcompiler.so.580.95.05": "",
}


@pytest.fixture
def libraries(tmp_path):
    """The files of the package: their contents do not count here."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    for name, link in LINKS.items():
        file = folder / name
        if link:
            file.symlink_to(link)
        else:
            file.write_bytes(name.encode() * 1000)
    return folder


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "unpacked"
    folder.mkdir()
    return folder


def unpacked(archive, place):
    unpack_libraries(archive, place)
    return {path.name for path in place.iterdir()}


def fault(archive, place):
    with pytest.raises(InstallationError) as raised:
        unpack_libraries(archive, place)
    return raised.value


@pytest.mark.parametrize("name", TARS)
def test_every_tar_gives_the_same_libraries_and_is_damaged_if_it_was_cut(
    name, libraries, tmp_path, place
):
    archive = make_tar(libraries, tmp_path / name)

    assert unpacked(archive, place) == LINKS.keys()
    assert (place / "libcuda.so").read_bytes() == b"libcuda.so.580.95.05" * 1000
    assert str(library_version(place)) == "580.95.05"

    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])
    cut = tmp_path / "cut"
    cut.mkdir()
    assert fault(archive, cut).code == "cuda-compat-archive"


def test_a_folder_may_have_them_deep_inside(libraries, tmp_path, place):
    outer = tmp_path / "unpacked by hand"
    inner = outer / "usr/local/cuda-13.0/compat"
    inner.parent.mkdir(parents=True)
    libraries.rename(inner)

    assert unpacked(outer, place) == LINKS.keys()
    assert (place / "libcuda.so.1").is_symlink()


def test_a_package_of_a_distribution_is_unpacked_by_hand(tmp_path, place):
    package = tmp_path / "cuda-compat.deb"
    package.write_bytes(b"!<arch>\ndebian-binary   ")

    error = fault(package, place)
    assert error.code == "cuda-compat-archive"
    assert (error.hint or "").splitlines() == [
        "dpkg-deb -x cuda-compat.deb cuda-compat   # in its folder",
        "export GPUINSTALL_CUDA_COMPAT_FROM=$PWD/cuda-compat",
    ]


def test_no_path_and_no_link_of_an_archive_leads_elsewhere(tmp_path, place):
    archive = tmp_path / "strange.tar"
    outside = tmp_path / "outside"
    outside.mkdir()
    with tarfile.open(archive, "w") as tar:
        for name in (
            "../outside/libcuda.so.1",
            "/outside/evil.so",
            "compat/../../libnvidia-nvvm70.so.4",
        ):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"code"))
        link = tarfile.TarInfo("compat/libcuda.so")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        tar.addfile(link)

    assert unpacked(archive, place) == {"libcuda.so.1", "libnvidia-nvvm70.so.4"}
    assert list(outside.iterdir()) == []


def test_what_has_no_libcuda_is_refused(tmp_path, place):
    (tmp_path / "empty").mkdir()
    text = tmp_path / "page.html"
    text.write_text("<html>not found</html>")

    for archive in (tmp_path / "empty", text):
        assert fault(archive, place).code == "cuda-compat-archive"


@pytest.mark.parametrize(
    ("size", "reason"),
    [(9 << 30, "unpacks to more than 2 GiB"), (-1024, "is no complete tar")],
)
def test_a_size_without_bounds_ends_before_it_is_unpacked(
    size, reason, tmp_path, place
):
    archive = tmp_path / "endless.tar"
    header = tarfile.TarInfo("README")
    header.size = size
    with archive.open("wb") as file:
        # Neither size has an octal form.
        file.write(header.tobuf(tarfile.GNU_FORMAT))
        file.truncate(max(size, 1024))

    assert reason in str(fault(archive, place))


MANIFEST = "https://index.example/compute/cuda/redist/redistrib_13.3.0.json"
SHA256 = "39a959840ed06b37ccde9b84c083babe415160c6907517cefc463da6d7dc2342"


def listing(entry, platform="linux-x86_64", **facts):
    component = {
        "license": "NVIDIA Driver",
        "version": "610.43.02",
        platform: entry,
        **facts,
    }
    return json.dumps({"release_label": "13.3.0", "cuda_compat": component})


def file(name, sha256=SHA256):
    return {
        "relative_path": f"cuda_compat/{name}",
        "sha256": sha256,
        "size": "101285400",
    }


def test_the_newest_variant_of_this_processor_is_taken():
    text = listing({"cuda13.3": file("new.tar.xz"), "cuda12.9": file("old.tar.xz")})

    assert listed_archive(text, MANIFEST, "x86_64") == CompatArchive(
        "https://index.example/compute/cuda/redist/cuda_compat/new.tar.xz",
        SHA256,
        101285400,
        "NVIDIA Driver",
    )
    assert listed_archive(text, MANIFEST, "aarch64") is None


def test_a_manifest_without_variants_is_read_too():
    text = listing(file("only.tar.xz"), "linux-sbsa")
    found = listed_archive(text, MANIFEST, "aarch64")

    assert found
    assert found.address.endswith("/redist/cuda_compat/only.tar.xz")


def test_what_is_no_such_manifest_lists_nothing():
    texts = [
        "<html>",
        "[]",
        "{}",
        json.dumps({"cuda_compat": {"linux-aarch64": file("of a Jetson")}}),
        listing({"cuda13.3": file("x", sha256="none")}),
        listing({}),
        listing("text"),
    ]

    assert [listed_archive(text, MANIFEST, "x86_64") for text in texts] == [None] * len(
        texts
    )


def test_it_is_named_with_its_size_and_its_licence():
    archive = CompatArchive(
        "https://index.example/a.tar.xz", SHA256, 101285400, "NVIDIA Driver"
    )

    assert (
        str(archive)
        == "https://index.example/a.tar.xz · 101 MB · licence: NVIDIA Driver"
    )
