"""Tests that older versions are selected if newer ones do not run."""

from random import Random

import pytest

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.catalog import load_catalog
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.inspect import REJECTIONS
from gpuinstall.lock.resolve.locks import resolve_locks
from gpuinstall.machine.options import machine_from_options
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from gpuinstall.wheels.learned.reader import make_reader
from tests.lab.cases import mostly_heavy
from tests.lab.index import SimulatedIndex
from tests.lab.native import native_library
from tests.lab.releases import catalog_index
from tests.lab.wheels import make_wheel
from tests.unit.wheels.made import fatbin

TAGS = "py3-none-manylinux_2_28_x86_64"
SERVED = fatbin("sm_70 sm_80") * 3
RUNS = "R"
RUNS_BESIDE_OLDER_TORCH = "O"
WITHOUT_GPU_CODE = "N"
OTHER_GPUS = "G"
NEWER_CUDA = "C"
UNKNOWN_TORCH = "T"
PTX_ALONE = "P"
RUNNING = {RUNS, RUNS_BESIDE_OLDER_TORCH, WITHOUT_GPU_CODE, PTX_ALONE}
EXCLUDED = (OTHER_GPUS, NEWER_CUDA, UNKNOWN_TORCH)
SEEDS = range(16)
QUICK = {5, 11}
PINNED = 3
"""The number of newer versions that each test pins."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("older")
    return catalog_index(folder, ["2.7.1", "2.10.0"], platforms=["linux-x86_64"])


@pytest.fixture(scope="module")
def libraries(folder):
    """Compile a library for each kind of version."""
    made = folder / "made"
    codes = {
        RUNS: (["libcudart.so.12"], SERVED),
        NEWER_CUDA: (["libcudart.so.13"], SERVED),
        OTHER_GPUS: (["libcudart.so.12"], fatbin("sm_80 sm_90") * 3),
        PTX_ALONE: ([], fatbin("sm_80 compute_60 isa 8.2") * 3),
        WITHOUT_GPU_CODE: ([], b""),
    }
    libraries = {}
    for kind, (needs, code) in codes.items():
        library = native_library(made / f"{kind}.so", needs=needs, code=code)
        libraries[kind] = library.read_bytes()
    libraries[RUNS_BESIDE_OLDER_TORCH] = libraries[UNKNOWN_TORCH] = libraries[RUNS]
    return libraries


@pytest.fixture
def session(folder, tmp_path, monkeypatch):
    with SimulatedIndex(folder) as index:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        for name, value in index.environment().items():
            monkeypatch.setenv(name, value)
        sources = read_sources(index.torch_index, tmp_path)
        with open_session(sources, Reporter()) as session:
            yield session


def make_history(folder, libraries, name, kinds, tags=TAGS):
    """Publish a version of each kind, oldest first."""
    for number, kind in enumerate(kinds, 1):
        torch = {UNKNOWN_TORCH: "torch==9.0", RUNS_BESIDE_OLDER_TORCH: "torch==2.7.1"}
        modules: dict[str, str | bytes] = {
            f"{name}/__init__.py": f"from {name} import o\n",
            f"{name}/o.so": libraries[kind],
        }
        requires = [torch.get(kind, "torch")]
        make_wheel(
            folder / "simple",
            name,
            str(number),
            tags,
            requires=requires,
            modules=modules,
        )


def publish(folder, name, version, *requires):
    """Publish a wheel without native libraries."""
    make_wheel(folder / "simple", name, version, "py3-none-any", requires=requires)


def resolve(words, session, gpu="V100", driver="535.183.01"):
    """Resolve a request for a V100 with a driver for CUDA 12."""
    machine = machine_from_options((gpu,), driver, glibc="2.35")
    request = LockRequest(
        machine, Request(tuple(words.split()), python="3.12"), load_catalog()
    )
    return resolve_locks([request], session)[0]


def resolve_if_possible(words, session):
    """Resolve a request, or return None if it is rejected."""
    try:
        return resolve(words, session)
    except NoBuildError:
        return None


def make_kinds(random):
    """Return kinds of releases, the latest of which do not run."""
    kinds = [random.choice(sorted(RUNNING)) for _ in range(random.choice((0, 1, 4)))]
    for _ in range(random.choice((1, 2, 3))):
        kinds += [random.choice(EXCLUDED)] * random.choice((1, 2, 5, 12, 13, 30))
    return kinds


@pytest.mark.parametrize("seed", mostly_heavy(SEEDS, QUICK))
def test_latest_compatible_release_is_selected(folder, libraries, session, seed):
    random = Random(seed)
    name = f"shape{seed}"
    kinds = make_kinds(random)
    make_history(folder, libraries, name, kinds)
    running = [number for number, kind in enumerate(kinds, 1) if kind in RUNNING]

    answer = resolve_if_possible(name, session)

    selected = int(answer.versions[name]) if answer else 0
    newest = max(running, default=0)
    # After eight rejections for one reason, releases are skipped.
    is_complete = len(kinds) - newest <= REJECTIONS
    assert selected == newest or (selected in running and not is_complete), kinds
    newer = range(newest + 1, len(kinds) + 1)
    for number in random.sample(newer, min(PINNED, len(newer))):
        assert resolve_if_possible(f"{name}=={number}", session) is None, "".join(kinds)


def warnings_of(answer, words):
    return [one.message for one in answer.plan.warnings if words in one.message]


def test_partially_inspected_version_is_not_selected(
    folder, libraries, session, monkeypatch
):
    large = libraries[OTHER_GPUS] + Random(0).randbytes(12 << 20)
    make_history(
        folder,
        {**libraries, OTHER_GPUS: large},
        "lengthy",
        [RUNS, OTHER_GPUS, NEWER_CUDA],
    )
    monkeypatch.setattr("gpuinstall.wheels.needs._LARGE", 0)
    monkeypatch.setattr("gpuinstall.wheels.package.CODE_LIMIT", 1 << 20)

    answer = resolve("lengthy", session)
    pinned = resolve("lengthy==2", session)

    assert answer.versions["lengthy"] == "1"
    [warning] = warnings_of(answer, "lengthy 3")
    assert warning.endswith(
        "lengthy 1 is selected (1 release not inspected: it was inspected only in part)"
    )
    assert warnings_of(pinned, "lengthy 2 may have no code")


def make_release(folder, package, version, torch, **libraries):
    """Publish a release with libraries, named without their ending."""
    modules = {f"{package}/{name}.so": data for name, data in libraries.items()}
    make_wheel(
        folder / "simple", package, version, TAGS, requires=[torch], modules=modules
    )


@pytest.fixture
def lengthy_library(libraries, monkeypatch):
    """A library for other GPUs that is inspected only in part."""
    monkeypatch.setattr("gpuinstall.wheels.needs._LARGE", 0)
    monkeypatch.setattr("gpuinstall.wheels.package.CODE_LIMIT", 1 << 20)
    return libraries[OTHER_GPUS] + Random(0).randbytes(12 << 20)


def test_same_library_in_another_folder_is_rejected(
    folder, libraries, session, lengthy_library
):
    make_release(folder, "moved", "3", "torch", **{"new/_C": libraries[OTHER_GPUS]})
    for version in "12":
        make_release(folder, "moved", version, "torch", **{"old/_C": lengthy_library})

    with pytest.raises(NoBuildError, match="moved 3 has no code for V100"):
        resolve("moved", session)


def test_partly_read_release_after_three_rejections_is_rejected(
    folder, libraries, session, lengthy_library
):
    for version in ("0.3", "0.4", "0.5"):
        library = {"_C": libraries[OTHER_GPUS]}
        make_release(folder, "vllm", version, "torch==2.10.0", **library)
    make_release(folder, "vllm", "0.2", "torch==2.7.1", _C=lengthy_library)
    publish(folder, "speaker", "1", "vllm<1")

    with pytest.raises(NoBuildError, match=r"vllm 0\.5 has no code for V100"):
        resolve("speaker", session)


@pytest.mark.parametrize(
    ("limit", "megabytes", "newer", "warning"),
    [
        pytest.param("LOCK_LIMIT", 20, 4, "1 is selected", marks=pytest.mark.heavy),
        ("CODE_LIMIT_OF_LOCK", 30, 5, ""),
    ],
)
def test_inspection_stops_at_download_limits(
    folder, libraries, session, monkeypatch, *, limit, megabytes, newer, warning
):
    large = libraries[OTHER_GPUS] + Random(0).randbytes(12 << 20)
    name = limit.lower().replace("_", "")
    kinds = [RUNS, *OTHER_GPUS * newer]
    make_history(folder, {**libraries, OTHER_GPUS: large}, name, kinds)
    monkeypatch.setattr(f"gpuinstall.wheels.learned.reader.{limit}", megabytes << 20)

    answer = resolve(name, session)

    assert answer.versions[name] == "1"
    reader = make_reader(session)
    read = reader.bytes_read if warning else reader.code_bytes_read
    assert read <= megabytes << 20
    assert warnings_of(answer, f"{name} {warning}" if warning else "") or not warning
    assert not warnings_of(answer, f"{name} 1 was")


def test_table_excludes_releases_after_the_limit(folder, session, monkeypatch):
    for version in ["23.12", *(f"24.{minor}" for minor in range(2, 20))]:
        make_wheel(folder / "simple", "libcudf-cu12", version, TAGS)
    publish(folder, "frames", "1", "libcudf-cu12")
    monkeypatch.setattr("gpuinstall.wheels.learned.reader.LOCK_LIMIT", -1)

    answer = resolve("frames", session, "GTX 1080")

    assert answer.versions["libcudf-cu12"] == "23.12"


def test_declared_cuda_excludes_releases_after_the_limit(
    folder, libraries, session, monkeypatch
):
    library = libraries[WITHOUT_GPU_CODE]
    for version in ["12.9", *(f"13.{minor}" for minor in range(14))]:
        make_release(folder, "cuda-bindings", version, "numpy", driver=library)
    publish(folder, "numpy", "2")
    publish(folder, "binder", "1", "cuda-bindings")
    monkeypatch.setattr("gpuinstall.wheels.learned.reader.LOCK_LIMIT", -1)

    answer = resolve("binder", session)

    assert answer.versions["cuda-bindings"] == "12.9"


def test_linked_cuda_is_read_after_the_code_limit(
    folder, libraries, session, monkeypatch
):
    make_history(folder, libraries, "tabled", [RUNS, NEWER_CUDA])
    monkeypatch.setattr("gpuinstall.wheels.learned.reader.CODE_LIMIT_OF_LOCK", -1)

    answer = resolve("tabled", session)

    assert answer.versions["tabled"] == "1"
    assert warnings_of(answer, "tabled 1 may lack code for V100 (sm_70)")


def test_pure_wheels_are_listed_after_the_limit(folder, session, monkeypatch):
    publish(folder, "scripts", "1", "torch")
    monkeypatch.setattr("gpuinstall.wheels.learned.reader.LOCK_LIMIT", -1)

    answer = resolve("scripts", session)

    assert not warnings_of(answer, "scripts 1 may lack code")


def read_versions(session, name):
    return {row.version for row in session.rows.values() if row.package == name}


@pytest.mark.parametrize("other", [UNKNOWN_TORCH, NEWER_CUDA])
def test_releases_with_alternating_reasons_are_skipped(
    folder, libraries, session, other
):
    name = f"xformers{other.lower()}"
    make_history(folder, libraries, name, [RUNS, *(OTHER_GPUS, other) * 16, OTHER_GPUS])

    answer = resolve(name, session)

    assert answer.versions[name] == "1"
    assert len(read_versions(session, name)) <= 20


def test_latest_patch_release_is_tried_after_skips(folder, libraries, session):
    kinds = {"0.1.0": RUNS, "1.0.0": RUNS, "1.0.1": RUNS}
    kinds |= {f"2.0.{patch}": NEWER_CUDA for patch in range(10)}
    for version, kind in kinds.items():
        make_release(folder, "patched", version, "torch", _C=libraries[kind])

    answer = resolve("patched", session)

    assert answer.versions["patched"] == "1.0.1"


def test_releases_incompatible_with_pinned_torch_are_skipped(
    folder, libraries, session
):
    make_history(folder, libraries, "painter", [RUNS, RUNS, *NEWER_CUDA * 30])
    publish(folder, "lasting", "1", "torch==2.7.1")

    answer = resolve("painter lasting", session, "RTX 4090", "580.65.06")

    assert answer.versions["painter"] == "2"
    assert len(read_versions(session, "painter")) <= 20


def test_releases_that_requirements_forbid_are_not_read(folder, libraries, session):
    make_history(folder, libraries, "limited", [RUNS, NEWER_CUDA, NEWER_CUDA])
    publish(folder, "limiting", "1", "limited>=2")

    assert resolve_if_possible("limited limiting", session) is None
    assert read_versions(session, "limited") == {"2", "3"}


def test_dependency_built_for_older_cuda_selects_matching_torch(
    folder, libraries, session
):
    make_history(folder, libraries, "vllm", RUNS * 6)
    publish(folder, "listener", "1", "vllm")

    answer = resolve("torch listener", session, "RTX 4090", "580.65.06")

    assert answer.versions["vllm"] == "6"
    assert answer.choice.build.toolkit[0] == 12
    read = {row.version for row in session.rows.values() if row.package == "vllm"}
    assert read == {"6"}
