"""Selection of extension files for Windows."""

from pathlib import Path

from gpuinstall.base.request import Request
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.extensions import (
    Extension,
    ExtensionSource,
    TorchKey,
    list_files,
    load_extensions,
)
from gpuinstall.catalog.pages import parse_folder
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.extensions import ExtensionChooser
from gpuinstall.lock.resolve.question import create_question
from gpuinstall.machine.options import machine_from_options
from gpuinstall.sources.web import Client
from gpuinstall.wheels.learned.row import WheelRow
from gpuinstall.wheels.needs import TorchNeeds
from tests.lab.host import NOT_FOUND, Host
from tests.lab.own_sources import read_sources


def file_named(name, filename):
    table = load_extensions()
    [*_, source] = table.rows[name].sources
    (wheel,) = parse_folder([filename], Path("/wheels"), source.id)
    return table.parse_file(wheel, source)


def chosen(torch, files, row=None):
    """Select a file on an RTX 4090; ``row`` is the content of each wheel."""
    there = machine_from_options(("RTX 4090",), "580.88", os="windows", arch="x86_64")
    request = Request((f"torch=={torch}", "flash-attn"), python="3.12")
    lock_request = LockRequest(there, request, load_catalog())

    def read(file, build, _environment, depth):
        assert row, (file, build, depth)
        yield row

    chooser = ExtensionChooser(create_question(lock_request, lock_request.plan), read)
    return chooser.choose(files)


def empty_row(*requires, kind):
    """Return an inspected wheel without GPU code."""
    return WheelRow(
        package="painter",
        version="1",
        backend="cu130",
        platform="windows-x86_64",
        file="painter.whl",
        url="https://files.example/painter.whl",
        sha256=None,
        size=1,
        bytes=1,
        learned="2026-11-22T00:00:00+00:00",
        requires=requires,
        torch=TorchNeeds(kind),
    )


def test_extension_for_newer_torch_is_rejected():
    filename = (
        "sageattention-2.2.0+cu130torch2.10.0andhigher.post6-cp310-abi3-win_amd64.whl"
    )

    files = [file_named("sageattention", filename)]
    [rejected] = chosen("2.9.1", files).rejected

    assert rejected.reason.code in {"other-torch", "other-cuda"}


def test_triton_for_windows_matches_torch():
    names = ("triton_windows-3.8.0.post29", "triton_windows-3.5.1.post24")
    files = [
        file_named("triton-windows", f"{name}-cp312-cp312-win_amd64.whl")
        for name in names
    ]

    choice = chosen("2.9.1", files, empty_row(kind="unknown"))

    assert choice.fit
    assert str(choice.fit.file.wheel.version) == "3.5.1.post24"
    [rejected] = choice.rejected
    assert (
        rejected.reason.message
        == "is incompatible with torch 2.9.1; triton-windows==3.5.* is compatible"
    )


def test_extension_without_library_linked_to_torch_is_rejected():
    files = [file_named("xformers", "xformers-0.0.33.post2-cp39-abi3-win_amd64.whl")]

    choice = chosen("2.9.1", files, empty_row("torch==2.9.1", kind="none"))

    assert choice.fit is None
    [rejected] = choice.rejected
    message = "its METADATA requires torch==2.9.1, but it has no library that is linked to torch"
    assert rejected.reason.message == message


def test_every_release_page_of_extension_source_is_requested():
    pages = []

    def respond(path, _headers):
        pages.append(path)
        return NOT_FOUND

    host = Host("releases", respond)
    source = ExtensionSource(
        "releases", 1, url=f"{host.url}/{{tag}}", tags=("v1", "v2")
    )
    with Client() as client:
        listing = list_files(
            Extension("painter", (source,)),
            [TorchKey("2.14", "cu130", "windows")],
            read_sources(None, {}, Path()),
            client,
        )
    host.close()

    assert listing.files == ()
    assert sorted(pages) == ["/v1", "/v2"]
