"""Packages with GPU code of their own, that a torch which fits says nothing of: found while locking."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpuinstall.words import machine_in_words
from tests.lab.index import StandInIndex
from tests.lab.native import native_library
from tests.lab.releases import catalog_index
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop
from tests.unit.wheels.made import fatbin

TAGS = "py3-none-manylinux_2_28_x86_64"
V100 = ("--gpu", "V100", "--driver", "570.86.15", "--glibc", "2.35")
H100 = ("--gpu", "H100", "--driver", "580.95.05", "--glibc", "2.35")
RTX_4090 = ("--gpu", "RTX 4090", "--driver", "570.86.15")


def make_compiled(folder: Path):
    """Make 30 versions with PTX: ten that driver 535 compiles, and newer ones that it does not."""
    for number in range(1, 31):
        isa = (8, 2) if number <= 10 else (8, 7)
        code = fatbin((2, 80, 0), (1, 86, 0), isa=isa) * 3
        modules = {"compiled/o.so": code, **imports("compiled", "compiled/o.so")}
        make_wheel(
            folder / "simple",
            "compiled",
            str(number),
            TAGS,
            requires=["torch"],
            modules=modules,
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five releases of torch; vllm of which only the oldest has code for a V100; a package that no row names."""
    releases = ["2.2.2", "2.7.1", "2.10.0", "2.13.0", "2.15.0"]
    folder = catalog_index(tmp_path_factory.mktemp("code"), releases, platforms=["linux-x86_64"])
    for version, code in (
        ("0.8.0", (70, 75, 80)),
        ("0.9.0", (75, 80)),
        ("0.10.0", (75, 80)),
        ("0.11.0", (80, 90)),
    ):
        make(
            folder,
            "vllm",
            version,
            {"vllm/_C.abi3.so": code, "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": (90,)},
        )
    make(folder, "strange-kernels", "1.0", {"strange_kernels/ops.so": (90,)})
    libraries = {
        "bitsandbytes/libbitsandbytes_cuda126.so": (60, 70),
        "bitsandbytes/libbitsandbytes_cuda128.so": (75, 80),
    }
    make(folder, "bitsandbytes", "0.50.2", libraries)
    for version, isa in (("1.0", (8, 7)), ("2.0", (9, 0))):
        portable = fatbin((2, 75, 0), (1, 80, 0), isa=isa) * 3
        make_wheel(
            folder / "simple",
            "portable",
            version,
            TAGS,
            requires=["torch"],
            modules={"portable/o.so": portable, **imports("portable", "portable/o.so")},
        )
    make_compiled(folder)
    engines: list[tuple[str, str, tuple[int, ...]]] = [
        (f"0.{number}", "12", (80, 90)) for number in range(1, 5)
    ]
    engines += [("1.0", "12", (80, 90, 120)), ("2.0", "13", (80, 90, 120))]
    for version, major, numbers in engines:
        kernels = fatbin(*((2, number, 0) for number in numbers)) * 3
        library = native_library(
            folder / "made" / f"{version}.so", needs=[f"libcudart.so.{major}"], code=kernels
        )
        modules = {"engine/o.so": library.read_bytes(), **imports("engine", "engine/o.so")}
        make_wheel(folder / "simple", "engine", version, TAGS, requires=["torch"], modules=modules)
    for name, version, major, requires in (
        ("gptq", "0.4.0", "12", ["torch"]),
        ("gptq", "0.7.1", "12", ["torch"]),
        ("bound", "1.0", "13", ["torch"]),
        ("bound", "2.0", "12", ["torch==2.15.0"]),
        ("onnxruntime-gpu", "1.26.0", "12", []),
        ("onnxruntime-gpu", "1.27.0", "13", []),
        ("onnxruntime-gpu", "1.31.1", "13", []),
    ):
        library = native_library(
            folder / "made" / f"{name}-{version}.so", needs=[f"libcudart.so.{major}"]
        )
        path = (
            "onnxruntime/capi/libonnxruntime_providers_cuda.so"
            if name.startswith("onnx")
            else f"{name}/o.so"
        )
        modules = {path: library.read_bytes(), **imports(name, path)}
        make_wheel(folder / "simple", name, version, TAGS, requires=requires, modules=modules)
    for number in range(1, 9):
        make(
            folder, "wavering", str(number), {"wavering/o.so": (70,) if number in {2, 6} else (80,)}
        )
    for version, code in (("0.0.29", (70, 80)), ("0.0.35", (80, 90))):
        kernels = fatbin(*((2, number, 0) for number in code)) * 3
        modules = {"xformers/_C.so": kernels}
        make_wheel(
            folder / "whl" / "cu126", "xformers", version, TAGS, requires=["torch"], modules=modules
        )
    make_wheel(folder / "simple", "axolotl", "0.5.0", requires=["torch", "xformers==0.0.29"])
    make_wheel(folder / "simple", "axolotl", "0.13.0", requires=["torch", "xformers==0.0.35"])
    make_wheel(folder / "simple", "numpy", "1.26.4")
    make_wheel(folder / "simple", "needs-old-torch", "1.0", requires=["torch<2.3"])
    make_wheel(folder / "simple", "k2", "1.22.0")
    make_wheel(folder / "simple", "k2", "1.23.0.dev1")
    make_wheel(folder / "simple", "k2", "1.24.0", requires=["torch==1.12.1"])
    make_wheel(folder / "simple", "k2", "1.23.1.dev1", "py3.11-none-any")
    make_wheel(folder / "simple", "k2", "1.23.4", "py3.11-none-any")
    make_wheel(folder / "simple", "k2", "1.23.4", "py3.12-none-any")
    opening = native_library(
        folder / "made" / "ct.so", strings=["libcublas.so.12", "libnccl.so.2"]
    ).read_bytes()
    modules = {"ctranslate2.libs/libctranslate2-a7a60d30.so.4.8.5": opening}
    make_wheel(folder / "simple", "ctranslate2", "4.8.5", TAGS, modules=modules)
    older = native_library(folder / "made" / "ct3.so", strings=["libcublas.so.11"]).read_bytes()
    modules = {"ctranslate2.libs/libctranslate2-2d5ae8e1.so.3.24.0": older}
    make_wheel(folder / "simple", "ctranslate2", "3.24.0", TAGS, modules=modules)
    make_wheel(folder / "simple", "nvidia-cublas-cu12", "12.9.1.4", TAGS)
    for version, served in (("9.10.2.21", range(50, 121)), ("9.20.0.48", range(75, 121))):
        make(
            folder,
            "nvidia-cudnn-cu12",
            version,
            {"nvidia/cudnn/lib/libcudnn_cnn.so.9": tuple(served)},
        )
    for python in ("cp310", "cp311", "cp312", "cp313"):
        tag = f"{python}-{python}-manylinux_2_28_x86_64"
        make_wheel(
            folder / "whl" / "cu126", "torch", "2.10.0+cu126", tag, requires=["nvidia-cudnn-cu12"]
        )
    make_wheel(folder / "simple", "faster-whisper", "1.2", requires=["ctranslate2"])
    make_pinned(folder)
    make_wheel(folder / "simple", "rembg", "2.0", requires=["onnxruntime-gpu"])
    make_wheel(folder / "simple", "suite", "1.0", requires=["torch", "strange-kernels"])
    make_wheel(folder / "simple", "plain", "1.0", TAGS, modules={"plain/_plain.so": "\0" * 64})
    return folder


