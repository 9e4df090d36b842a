"""Extensions that are named: one file of a bound source and torch, chosen together while locking."""

import hashlib
import json
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

import pytest
from uv import find_uv_bin

from gpuinstall.base import process
from gpuinstall.lock.lock import read_lock
from tests.lab.extension_index import ExtensionIndex
from tests.lab.host import NOT_FOUND, Answer, Host
from tests.lab.index import StandInIndex
from tests.lab.projects import make_sdist
from tests.lab.releases import catalog_index
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop
from tests.unit.catalog.extensions.test_choice import CU12, library
from tests.unit.wheels.made import archive
from tests.unit.wheels.test_needs import FROM_2_10

RTX_3090 = ("--gpu", "RTX 3090", "--driver", "550.54.14", "--python", "3.12")
ENTRY = "flash-attn"


@pytest.fixture
def extensions(tmp_path):
    """flash-attn 2.8.3 for torch 2.10, and 2.8.2 for torch 2.13."""
    index = ExtensionIndex()
    for version, torch in (("2.8.3", "2.10"), ("2.8.2", "2.13")):
        built = library(
            tmp_path / torch,
            FROM_2_10,
            needs=("libtorch.so", "libc10.so", "libcudart.so.12"),
        )
        index.add("cu126", ENTRY, f"cu.12.6.torch.{torch}", built, version=version)
    host = index.host()
    index.url = host.url
    yield index
    host.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Two releases of torch, a program that wants the newer one and another that has flash-attn as an extra."""
    folder = catalog_index(
        tmp_path_factory.mktemp("ext"), ["2.10.0", "2.13.0"], platforms=["linux-x86_64"]
    )
    make_wheel(folder / "simple", "einops", "0.8")
    make_wheel(folder / "simple", "pyg-lib", "0.9.0")
    make_wheel(folder / "simple", "needy", "1.0", requires=["torch", "pyg-lib"])
    make_wheel(folder / "simple", "modern", "1.0", requires=["torch==2.13.0"])
    make_wheel(
        folder / "simple",
        "transformers",
        "5.0",
        requires=["torch", f"{ENTRY}; extra == 'flash'"],
    )
    return folder


@dataclass
class Page:
    """A page of files of somebody's, with their hashes or without."""

    files: dict[str, bytes] = field(default_factory=dict)
    hashed: bool = False
    url: str = ""

    def add(self, name, built, said="", *, plain=False):
        """List a file; ``said`` makes it another; with ``plain`` METADATA has the version without its label."""
        package, version = name.split("-")[:2]
        if plain:
            version = version.partition("+")[0]
        metadata = f"Metadata-Version: 2.4\nName: {package}\nVersion: {version}\nSummary: {said}\n"
        record = f"{package}-{version}.dist-info"
        held = {
            f"{record}/METADATA": metadata.encode(),
            f"{record}/WHEEL": b"Wheel-Version: 1.0\n",
        }
        held |= {f"{package}/_C.so": built.read_bytes()} if built else {}
        self.files[name] = archive(
            held
            | {f"{record}/RECORD": "".join(f"{path},,\n" for path in held).encode()}
        )

    def sha256(self, name):
        return hashlib.sha256(self.files[name]).hexdigest()

    def respond(self, path, _headers):
        name = unquote(path.rpartition("/")[2])
        if name in self.files:
            return Answer(body=self.files[name])
        hashes = {
            name: f"#sha256={self.sha256(name)}" if self.hashed else ""
            for name in self.files
        }
        links = "".join(
            f'<a href="{quote(name)}{digest}">{name}</a>'
            for name, digest in hashes.items()
        )
        return (
            Answer(body=links.encode(), content_type="text/html")
            if name == "files"
            else NOT_FOUND
        )


@pytest.fixture
def page():
    page = Page()
    host = Host("page", page.respond)
    page.url = f"{host.url}/files"
    yield page
    host.close()


@pytest.fixture
def workshop(served, extensions, tmp_path):
    (tmp_path / "project").mkdir()
    with StandInIndex(served) as index:
        mirror = {"GPUINSTALL_EXTENSION_INDEX": f"{extensions.url}/simple"}
        yield Workshop(
            tmp_path / "project", tmp_path / "caches", index.environment() | mirror
        )


def declare_source(workshop, url):
    """Let the folder name a further page of prebuilt extensions."""
    text = f'[tool.gpuinstall]\nextension-sources = ["{url}"]\n'
    (workshop.folder / "pyproject.toml").write_text(text, "utf-8")


