"""What a wheel on this disk says of itself, and whether a package runs beside a torch."""

from contextlib import nullcontext

import pytest
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import Build, Wheel
from gpuinstall.catalog.extensions import ExtensionSource, load_extensions
from gpuinstall.catalog.listing import default_wheels
from gpuinstall.sources import read_sources
from gpuinstall.sources.web import Client
from gpuinstall.wheels.learned.reader import Reader
from gpuinstall.wheels.learned.row import Depth
from gpuinstall.wheels.learned.store import LearnedStore
from gpuinstall.wheels.ranges import WheelError
from tests.lab.host import Answer
from tests.lab.index import Habits, StandInIndex
from tests.lab.wheels import make_wheel
from tests.unit.wheels.made import server, serving

CU130 = Build(
    Version("2.9.0"), Backend("cuda", "13.0"), "linux", "x86_64", toolkit=(13, 0)
)


def torch_wheel(folder, version, versions):
    """Make a wheel of torch with this ``torch/version.py``."""
    path = make_wheel(
        folder,
        "torch",
        version,
        "cp312-cp312-manylinux_2_28_x86_64",
        modules={"torch/version.py": f"__version__ = '{version}'\n{versions}\n"},
    )
    _, parsed, _, tags = parse_wheel_filename(path.name)
    return Wheel("torch", parsed, path.name, path.as_uri(), tags)


def read(folder, version, versions):
    """Read a wheel of torch with this ``torch/version.py``."""
    wheel = torch_wheel(folder, version, versions)
    build = replace(CU130, unread=(wheel,))
    sources = read_sources(None, {}, folder)
    with Client(sources.certificates, logins={}) as client:
        reader = Reader(sources, client, LearnedStore(folder / "learned"), Reporter())
        return reader.torch(build)


@pytest.mark.parametrize(
    ("versions", "backend"),
    [
        ("cuda = None\nhip = None", "cpu"),
        ("cuda = '13.0'\nhip = None", "cu130"),
        ("cuda = None\nhip = '7.2.53211-e1a6bc5663'", "rocm7.2"),
    ],
)
def test_an_unlabelled_torch_is_what_it_was_built_with(tmp_path, versions, backend):
    assert read(tmp_path, "2.16.0", versions).backend == backend


@pytest.mark.parametrize(
    ("label", "versions"),
    [
        ("cu130", "cuda = None\nhip = None"),
        ("cpu", "cuda = '13.0'\nhip = None"),
        ("xpu", "cuda = '13.0'\nhip = None"),
        ("rocm7.2", "cuda = '13.0'\nhip = None"),
    ],
)
def test_a_torch_with_another_backend_inside_is_malformed(tmp_path, label, versions):
    with pytest.raises(WheelError, match=r"is built for \w+, and its name says"):
        read(tmp_path, f"2.16.0+{label}", versions)


def test_a_file_elsewhere_that_claims_the_same_hash_is_another(tmp_path):
    answers = []
    with Client(logins={}) as client:
        for place, cuda in (("stranger", "12.6"), ("genuine", "13.0")):
            wheel = torch_wheel(
                tmp_path / place, "2.16.0", f"cuda = '{cuda}'\nhip = None"
            )
            wheel = replace(wheel, sha256="a" * 64)
            store = LearnedStore(tmp_path / "learned")
            reader = Reader(read_sources(None, {}, tmp_path), client, store, Reporter())
            answers.append(reader.torch(replace(CU130, unread=(wheel,))).cuda)
    assert answers == ["12.6", "13.0"]


def test_an_xpu_torch_looks_like_one_for_the_cpu_inside(tmp_path):
    assert read(tmp_path, "2.16.0+xpu", "cuda = None\nhip = None").backend == "xpu"


def test_a_local_file_that_cannot_be_read_is_told_as_that(tmp_path):
    wheel = torch_wheel(tmp_path, "2.16.0", "cuda = None\nhip = None")
    path = tmp_path / wheel.filename
    with Client(logins={}) as client:
        path.unlink()
        path.symlink_to(tmp_path / "nowhere")
        for place in (path, tmp_path):
            unread = replace(wheel, url=place.as_uri())
            store = LearnedStore(tmp_path / "learned")
            reader = Reader(read_sources(None, {}, tmp_path), client, store, Reporter())
            with pytest.raises(WheelError, match=r"cannot be read: (No such|Is a)"):
                reader.torch(replace(CU130, unread=(unread,)))