def make_pinned(folder: Path):
    """Make two versions for CUDA 12, each with a torch of its own; the newer one's has no build for CUDA 12."""
    elsewhere = "torch==9.0; sys_platform == 'win32'"
    for version, requires in (("1.0", ["torch==2.7.1"]), ("2.0", [elsewhere, "torch==2.15.0"])):
        library = native_library(
            folder / "made" / f"pinned-{version}.so", needs=["libcudart.so.12"]
        )
        modules = {"pinned/o.so": library.read_bytes()}
        make_wheel(folder / "simple", "pinned", version, TAGS, requires=requires, modules=modules)


@pytest.fixture
def index(served: Path) -> Iterator[StandInIndex]:
    with StandInIndex(served) as index:
        yield index


@pytest.fixture
def workshop(index: StandInIndex, tmp_path: Path) -> Workshop:
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", index.environment())


def make(folder: Path, name: str, version: str, libraries: Mapping[str, tuple[int, ...]]):
    """Make a wheel that demands torch, with libraries that have code for some architectures."""
    held = {
        path: fatbin(*((2, number, 0) for number in code)) * 3 for path, code in libraries.items()
    }
    modules = {**held, **imports(name, *libraries)}
    make_wheel(folder / "simple", name, version, TAGS, requires=["torch"], modules=modules)


