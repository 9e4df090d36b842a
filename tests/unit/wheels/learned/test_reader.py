"""Inspection of local wheels, and their compatibility with torch."""

from contextlib import nullcontext

import pytest
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from gpuinstall.base.reporter import Reporter
from gpuinstall.base.requirement import marker_environment
from gpuinstall.base.values import replace
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import Build, Wheel
from gpuinstall.catalog.extensions import ExtensionSource, load_extensions
from gpuinstall.catalog.listing import read_default_wheels
from gpuinstall.sources.web import Client
from gpuinstall.wheels.learned.reader import Reader
from gpuinstall.wheels.learned.row import Depth
from gpuinstall.wheels.learned.store import RowCache
from gpuinstall.wheels.ranges import WheelError
from tests.lab.host import Answer
from tests.lab.index import IndexBehavior, SimulatedIndex
from tests.lab.own_sources import read_sources
from tests.lab.wheels import make_wheel
from tests.unit.wheels.made import fatbin, server, serving

MARKERS = marker_environment("linux", "x86_64", "3.12")
CU130 = Build(
    Version("2.9.0"), Backend("cuda", "13.0"), "linux", "x86_64", toolkit=(13, 0)
)
TAG = "cp312-cp312-manylinux_2_28_x86_64"


@pytest.fixture
def reader(tmp_path):
    sources = read_sources(None, {}, tmp_path)
    with Client(sources.credentials.certificates, logins={}) as client:
        yield Reader(sources, client, RowCache(tmp_path / "learned"), Reporter())


def wheel(folder, package, version="1.0", **how):
    """Create a local wheel."""
    path = make_wheel(folder, package, version, TAG, **how)
    _, parsed, _, tags = parse_wheel_filename(path.name)
    return Wheel(package, parsed, path.name, path.as_uri(), tags)


def torch_wheel(folder, version, cuda, hip="None"):
    """Create a torch wheel built with a toolkit."""
    text = f"__version__ = '{version}'\ncuda = {cuda}\nhip = {hip}\n"
    return wheel(folder, "torch", version, modules={"torch/version.py": text})


def read(reader, folder, *versions):
    """Read a torch wheel."""
    return reader.read_torch_row(
        replace(CU130, unread=(torch_wheel(folder, *versions),))
    )


def read_row(reader, own):
    """Read a part of a wheel."""
    return next(reader.readings(own, CU130, MARKERS, Depth.PART))


@pytest.mark.parametrize(
    ("versions", "backend"),
    [
        (("2.16.0", "None"), "cpu"),
        (("2.16.0", "'13.0'"), "cu130"),
        (("2.16.0", "None", "'7.2.53211-e1a6bc5663'"), "rocm7.2"),
        # Its contents look like a CPU build.
        (("2.16.0+xpu", "None"), "xpu"),
    ],
)
def test_torch_backend_is_read_from_its_wheel(reader, tmp_path, versions, backend):
    assert read(reader, tmp_path, *versions).backend == backend


@pytest.mark.parametrize(
    ("label", "cuda"),
    [
        ("cu130", "None"),
        ("cpu", "'13.0'"),
        ("xpu", "'13.0'"),
        ("rocm7.2", "'13.0'"),
    ],
)
def test_torch_wheel_with_mismatched_backend_is_rejected(reader, tmp_path, label, cuda):
    with pytest.raises(
        WheelError, match=r"is built for \w+, but its file name specifies"
    ):
        read(reader, tmp_path, f"2.16.0+{label}", cuda)


def test_cache_distinguishes_sources_with_same_hash(reader, tmp_path):
    answers = []
    for place, cuda in (("stranger", "12.6"), ("genuine", "13.0")):
        own = torch_wheel(tmp_path / place, "2.16.0", f"'{cuda}'")
        own = replace(own, sha256="a" * 64)
        # Read it as the next run would.
        again = replace(reader, rows={})
        answers.append(again.read_torch_row(replace(CU130, unread=(own,))).cuda)
    assert answers == ["12.6", "13.0"]


def test_unreadable_local_file_is_reported(reader, tmp_path):
    own = torch_wheel(tmp_path, "2.16.0", "None")
    path = tmp_path / own.filename
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    for place in (path, tmp_path):
        unread = replace(own, url=place.as_uri())
        with pytest.raises(WheelError, match=r"cannot be read: (No such|Is a)"):
            reader.read_torch_row(replace(CU130, unread=(unread,)))


def test_metadata_is_read_from_the_wheel(reader, tmp_path):
    requirements = {"plain": [], "engine": ["torch"], "some-kernels": []}
    for package, requires in requirements.items():
        wheel(tmp_path / "simple", package, requires=requires)
    with SimulatedIndex(tmp_path, IndexBehavior(metadata=False)) as index:
        environ = {"UV_DEFAULT_INDEX": index.default_index}
        there = replace(reader, sources=read_sources(None, environ, tmp_path))
        answers = {}
        for package in requirements:
            [served] = read_default_wheels(there.sources, there.client, package)
            answers[package] = there.may_have_code(served)
    assert answers == {"plain": False, "engine": True, "some-kernels": True}


