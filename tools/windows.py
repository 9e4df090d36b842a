"""Makes ``docs/windows.md``: which file of an extension a machine with Windows gets, or why it gets none.

The default index is asked, and its files are read where they lie. The other sources could not be asked: their pages are
played with the names in ``tools/windows/pages.toml``, and their files are made with the code that is said to be in them.
``python -m tools.windows``
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import tomli
from packaging.utils import parse_wheel_filename
from tests.lab.pe import make_dll
from tests.lab.wheels import make_wheel
from tests.unit.wheels.made import fatbin

from gpuinstall.catalog import load_catalog
from gpuinstall.files import write_atomically
from gpuinstall.lock.prebuilt import choose_prebuilt, extension_row
from gpuinstall.lock.request import LockRequest
from gpuinstall.reporter import SilentReporter
from gpuinstall.request import Request
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources
from gpuinstall.web.client import Client, Page
from gpuinstall.words import machine_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.extensions.choice import ExtensionChoice
    from gpuinstall.session import Session

    Played = dict[str, dict[str, str]]
    """By the address of a page: the names of its files, and the code of each."""

PAGE = Path(__file__).parent.parent / "docs" / "windows.md"
PAGES = Path(__file__).parent / "windows" / "pages.toml"
PYTHON = "3.12"
MACHINES = (
    ("RTX 5090", "591.44"),
    ("RTX 5090", "572.83"),
    ("RTX 4090", "591.44"),
    ("RTX 4090", "537.58"),
    ("RTX 3060", "591.44"),
    ("RTX 3060", "531.79"),
    ("RTX 2080 Ti", "591.44"),
    ("GTX 1080 Ti", "581.57"),
)
EXTENSIONS = (
    "triton-windows",
    "xformers",
    "bitsandbytes",
    "flash-attn",
    "sageattention",
    "sageattn3",
    "spas-sage-attn",
    "nunchaku",
    "natten",
    "mmcv",
    "causal-conv1d",
    "mamba-ssm",
)
TENSOR = "??1Tensor@at@@QEAA@XZ"
"""A function of torch's C++."""
INTRODUCTION = f"""# Extensions on Windows

Which prebuilt file `gpuinstall install EXTENSION` takes on a machine with Windows and Python {PYTHON}, beside which torch,
or why it takes none. `gpuinstall extensions NAME --gpu "RTX 4090" --driver 591.44 --os windows` tells it of any machine.

**What is real, and what is played.** The default index was asked, and its files were read by range. The pages of
Comfy-Forge and of GitHub's releases could not be asked: they are played with the names of files that public copies of them
list (`tools/windows/pages.toml` says which), and each file with a star was made: it has the GPU code that its publisher
tells of, and is linked to torch and to the CUDA of its name. What such a file really has is read when it is chosen. The
builds of torch are those of the catalogue. Made by `python -m tools.windows`.
"""


class PlayedClient(Client):
    """Answers for every host but those of the default index with the pages that are played."""

    def __init__(self, real: Client, default_index: str, pages: dict[str, Page]) -> None:
        self._real = real
        self._default_index = default_index
        self._pages_by_address = pages
        self.patience = real.patience
        self.ask_part = real.ask_part  # type: ignore[method-assign]

    def page(self, url: str) -> Page | None:
        """Return a page of the default index, or a played one."""
        if url.startswith(self._default_index):
            return self._real.page(url)
        return self._pages_by_address.get(url)


def make_files(folder: Path, played: Played) -> dict[str, Page]:
    """Make the files of the pages, and return the pages."""
    pages = {}
    for address, files in played.items():
        links = []
        for name, code in files.items():
            path = make_file(folder, name, code)
            links.append(f'<a href="{path.as_uri()}">{name}</a>\n')
        pages[address] = Page("".join(links), "text/html", folder.as_uri())
    return pages


def make_file(folder: Path, name: str, code: str) -> Path:
    """Make a wheel with one library: linked to torch and the CUDA of its name, with code for some architectures."""
    package, version, *_ = parse_wheel_filename(name)
    [_, _, *tags] = name.removesuffix(".whl").split("-")
    local = version.local or ""
    imports = {"torch_cpu.dll": [TENSOR], f"cudart64_{local[2:4]}.dll": []}
    entries = []
    for word in code.split():
        kind = 1 if word.startswith("+") else 2
        entries.append((kind, int(word), 0))
    library = make_dll(imports) + fatbin(*entries) * 3
    module = package.replace("-", "_")
    modules: dict[str, str | bytes] = {
        f"{module}/__init__.py": "from . import _C\n",
        f"{module}/_C.pyd": library,
    }
    return make_wheel(folder, package, str(version), "-".join(tags), modules=modules)


def choose(name: str, gpu: str, driver: str, session: Session) -> tuple[ExtensionChoice, str]:
    """Return what comes of an extension on a machine, and the torch that it would have without it."""
    machine = machine_in_words((gpu,), driver, os="windows")
    request = LockRequest(machine, Request(("torch",), python=PYTHON), load_catalog())
    choice = choose_prebuilt(extension_row(name, session), request, session)
    return choice, request.plan.choice.build.name


def cells(choice: ExtensionChoice) -> tuple[str, str]:
    """Return the words for the tables: in short, and in whole."""
    if choice.fit:
        wheel = choice.fit.file.wheel
        star = "\\*" if wheel.url.startswith("file:") else ""
        code = " ".join(choice.fit.row.architectures).replace("sm_", "").replace("compute_", "+")
        source = choice.fit.file.source.id
        torch = choice.fit.build.name
        long = f"torch {torch} | `{wheel.filename}`{star} | {source} | {code or '–'}"
        return f"{wheel.version.public}{star}, {torch}", long
    if choice.refusal:
        reason = choice.refusal.message
    elif choice.closest:
        rejection = choice.closest[0]
        file, _ = rejection.candidate
        reason = f"`{file.wheel.filename}` {rejection.reason.message}"
    else:
        reason = f"no source has a file for Windows and Python {PYTHON}"
    return "–", f"– | {reason} | – | –"


def page(session: Session) -> Iterator[str]:
    """Write a table of all, and one for each machine."""
    yield INTRODUCTION
    yield f"| GPU, driver | torch alone | {' | '.join(EXTENSIONS)} |"
    yield f"|---|---|{'---|' * len(EXTENSIONS)}"
    sections = []
    for gpu, driver in MACHINES:
        shorts = []
        rows = []
        without = ""
        for name in EXTENSIONS:
            choice, without = choose(name, gpu, driver, session)
            short, long = cells(choice)
            shorts.append(short)
            rows.append(f"| {name} | {long} |")
        yield f"| {gpu}, {driver} | {without} | {' | '.join(shorts)} |"
        head = "| extension | beside | file, or why none | from | code |\n|---|---|---|---|---|"
        sections.append("\n".join([f"\n## {gpu}, driver {driver}\n", head, *rows]))
    yield from sections


def main() -> None:
    """Make the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # What is learned of files that were made is no knowledge of this user's.
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        played = tomli.loads(PAGES.read_text("utf-8"))
        pages = make_files(folder, played)
        sources = read_sources(None, os.environ, folder)
        with open_session(sources, SilentReporter()) as session:
            client = PlayedClient(session.client, session.default_index or "", pages)
            text = "\n".join(page(replace(session, client=client)))
    write_atomically(PAGE, text + "\n")


if __name__ == "__main__":
    main()