def imports(name: str, *libraries: str) -> dict[str, str | bytes]:
    """Return the module of a package that imports its libraries, as their names say."""
    lines = []
    for path in libraries:
        module, _, library = path.partition(".")[0].rpartition("/")
        lines.append(f"from {module.replace('/', '.')} import {library}\n")
    return {f"{name.replace('-', '_')}/__init__.py": "".join(lines)}


def locked(workshop: Workshop, *words: str) -> dict[str, str]:
    """The versions in the one lock that a command writes."""
    from gpuinstall.lock.lock import read_lock

    (lock,) = workshop.document("lock", "--upgrade", *words)["data"]["locks"]
    return read_lock(workshop.folder / f"pylock.{lock['target']}.toml").versions


def test_the_newest_version_that_has_code_for_the_gpu_is_taken(workshop, index):
    done = workshop.run("lock", "vllm", *V100)
    assert done.ok, done.err
    assert "vllm 0.11.0 has no code for" in done.err
    assert "vllm 0.8.0 is the newest that runs here" in done.err
    assert locked(workshop, "vllm", *V100)["vllm"] == "0.8.0"

    index.forget()
    locked(workshop, "vllm", *V100)
    assert [asked.path for asked in index.log if asked.range] == []


@pytest.mark.heavy
def test_a_version_that_could_not_be_read_does_not_count_as_without_code(workshop, served):
    for version, code in (("1.0", (70, 80)), ("1.5", (70, 80)), ("3.0", (80,))):
        make(served, "misnamed", version, {"misnamed/o.so": code})
    (wheel,) = (served / "simple").glob("misnamed-1.5-*")
    wheel.rename(wheel.with_name(wheel.name.replace("1.5", "2.0")))  # METADATA says 1.5
    done = workshop.run("lock", "misnamed", *V100)
    assert done.ok, done.err
    assert "misnamed 1.0 runs here" in done.err.replace("\n  ", " ")
    assert "is the newest that runs here" not in done.err.replace("\n  ", " ")


@pytest.mark.heavy
def test_versions_that_cannot_be_read_are_passed_over_and_named(workshop, served):
    broken = {
        "torn": {9, 10, 11, 14, 16, 29},
        "shreds": set(range(1, 30)),
    }
    for name, numbers in broken.items():
        for number in range(1, 31):
            code = {f"{name}/o.so": (70, 80) if number <= 10 else (80,)}
            make(served, name, f"{number}.dev1" if number in numbers else str(number), code)
        for wheel in (served / "simple").glob(
            f"{name}-*.dev1-*"
        ):  # whose METADATA says another version now
            wheel.rename(wheel.with_name(wheel.name.replace(".dev1", "")))
    done = workshop.run("lock", "torn", *V100)
    assert done.ok, done.err
    said = " ".join(done.err.split())
    assert "torn 8 runs here (unread: 29, 16, 14, 11, 10, 9: METADATA names " in said
    refused = workshop.run("lock", "shreds", "--only", *V100)
    assert refused.status == 3
    unread = "none of 29 older versions is known to run here (unread: 29, 28, 27, 26, 25, 24 and 23 more: "
    assert unread in " ".join(refused.err.split())


@pytest.mark.heavy
def test_a_gpu_that_the_newest_has_code_for_gets_the_newest(workshop):
    assert locked(workshop, "vllm", *RTX_4090)["vllm"] == "0.11.0"


@pytest.mark.heavy
def test_a_lock_for_several_machines_has_code_for_the_gpus_of_all(workshop):
    for gpu, driver in (V100[1:4:2], RTX_4090[1:4:2]):
        machine = machine_in_words((gpu,), driver, None, None).to_dict()
        (workshop.folder / f"{gpu}.json").write_text(json.dumps(machine), encoding="utf-8")
    assert (
        locked(workshop, "vllm", "--machine", "V100.json", "--machine", "RTX 4090.json")["vllm"]
        == "0.8.0"
    )