def test_metadata_is_cached_by_url_and_hash(reader, tmp_path):
    wheel(tmp_path / "simple", "engine", requires=["torch"])
    with SimulatedIndex(tmp_path, IndexBehavior(metadata=False)) as index:
        environ = {"UV_DEFAULT_INDEX": index.default_index}
        there = replace(reader, sources=read_sources(None, environ, tmp_path))
        [served] = read_default_wheels(there.sources, there.client, "engine")
        there.metadata(served)
        index.forget()
        assert there.metadata(served)["Requires-Dist"] == "torch"
        assert index.log == []
        there.metadata(replace(served, sha256="b" * 64))
        assert index.log != []


def test_missing_metadata_is_requested_by_one_command(tmp_path):
    wheel(tmp_path / "simple", "engine", requires=["torch"])
    with SimulatedIndex(tmp_path, IndexBehavior(metadata=False)) as index:
        environ = {"UV_DEFAULT_INDEX": index.default_index}
        sources = read_sources(None, environ, tmp_path)
        requested = []
        for _ in range(2):
            index.forget()
            with Client(sources.credentials.certificates, logins={}) as client:
                cache = RowCache(tmp_path / "learned")
                there = Reader(sources, client, cache, Reporter())
                [served] = read_default_wheels(sources, client, "engine")
                next(there.readings(served, CU130, MARKERS))
            requested.append([one.path for one in index.log if "metadata" in one.path])
    assert len(requested[0]) == 1
    assert requested[1] == []


@pytest.mark.parametrize(
    ("description", "architectures"),
    [
        ("It renders on the CPU, or with CUDA.", ("sm_75",)),
        ("It renders. It was tested on sm_120.", ()),
    ],
)
def test_description_is_searched_for_cuda(reader, tmp_path, description, architectures):
    code = fatbin("sm_75")
    own = wheel(tmp_path, "some", description=description, modules={"some.so": code})

    assert read_row(reader, own).architectures == architectures


@pytest.mark.parametrize("is_of_source", [True, False])
def test_redirect_of_an_extension_source_is_followed(
    reader, tmp_path, monkeypatch, is_of_source
):
    own = wheel(tmp_path, "painter")
    data = (tmp_path / own.filename).read_bytes()
    with server(serving(data)) as there:
        moved = Answer(302, headers={"Location": f"{there.url}/asset?signature=s"})
        with server(lambda *_: moved) as here:
            hosts = frozenset(url.partition("//")[2] for url in (here.url, there.url))
            source = ExtensionSource("releases", 4, here.url, hosts=hosts)
            sources = {"releases": source} if is_of_source else {}
            table = replace(load_extensions(), sources=sources)
            monkeypatch.setattr(
                "gpuinstall.wheels.learned.reader.load_extensions", lambda: table
            )
            moved_there = replace(own, url=f"{here.url}/a")
            with (
                nullcontext()
                if is_of_source
                else pytest.raises(WheelError, match="redirects to another host")
            ):
                row = read_row(reader, moved_there)
                assert row.size == len(data)


@pytest.mark.parametrize(
    ("libraries", "system"),
    [
        ({"a.so": 62, "b.so": 62}, "linux-x86_64"),
        ({"a.so": 183, "lib/b.so.1": 183}, "linux-aarch64"),
        ({"arm/a.so": 183, "x86/a.so": 62}, "any"),
        ({"a.so": 62, "a.dylib": 0}, "any"),
        ({"a.dll": 0, "a.pyd": 0}, "windows"),
        ({}, None),
    ],
)
def test_libraries_have_the_platform_of_their_headers(
    reader, tmp_path, libraries, system
):
    modules = {
        f"painter/{name}": b"\x7fELF" + bytes(14) + bytes([machine, 0])
        for name, machine in libraries.items()
    }
    path = make_wheel(tmp_path, "painter", "1.0", "py3-none-any", modules=modules)
    _, parsed, _, tags = parse_wheel_filename(path.name)
    own = Wheel("painter", parsed, path.name, path.as_uri(), tags)

    assert read_row(reader, own).system == system


def test_library_names_are_read_once(reader, tmp_path):
    modules = {"painter/libbrush.so": "brush", "painter/colors.py": ""}
    own = wheel(tmp_path, "painter", modules=modules)
    answer = serving((tmp_path / own.filename).read_bytes())
    requests = []

    def serve(*request):
        requests.append(request)
        return answer(*request)

    with server(serve) as here:
        own = replace(own, url=f"{here.url}/a", sha256="a" * 64)
        assert reader.library_names(own) == {"libbrush.so"}
        before = len(requests)
        assert reader.library_names(own) == {"libbrush.so"}

    assert len(requests) == before > 0


def test_github_redirect_to_other_host_is_rejected():
    hosts = load_extensions().redirect_hosts("github.com")

    assert hosts == {
        "github.com",
        "objects.githubusercontent.com",
        "release-assets.githubusercontent.com",
    }
    assert load_extensions().redirect_hosts("other.example") == set()
