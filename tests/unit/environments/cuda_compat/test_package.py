"""Where the archive of cuda-compat is: what manifests of NVIDIA's redistributables list."""

import json

from gpuinstall.environments.cuda_compat.package import CompatArchive, listed_archive

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