def test_ptx_counts_where_the_driver_is_as_new_as_the_cuda_that_wrote_it(
    workshop,
):
    rtx_5090 = ("--gpu", "RTX 5090", "--driver", "570.86.15")
    found = locked(workshop, "portable", *rtx_5090)
    assert (found["portable"], found["torch"]) == ("1.0", "2.13.0+cu129")


@pytest.mark.heavy
def test_a_version_whose_toolkit_the_driver_does_not_run_gives_way_to_an_older_one(
    workshop,
):
    machine = ("--gpu", "RTX 5090", "--driver", "570.86.15", "--glibc", "2.35")
    done = workshop.run("lock", "engine", *machine, "--verbose")
    rounds = re.findall(
        r"Search +(\d+: torch \S+: \S+ \S+) .*?\(\d runs? of uv\)", " ".join(done.err.split())
    )
    assert rounds == [
        "1: torch 2.13.0+cu129: engine 2.0",
        "2: torch 2.13.0+cu129: nothing stands",
    ]
    assert (
        "engine 2.0 does not run on driver 570.86.15: engine/o.so is built with CUDA 13,"
        in done.err
    )
    assert "engine 1.0 is the newest that runs here" in done.err
    assert "engine is 1.0" not in done.err
    assert "engine-1.0" in workshop.lock("pylock.cu129.toml")


@pytest.mark.heavy
def test_a_package_is_put_beside_a_torch_of_its_own_toolkit(workshop):
    h100 = ("--gpu", "H100", "--driver", "580.95.05")
    assert locked(workshop, "engine", *h100)["torch"] == "2.15.0+cu130"
    found = locked(workshop, "engine==1.0", *h100)
    assert (found["engine"], found["torch"]) == ("1.0", "2.13.0+cu129")


@pytest.mark.heavy
def test_an_older_torch_comes_before_an_older_program(workshop):
    done = workshop.run("lock", "gptq", *H100)
    assert done.ok, done.err
    assert "gptq 0.7.1 is incompatible with torch 2.15.0+cu130" in done.err
    assert "runs beside torch 2.13.0+cu129" in done.err
    for driver in ("550.54.14", "580.95.05"):
        assert locked(workshop, "gptq", *H100[:3], driver)["gptq"] == "0.7.1"


@pytest.mark.heavy
def test_an_older_program_is_taken_where_it_goes_with_no_older_torch(workshop):
    done = workshop.run("lock", "bound", *H100)
    assert done.ok, done.err
    assert "bound 1.0 is the newest that runs here" in done.err
    found = locked(workshop, "bound", *H100)
    assert (found["bound"], found["torch"]) == ("1.0", "2.15.0+cu130")


@pytest.mark.heavy
def test_a_gpu_that_was_taken_up_again_gets_the_newest_that_serves_it(workshop):
    done = workshop.run("lock", "wavering", *V100)
    assert "wavering 6 is the newest that runs here" in done.err
    assert locked(workshop, "wavering", *V100)["wavering"] == "6"


@pytest.mark.heavy
@pytest.mark.parametrize(("driver", "version"), [("550.54.14", "1.26.0"), ("580.95.05", "1.31.1")])
def test_code_for_gpus_that_demands_no_torch_counts_by_its_own_cuda(workshop, driver, version):
    for program in ("onnxruntime-gpu", "rembg"):
        found = locked(workshop, program, "--gpu", "RTX 3090", "--driver", driver)
        assert found["onnxruntime-gpu"] == version


@pytest.mark.heavy
def test_a_part_that_a_program_does_without_never_makes_it_older(workshop):
    done = workshop.run("lock", "axolotl", *V100)
    assert done.ok, done.err
    assert "xformers 0.0.35 may have no code for V100" in done.err
    assert locked(workshop, "axolotl", *V100)["axolotl"] == "0.13.0"


def test_a_cuda_that_is_opened_by_name_alone_counts_as_authored(workshop):
    found = locked(workshop, "faster-whisper", *H100)
    assert (found["ctranslate2"], found["torch"]) == ("4.8.5", "2.13.0+cu129")