def test_the_newest_extension_comes_first_then_torch_and_its_file_is_locked_with_its_hash(
    workshop, extensions
):
    done = workshop.run("lock", ENTRY, *RTX_3090)
    assert done.ok, done.err
    assert (
        "flash-attn 2.8.3 has prebuilt files only up to torch 2.10.0; without it torch 2.13.0"
        in done.err
    )
    lock = read_lock(workshop.folder / "pylock.cu126.toml")
    assert (lock.versions[ENTRY], lock.versions["torch"]) == (
        "2.8.3+cu.12.6.torch.2.10",
        "2.10.0+cu126",
    )
    (file,) = (file for file in lock.files if file.package == ENTRY)
    assert file.url.startswith(f"{extensions.url}/artifacts/{file.sha256}/")
    assert workshop.run("lock", "check").ok


def test_a_plan_tells_which_file_is_taken_and_why_not_the_others(
    workshop, extensions, tmp_path
):
    done = workshop.run("plan", "--live", "--all", ENTRY, *RTX_3090)
    assert done.ok, done.err
    said = " ".join(done.out.split())
    assert "file flash_attn-2.8.3+cu.12.6.torch.2.10-" in said
    (found,) = workshop.document("plan", "--live", ENTRY, *RTX_3090)["data"][
        "extensions"
    ]
    assert (found["name"], found["fit"]["torch"]) == (ENTRY, "2.10.0+cu126")
    assert (found["fit"]["source"], len(found["fit"]["sha256"])) == ("astral", 64)

    good = library(tmp_path, FROM_2_10)
    names = [
        extensions.add(
            "cu126", "mamba-ssm", "cu.12.6.torch.2.9", good, version=f"2.{minor}.1"
        )
        for minor in range(5)
    ]
    refused = workshop.run("plan", "--live", "--all", "mamba-ssm", *RTX_3090)
    assert refused.status == 3
    assert [name for name in names if name not in refused.err] == []


@pytest.mark.heavy
def test_a_lock_with_a_file_of_a_source_can_be_installed_and_of_a_strange_host_cannot(
    workshop,
):
    assert workshop.run("lock", ENTRY, *RTX_3090).ok
    done = workshop.run("sync", "--target", "cu126", "--dry-run")
    assert done.ok, done.err
    elsewhere = {
        **workshop.variables,
        "GPUINSTALL_EXTENSION_INDEX": "http://127.0.0.1:9/simple",
    }
    strange = Workshop(
        workshop.folder, workshop.caches, {**elsewhere, "GPUINSTALL_TRUST_FOLDER": "0"}
    )
    assert (
        strange.refusal("sync", "--target", "cu126", "--dry-run", exit_code=6)["code"]
        == "lock-source"
    )


def test_a_gpu_that_no_build_of_it_serves_is_refused_before_anything_is_asked(
    workshop, extensions
):
    v100 = ("--gpu", "V100", "--driver", "550.54.14")
    error = workshop.refusal("plan", "--live", ENTRY, *v100, exit_code=3)
    assert error["code"] == "no-code"
    assert (
        "flash-attn requires compute capability 8.0 or newer, and V100 has 7.0"
        in error["message"]
    )
    assert extensions.addresses == []


@pytest.mark.heavy
def test_a_name_never_falls_through_to_the_default_index(workshop):
    error = workshop.refusal("lock", "pyg-lib", *RTX_3090, exit_code=3)
    assert error["code"] == "no-prebuilt-extension"
    # It has no source to compile either.
    assert error["hint"].startswith("Leave pyg-lib out")
    error = workshop.refusal("lock", "needy", *RTX_3090, exit_code=3)
    assert error["code"] == "extension-unlisted"
    assert "pyg-lib is taken from pyg, astral alone" in error["message"]


@pytest.mark.heavy
def test_a_file_whose_metadata_has_the_version_alone_is_locked_as_uv_and_pip_take_it(
    workshop, page, tmp_path
):
    name = "flash_attn-2.9.0+cu12torch2.13cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    page.add(name, library(tmp_path, FROM_2_10, needs=CU12), plain=True)
    declare_source(workshop, page.url)
    done = workshop.run("lock", ENTRY, *RTX_3090)
    assert done.ok, done.err
    lock = read_lock(workshop.folder / "pylock.cu126.toml")
    assert lock.versions[ENTRY] == "2.9.0+cu12torch2.13cxx11abitrue"
    assert workshop.run("lock", "check").ok
    (package,) = (one for one in lock.pylock.packages if one.name == ENTRY)
    assert package.wheels is None
    assert package.archive
    site = tmp_path / "site"
    # uv compares the lock's Python with the one that it runs on.
    open_to_any = lock.text.replace('requires-python = "==3.12.*"\n', "")
    (workshop.folder / "pylock.open.toml").write_text(open_to_any, "utf-8")
    words = ["pip", "install", "--target", str(site), "--python-version", "3.12", "-r"]
    installed = process.run(
        [find_uv_bin(), *words, "pylock.open.toml"],
        env=workshop.environment,
        cwd=workshop.folder,
        seconds=60,
    )
    assert installed.ok, installed.err
    assert (site / "flash_attn-2.9.0.dist-info").is_dir()