def test_a_wheel_itself_says_whether_it_is_for_gpus_if_its_server_does_not(tmp_path):
    simple = tmp_path / "simple"
    make_wheel(simple, "plain", "1.0", "cp312-cp312-manylinux_2_28_x86_64")
    make_wheel(
        simple,
        "engine",
        "1.0",
        "cp312-cp312-manylinux_2_28_x86_64",
        requires=["torch"],
    )
    make_wheel(simple, "some-kernels", "1.0", "cp312-cp312-manylinux_2_28_x86_64")
    with StandInIndex(tmp_path, Habits(metadata=False)) as index, Client() as client:
        sources = read_sources(
            None, {"UV_DEFAULT_INDEX": index.default_index}, tmp_path
        )
        reader = Reader(sources, client, LearnedStore(tmp_path / "learned"), Reporter())
        answers = {}
        for package in ("plain", "engine", "some-kernels"):
            (wheel,) = default_wheels(sources, client, package)
            answers[package] = reader.may_have_code(wheel)
    assert answers == {"plain": False, "engine": True, "some-kernels": True}


def test_a_description_tells_of_cuda_and_of_the_chips_that_it_asks_for(tmp_path):
    ptx = b"//\n.version 8.2\n.target sm_75,"
    named = {
        "described": "It renders on the CPU, or with CUDA.",
        "plain": "It renders. It was tested on sm_120.",
        "asking": "| **SM80+** | fast |\nNVIDIA, compute capability 7.5 (Turing) or newer.",
    }
    read = {}
    for package, description in named.items():
        path = make_wheel(
            tmp_path,
            package,
            "1.0",
            "cp312-cp312-manylinux_2_28_x86_64",
            description=description,
            modules={f"{package}.so": ptx},
        )
        _, version, _, tags = parse_wheel_filename(path.name)
        wheel = Wheel(package, version, path.name, path.as_uri(), tags)
        sources = read_sources(None, {}, tmp_path)
        with Client() as client:
            store = LearnedStore(tmp_path / "learned")
            reader = Reader(sources, client, store, Reporter())
            row = reader.companion(wheel, CU130.backend, "linux-x86_64", Depth.PART)
            read[package] = row.architectures, row.lowest
    assert read == {
        "described": (("compute_75",), None),
        "plain": ((), None),
        "asking": ((), "7.5"),
    }


@pytest.mark.parametrize("is_of_source", [True, False])
def test_a_file_is_read_where_the_host_of_its_source_sends_us(
    tmp_path, monkeypatch, is_of_source
):
    path = make_wheel(tmp_path, "painter", "1.0", "cp312-cp312-linux_x86_64")
    with server(serving(path.read_bytes())) as there:
        moved = Answer(302, headers={"Location": f"{there.url}/asset?signature=s"})
        with server(lambda *_: moved) as here, Client(logins={}) as client:
            hosts = frozenset(url.partition("//")[2] for url in (here.url, there.url))
            source = ExtensionSource("releases", 4, here.url, hosts=hosts)
            sources = {"releases": source} if is_of_source else {}
            table = replace(load_extensions(), sources=sources)
            monkeypatch.setattr(
                "gpuinstall.wheels.learned.reader.load_extensions", lambda: table
            )
            reader = Reader(
                read_sources(None, {}, tmp_path),
                client,
                LearnedStore(tmp_path / "learned"),
                Reporter(),
            )
            wheel = Wheel(
                "painter", Version("1.0"), path.name, f"{here.url}/a", frozenset()
            )
            with (
                nullcontext()
                if is_of_source
                else pytest.raises(WheelError, match="redirects to another host")
            ):
                row = reader.companion(wheel, CU130.backend, "linux-x86_64")
                assert row.size == path.stat().st_size


def test_github_may_send_downloads_to_its_own_hosts_alone():
    hosts = load_extensions().hosts_beside("github.com")

    assert hosts == {
        "github.com",
        "objects.githubusercontent.com",
        "release-assets.githubusercontent.com",
    }
    assert load_extensions().hosts_beside("other.example") == set()