@pytest.mark.heavy
def test_a_library_that_is_opened_and_missing_is_added_where_no_torch_brings_it(
    workshop,
):
    done = workshop.run("lock", "faster-whisper", "torch==2.15.0", *H100)
    assert "is for CUDA 12; nvidia-cublas-cu12 provides the library that it loads" in done.err
    found = locked(workshop, "faster-whisper", "torch==2.15.0", *H100)
    assert (found["ctranslate2"], found["torch"]) == ("4.8.5", "2.15.0+cu130")
    assert found["nvidia-cublas-cu12"] == "12.9.1.4"


def test_a_library_is_added_only_where_the_driver_runs_what_opens_it(workshop):
    machine = ("--gpu", "RTX 3090", "--driver", "470.256.02", "--glibc", "2.31")
    done = workshop.run("lock", "ctranslate2", *machine)
    assert done.ok, done.err
    said = " ".join(done.err.split())
    assert "ctranslate2 3.24.0 is the newest that runs here" in said
    assert "provides the library" not in said
    assert locked(workshop, "ctranslate2", *machine)["ctranslate2"] == "3.24.0"


@pytest.mark.heavy
def test_a_torch_that_a_version_does_not_allow_is_not_said_to_run_with_it(
    workshop,
):
    done = workshop.run("lock", "pinned", *H100)
    assert done.ok, done.err
    said = " ".join(done.err.split())
    assert "pinned 2.0 is incompatible with torch 2.15.0+cu130" in said
    assert "pinned 1.0 is the newest that runs here" in said
    found = locked(workshop, "pinned", *H100)
    assert (found["pinned"], found["torch"]) == ("1.0", "2.7.1+cu128")


@pytest.mark.parametrize(("gpu", "version"), [("V100", "9.10.2.21"), ("RTX 3090", "9.20.0.48")])
def test_a_cudnn_that_torch_does_not_pin_has_code_for_the_gpu(workshop, gpu, version):
    words = ("plain", "torch==2.10.0", "--backend", "cu126", "--gpu", gpu, "--driver", "535.183.01")
    assert locked(workshop, *words)["nvidia-cudnn-cu12"] == version


@pytest.mark.heavy
def test_numpy_is_one_that_torch_was_compiled_with(workshop):
    plan = workshop.document("plan", "--live", "torch<2.3", "numpy", *RTX_4090, "--python", "3.11")[
        "data"
    ]
    assert "numpy is 1.26.4 instead of 2.3.4: torch 2.2.2 requires numpy<2" in [
        one["message"] for one in plan["reasons"]
    ]
    assert (
        locked(workshop, "torch<2.3", "numpy", *RTX_4090, "--python", "3.11")["numpy"] == "1.26.4"
    )
    assert (
        locked(workshop, "needs-old-torch", "numpy", *RTX_4090, "--python", "3.11")["numpy"]
        == "1.26.4"
    )
    assert (
        locked(workshop, "torch", "numpy", "--only", *RTX_4090, "--python", "3.11")["numpy"]
        == "2.3.4"
    )


def test_a_file_whose_name_no_lock_can_hold_is_passed_over(workshop):
    assert locked(workshop, "k2", *RTX_4090)["k2"] == "1.22.0"


def test_a_package_that_no_version_of_runs_on_the_driver_is_refused_with_the_driver(
    workshop,
):
    error = workshop.document(
        "lock", "engine", "--gpu", "RTX 3090", "--driver", "470.256.02", exit_code=3
    )["errors"][0]
    assert error["code"] == "no-code-in-package"
    assert "CUDA 13.x needs driver 580 or newer" in error["message"]


@pytest.mark.heavy
def test_a_live_plan_looks_at_the_code_too(workshop):
    words = ("plan", "--live", "strange-kernels", *V100)
    assert workshop.document(*words, exit_code=3)["errors"][0]["code"] == "no-code-in-package"


@pytest.mark.heavy
def test_another_build_of_torch_is_taken_where_the_package_has_code_beside_that(
    workshop,
):
    versions = locked(workshop, "bitsandbytes", "torch==2.10.0", *V100)
    assert (versions["bitsandbytes"], versions["torch"]) == ("0.50.2", "2.10.0+cu126")


def test_a_package_that_no_row_names_and_no_version_serves_is_refused_with_file_and_gpu(
    workshop,
):
    envelope = workshop.document("lock", "strange-kernels", *V100, exit_code=3)
    (error,) = envelope["errors"]
    assert error["code"] == "no-code-in-package"
    assert "strange_kernels/ops.so is compiled for sm_90" in error["message"]
    assert "V100" in error["message"]
    assert error["hint"].startswith("gpuinstall run python -m pip install strange-kernels")