def test_a_source_that_is_named_leaves_pure_packages_alone_and_its_file_is_hashed_once(
    workshop, page, tmp_path
):
    page.add(
        "flash_attn-2.9.0+cu126torch2.13-cp312-cp312-linux_x86_64.whl",
        library(tmp_path, FROM_2_10, needs=CU12),
    )
    page.add("einops-9.0-py3-none-any.whl", None)
    declare_source(workshop, page.url)
    done = workshop.run("lock", ENTRY, "einops", *RTX_3090)
    assert done.ok, done.err
    lock = read_lock(workshop.folder / "pylock.cu126.toml")
    assert (lock.versions[ENTRY], lock.versions["einops"]) == (
        "2.9.0+cu126torch2.13",
        "0.8",
    )
    (file,) = (file for file in lock.files if file.package == ENTRY)
    assert file.sha256 == page.sha256(file.name)


@pytest.mark.heavy
def test_a_file_that_is_replaced_under_its_name_is_refused_until_an_upgrade(
    workshop, page, tmp_path
):
    name = "flash_attn-2.9.0+cu126torch2.13-cp312-cp312-linux_x86_64.whl"
    for hashed, code in ((False, "hash-mismatch"), (True, "no-prebuilt-extension")):
        (workshop.folder / "pylock.cu126.toml").unlink(missing_ok=True)
        page.hashed = hashed
        page.add(name, library(tmp_path, FROM_2_10, needs=CU12), "first")
        declare_source(workshop, page.url)
        assert workshop.run("lock", ENTRY, "flash-attn==2.9.0", *RTX_3090).ok
        page.add(name, library(tmp_path, FROM_2_10, needs=CU12), "second")
        again = workshop.run("lock", "einops", *RTX_3090, "--json")
        if again.ok:
            again = workshop.run("lock", "download", "files", "--json")
        assert json.loads(again.out)["errors"][0]["code"] == code
        assert workshop.run("lock", "--upgrade", *RTX_3090).ok
        (file,) = (
            file
            for file in read_lock(workshop.folder / "pylock.cu126.toml").files
            if file.package == ENTRY
        )
        assert file.sha256 == page.sha256(name)


@pytest.mark.heavy
def test_a_source_that_the_folder_names_is_said_and_can_be_refused(
    workshop, page, tmp_path
):
    page.add(
        "flash_attn-2.9.0+cu126torch2.13-cp312-cp312-linux_x86_64.whl",
        library(tmp_path, FROM_2_10, needs=CU12),
    )
    text = f'[tool.gpuinstall]\nrequirements = ["flash-attn"]\nextension-sources = ["{page.url}"]\n'
    (workshop.folder / "pyproject.toml").write_text(text, "utf-8")
    done = workshop.run("lock", *RTX_3090)
    assert done.ok, done.err
    assert (
        f"Index       {page.url}, as {workshop.folder / 'pyproject.toml'} says: a source of extensions"
        in done.err
    )
    strict = workshop.having(GPUINSTALL_TRUST_FOLDER="0")
    assert (
        strict.refusal("lock", *RTX_3090, exit_code=2)["code"] == "folder-not-trusted"
    )


def test_a_source_without_a_page_is_said(workshop, page):
    words = ("lock", ENTRY)
    declare_source(workshop, f"{page.url}/nothing")
    assert (
        workshop.refusal(*words, *RTX_3090, exit_code=4)["code"] == "extension-source"
    )
    declare_source(workshop, "here")
    assert workshop.refusal(*words, *RTX_3090, exit_code=2)["code"] == "source-setting"


def test_one_that_an_extra_brings_is_taken_beside_the_torch_that_the_program_wants(
    workshop, served
):
    for tool in ("setuptools", "wheel", "packaging", "psutil", "ninja"):
        make_wheel(served / "simple", tool, "80.0")
    make_sdist(served / "simple", ENTRY, "2.8.3", ["torch"], imports="import torch")
    done = workshop.run("lock", "transformers[flash]", *RTX_3090)
    assert done.ok, done.err
    versions = read_lock(workshop.folder / "pylock.cu126.toml").versions
    assert (versions[ENTRY], versions["torch"]) == (
        "2.8.2+cu.12.6.torch.2.13",
        "2.13.0+cu126",
    )


def test_one_that_was_not_named_never_moves_torch_and_nobody_is_asked(
    workshop, extensions
):
    extensions.addresses.clear()
    assert workshop.run("lock", "transformers", *RTX_3090).ok
    assert (
        read_lock(workshop.folder / "pylock.cu126.toml").versions["torch"]
        == "2.13.0+cu126"
    )
    assert extensions.addresses == []