def test_no_wheel_of_a_dependency_is_read(workshop, index):
    index.forget()
    plan = workshop.document("plan", "--live", "suite", *V100)["data"]
    assert plan["warnings"] == []
    assert not any("strange" in asked.path and asked.range for asked in index.log)


def test_the_cuda_of_ptx_is_the_oldest_that_it_may_be(workshop):
    done = workshop.run("lock", "compiled", *H100)

    assert "Learned     compiled 30, CUDA 12.8 or newer: sm_80 compute_86" in done.err


def test_a_package_that_links_torch_takes_a_torch_with_its_symbols(workshop, served):
    library = native_library(
        served / "made" / "linking.so",
        undefined=["_ZNK3c106SymInt6sym_neERKS0_", *(f"other_{number}" for number in range(20))],
        needs=["libtorch.so", "libc10.so"],
        code=fatbin((2, 80, 0), (2, 90, 0)) * 3,
    )
    modules = {"linking/o.so": library.read_bytes(), **imports("linking", "linking/o.so")}
    make_wheel(served / "simple", "linking", "1.0", TAGS, requires=["torch"], modules=modules)

    done = workshop.run("lock", "linking", *H100)

    assert done.ok, done.err
    assert "its code works with torch 2.1 to 2.8; linking runs beside torch 2.7.1" in done.err


def test_a_runtime_that_is_linked_in_has_its_own_cuda(workshop, served):
    kernels = fatbin((2, 80, 0), (2, 90, 0), (1, 90, 0), isa=(8, 8)) * 3
    modules = {"boosted/o.so": kernels, **imports("boosted", "boosted/o.so")}
    make_wheel(served / "simple", "boosted", "1.0", TAGS, requires=["torch"], modules=modules)

    versions = locked(workshop, "boosted", *H100)

    assert versions["torch"].startswith("2.15.0")


def test_code_for_a_cuda_that_the_driver_does_not_run_is_passed_over(workshop, served):
    for version, isa in (("1.0", (8, 8)), ("2.0", (9, 4))):
        kernels = fatbin((2, 70, 0), (2, 80, 0), (1, 80, 0), isa=isa) * 3
        modules = {"newer/o.so": kernels, **imports("newer", "newer/o.so")}
        make_wheel(served / "simple", "newer", version, TAGS, requires=["torch"], modules=modules)

    assert locked(workshop, "newer", *V100)["newer"] == "1.0"


def test_what_the_makers_state_counts_where_the_files_tell_nothing(workshop, served):
    for version in ("1.17.0", "1.19.0"):
        modules: dict[str, str | bytes] = {
            "warp/__init__.py": "",
            "warp/bin/warp.so": b"\0" * 500,
        }
        make_wheel(served / "simple", "warp-lang", version, TAGS, modules=modules)

    assert locked(workshop, "warp-lang", *V100)["warp-lang"] == "1.17.0"
    assert locked(workshop, "warp-lang", *H100)["warp-lang"] == "1.19.0"


def test_a_library_of_another_package_is_added(workshop, served):
    library = native_library(
        served / "made" / "quantum.so", needs=["libcustatevec.so.1", "libcudart.so.12"]
    )
    modules = {"quantum/o.so": library.read_bytes(), **imports("quantum", "quantum/o.so")}
    make_wheel(served / "simple", "quantum", "1.0", TAGS, requires=["torch"], modules=modules)
    make_wheel(served / "simple", "custatevec-cu12", "1.9.0", TAGS)

    versions = locked(workshop, "quantum", *V100)

    assert versions["custatevec-cu12"] == "1.9.0"


@pytest.mark.parametrize("requested", ["sailor-cu13", "captain"])
def test_the_same_package_for_the_cuda_of_torch_is_named(workshop, served, requested):
    for major in ("12", "13"):
        name = f"sailor-cu{major}"
        library = native_library(
            served / "made" / f"{requested}-{name}.so", needs=[f"libcudart.so.{major}"]
        )
        modules = {"sailor/o.so": library.read_bytes(), **imports("sailor", "sailor/o.so")}
        make_wheel(served / "simple", name, "1.0", TAGS, requires=["torch"], modules=modules)
    make_wheel(served / "simple", "captain", "1.0", requires=["torch", "sailor-cu13==1.0"])

    done = workshop.run("lock", requested, *V100)

    said = " ".join(done.err.split())
    assert "sailor-cu13 1.0 does not run on driver 570.86.15" in said
    assert "; for CUDA 12 it is sailor-cu12" in said


def test_an_extra_that_no_version_has_is_named(workshop, served):
    make_wheel(served / "simple", "unnamed", "2.0", requires=["torch"])

    done = workshop.run("lock", "unnamed[fast]", *V100)

    assert done.ok, done.err
    assert "unnamed 2.0 has no extra fast" in done.err


def test_packages_that_do_not_go_together_are_warned_of(workshop, served):
    make_wheel(served / "simple", "nvidia-cudnn-cu13", "9.21.0.1", TAGS)
    for name in ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"):
        make_wheel(served / "simple", f"having-{name}", "1.0", requires=["torch", name])

    words = ("having-nvidia-cudnn-cu12", "having-nvidia-cudnn-cu13")
    done = workshop.run("lock", "torch==2.15.0", *words, *H100)

    assert done.ok, done.err
    assert (
        "warning: nvidia-cudnn-cu12 9.20.0.48 and nvidia-cudnn-cu13 9.10.2.21 do not go together: "
        "both write the same files"
    ) in " ".join(done.err.split())


@pytest.mark.parametrize("requested", ["index-cu128", "indexing"])
def test_the_cuda_in_a_name_and_in_metadata_counts_where_nothing_is_native(
    workshop, served, requested
):
    make_wheel(served / "simple", "index-cu128", "1.0", requires=["torch", "indexing"])
    requires = ["torch", "nvidia-cuda-runtime-cu12>=12.8"]
    make_wheel(served / "simple", "indexing", "1.0", TAGS, requires=requires)
    make_wheel(served / "simple", "nvidia-cuda-runtime-cu12", "12.9.1", TAGS)

    machine = ("--gpu", "Quadro P2000", "--driver", "470.256.02", "--glibc", "2.31")
    done = workshop.run("lock", requested, *machine)

    assert done.status == 3
    said = " ".join(done.err.split())
    assert f"{requested} 1.0 does not run on driver 470.256.02: it is for CUDA 12" in said


def test_a_program_is_taken_that_does_without_a_dependency_of_another_cuda(workshop, served):
    make_wheel(served / "simple", "cutting-libs-cu13", "4.8", TAGS)
    for version, requires in (("1.0", ["torch"]), ("2.0", ["torch", "cutting-libs-cu13"])):
        make_wheel(served / "simple", "serving", version, requires=requires)

    done = workshop.run("lock", "serving", *V100)

    assert done.ok, done.err
    said = " ".join(done.err.split())
    assert "cutting-libs-cu13 4.8 does not run on driver 570.86.15: it is for CUDA 13" in said
    assert locked(workshop, "serving", *V100)["serving"] == "1.0"


def test_kernels_for_single_chips_alone_refuse_nothing(workshop, served):
    code = fatbin((2, 90, 0x100000)) * 2 + fatbin((2, 100, 0x100000)) * 2
    modules: dict[str, str | bytes] = {"special/_ext.so": code}
    make_wheel(served / "simple", "special", "1.0", TAGS, requires=["torch"], modules=modules)

    done = workshop.run("lock", "special", *V100)

    assert done.ok, done.err
    assert "warning: special 1.0 has no code for V100" in " ".join(done.err.split())


def test_kernels_for_single_chips_take_the_torch_of_their_cuda(workshop, served):
    library = native_library(
        served / "made" / "chip.so",
        needs=["libtorch_cuda.so", "libnvrtc.so.12"],
        undefined=["aoti_torch_abi_version"],
        code=fatbin((2, 90, 0x100000)) * 3,
    )
    modules: dict[str, str | bytes] = {"chip/_ext.so": library.read_bytes()}
    make_wheel(served / "simple", "chip", "1.0", TAGS, requires=["torch"], modules=modules)
    machine = ("--gpu", "RTX 5090", "--driver", "580.95.05", "--glibc", "2.35")

    assert locked(workshop, "chip", *machine)["torch"] == "2.13.0+cu129"
