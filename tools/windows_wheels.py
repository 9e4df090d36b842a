"""Makes ``docs/evidence/windows-wheels.md``: what wheels for Windows say of themselves, beside an independent reader.

The wheels are those of the default index, read by range. ``python -m tools.windows_wheels RESULTS.json PYTHON``, where
PYTHON is an interpreter with ``pefile``. What was read is kept, so that a run goes on where the last one ended.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog.listing import default_wheels
from gpuinstall.errors import GpuInstallError
from gpuinstall.files import write_atomically
from gpuinstall.patience import Patience
from gpuinstall.reporter import SilentReporter
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources
from gpuinstall.wheels.gpu_code import read_fatbins
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.needs import load_libraries, needs_of, read_native
from gpuinstall.wheels.pe import imported_functions, without_relocatable
from gpuinstall.wheels.ranges import Limits
from gpuinstall.wheels.wheel_reader import WheelReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zipfile import ZipInfo

    from packaging.version import Version

    from gpuinstall.catalog import Wheel
    from gpuinstall.session import Session

    Row = dict[str, Any]
    """What both readers say of a library."""

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "windows-wheels.md"
PACKAGES = {
    "xformers": 10,
    "triton-windows": 10,
    "bitsandbytes": 10,
    "comfy-kitchen": 10,
    "onnxruntime-gpu": 2,
    "torch": 1,
    "torchvision": 1,
    "torchaudio": 1,
    "nvidia-cuda-runtime-cu12": 1,
    "nvidia-cuda-runtime": 1,
    "nvidia-cublas-cu12": 1,
    "nvidia-cublas": 1,
    "nvidia-cudnn-cu12": 1,
    "nvidia-cudnn-cu13": 1,
    "nvidia-cufft-cu12": 1,
    "nvidia-cusparse-cu12": 1,
    "nvidia-cuda-nvrtc-cu12": 1,
}
"""How many of the newest releases with a wheel for Windows are read."""
PYTHON = "cp312"
LIBRARIES = 3
"""How many libraries of a wheel are compared, the largest."""
WHOLE = 12 << 20
"""Up to so many packed bytes a library is read to its end for its GPU code."""
LONGEST_NAME = 512
"""At how many characters pefile cuts the name of a function."""
LIMITS = Limits(bytes=1 << 30, inflated=8 << 30, requests=200)
READER = """
import json, struct, sys, pefile

pefile.MAX_IMPORT_SYMBOLS = 1 << 20

pe = pefile.PE(sys.argv[1], fast_load=True)
if sys.argv[2] == "end":
    end = 0
    for number in (1, 13):
        table = pe.OPTIONAL_HEADER.DATA_DIRECTORY[number]
        section = pe.get_section_by_rva(table.VirtualAddress) if table.VirtualAddress else None
        if section:
            end = max(end, section.PointerToRawData + section.SizeOfRawData)
    print(end)
    sys.exit()
pe.parse_data_directories(directories=[1, 13])
imports = {}
for table in ("DIRECTORY_ENTRY_IMPORT", "DIRECTORY_ENTRY_DELAY_IMPORT"):
    for entry in getattr(pe, table, ()):
        # pefile gives functions that have numbers alone names from a table of its own.
        by_name = [function for function in entry.imports if not function.import_by_ordinal]
        names = [function.name.decode("latin-1") for function in by_name]
        imports.setdefault(entry.dll.decode(), []).extend(names)
code = set()
for section in pe.sections:
    if section.Name.startswith(b".nv_fatb"):
        data = section.get_data()
        at = 0
        while at + 16 <= len(data) and data[at:at + 4] == b"\\x50\\xed\\x55\\xba":
            end = at + 16 + struct.unpack_from("<Q", data, at + 8)[0]
            at += 16
            while at < end:
                kind, size, length = struct.unpack_from("<H2xIQ", data, at)
                code.add(("", "+", "")[kind] + str(struct.unpack_from("<I", data, at + 28)[0]))
                at += size + length
            at = (end + 7) & ~7
print(json.dumps({"imports": imports, "code": sorted(code, key=lambda name: (name[0] == "+", int(name)))}))
"""
INTRODUCTION = f"""# Wheels for Windows, read by two readers

The newest wheels for Windows and Python 3.12 of the default index, and their {LIBRARIES} largest libraries, read by range.
Beside each stands what `pefile`, another reader of such files, says of the same bytes: the libraries that it is linked to,
the functions that it takes from torch, and, in libraries of up to {WHOLE >> 20} MB, the architectures of its GPU code, of
which gpuinstall names those of most kernels, and pefile's section all. "Read" is what gpuinstall read of the wheel.
No GPU and no Windows was used. Made by `python -m tools.windows_wheels`.
"""


def newest(session: Session, package: str, count: int) -> list[Wheel]:
    """Return a wheel for Windows of each of the newest releases."""
    sources = replace(session.sources, default_index=session.default_index)
    chosen: dict[Version, Wheel] = {}
    for wheel in default_wheels(sources, session.client, package):
        tags = {str(tag) for tag in wheel.tags}
        is_for_python = any(
            tag.endswith("win_amd64") and (PYTHON in tag or "abi3" in tag or tag.startswith("py3"))
            for tag in tags
        )
        if is_for_python and not wheel.version.is_prerelease:
            chosen[wheel.version] = wheel
    return [chosen[version] for version in sorted(chosen, reverse=True)[:count]]


def compare(wheel: Wheel, session: Session, python: str) -> Row:
    """Return what both readers say of a wheel."""
    ranges = HttpRanges(session.client.ask_part, wheel.url, patience=Patience(450))
    reader = WheelReader(ranges, LIMITS)
    native = read_native(reader)
    needs = needs_of(native, reader)
    read = reader.bytes_read
    own = WheelReader(ranges, LIMITS)
    members = [member for member in own.members.values() if member.filename in native.imports]
    members.sort(key=lambda member: -member.file_size)
    rows = {}
    for member in members[:LIBRARIES]:
        rows[member.filename] = library(member, own, python)
    return {
        "size": reader.size,
        "read": read,
        "cuda": needs.cuda,
        "torch": needs.torch.kind,
        "oldest": needs.torch.oldest,
        "unread": list(native.unread),
        "libraries": rows,
    }


def library(member: ZipInfo, wheel: WheelReader, python: str) -> Row:
    """Return what both readers say of a library."""
    is_whole = member.compress_size <= WHOLE
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "library.dll"
        file.write_bytes(beginning(wheel, member, 4096))
        end = member.file_size if is_whole else int(ask(python, file, "end"))
        file.write_bytes(beginning(wheel, member, end))
        other = json.loads(ask(python, file, "contents"))
        with file.open("rb") as stream:
            data = stream.read()
    functions = imported_functions([data]) or {}
    imports = {}
    for name, names in functions.items():
        imports[name] = sorted({function.decode()[:LONGEST_NAME] for function in names})
    code = read_fatbins(without_relocatable([data]), whole=True).architectures if is_whole else ()
    return {
        "imports": imports,
        "other": {name: sorted(set(names)) for name, names in other["imports"].items()},
        "code": [one.replace("sm_", "").replace("compute_", "+") for one in code],
        "other_code": other["code"] if is_whole else [],
        "is_whole": is_whole,
    }


def beginning(wheel: WheelReader, member: ZipInfo, size: int) -> bytes:
    """Return the first bytes of a library."""
    data = bytearray()
    with closing(wheel.stream(member.filename)) as pieces:
        for piece in pieces:
            data += piece
            if len(data) >= size:
                break
    return bytes(data[:size])


def ask(python: str, file: Path, what: str) -> str:
    """Ask the other reader."""
    command = [python, "-c", READER, str(file), what]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def page(results: dict[str, Row]) -> Iterator[str]:
    """Write a row for each library."""
    yield INTRODUCTION
    rows = [row for wheel in results.values() for row in wheel["libraries"].values()]
    same = sum(row["imports"] == row["other"] for row in rows)
    functions = sum(len(names) for row in rows for names in row["imports"].values())
    with_code = [row for row in rows if row["code"]]
    alike = sum(set(map(number, row["code"])) <= set(row["other_code"]) for row in with_code)
    yield f"{len(results)} wheels, {len(rows)} libraries: of {same} both readers name the same libraries and functions,"
    yield f"{functions} in all; of {alike} of {len(with_code)} with GPU code that were read whole, all architectures are in"
    yield f"the section that pefile shows. {names_and_links(results)}\n"
    yield "| wheel | read | CUDA | torch | library | linked to | of torch | pefile | code | pefile |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, wheel in results.items():
        torch = wheel["torch"] if not wheel["oldest"] else f"stable, {wheel['oldest']} and newer"
        head = f"`{name}` | {wheel['read'] / 1e6:.2f} of {wheel['size'] / 1e6:.0f} MB | {wheel['cuda'] or '–'} | {torch}"
        if wheel["unread"]:
            head += f"; not read: {', '.join(wheel['unread'])}"
        for path, row in wheel["libraries"].items() or {"–": None}.items():
            yield f"| {head} | {library_cells(path, row)} |"
            head = "| | | "


def names_and_links(results: dict[str, Row]) -> str:
    """Return how often the CUDA in the name of a library is that of what it is linked to."""
    same = other = silent = 0
    for wheel in results.values():
        for path, row in wheel["libraries"].items():
            named = re.search(r"_cuda(\d\d)\d\.", path)
            if named is None:
                continue
            linked = load_libraries().cuda_majors(row["imports"])
            same += linked == {int(named[1])}
            silent += not linked
            other += linked not in (set(), {int(named[1])})
    return (
        f"Of {same + other + silent} libraries with a CUDA in their name, {same} are linked to libraries of its major, "
        f"{other} to others, {silent} to none of CUDA."
    )


def number(architecture: str) -> str:
    """Return an architecture without the letter that pefile does not show: 90 of 90a."""
    return architecture.rstrip("af")


def library_cells(path: str, row: Row | None) -> str:
    """Return the cells of a library."""
    if row is None:
        return "– | – | – | – | – | –"
    linked = [name for name in row["imports"] if load_libraries().cuda(name)]
    of_torch = sum(len(names) for name, names in row["imports"].items() if is_of_torch(name))
    verdict = "the same" if row["imports"] == row["other"] else "differs"
    count = f"{len(row['imports'])}{': ' if linked else ''}{', '.join(linked)}"
    code = " ".join(row["code"]) or "–"
    other_code = " ".join(row["other_code"]) or "–"
    if not row["is_whole"]:
        code = other_code = "not looked at"
    return f"`{path}` | {count} | {of_torch or '–'} | {verdict} | {code} | {other_code}"


def is_of_torch(library: str) -> bool:
    """Whether a library is one of torch's."""
    return library.startswith(("torch", "c10")) and library.endswith(".dll")


def main() -> None:
    """Read what is not read yet, and make the page."""
    kept = Path(sys.argv[1])
    python = sys.argv[2]
    results: dict[str, Row] = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    with open_session(read_sources(None, os.environ, Path.cwd()), SilentReporter()) as session:
        for package, count in PACKAGES.items():
            for wheel in newest(session, package, count):
                if wheel.filename in results:
                    continue
                try:
                    results[wheel.filename] = compare(wheel, session, python)
                except (GpuInstallError, subprocess.CalledProcessError) as error:
                    print(f"{wheel.filename}: {error}", flush=True)  # noqa: T201
                    continue
                print(wheel.filename, flush=True)  # noqa: T201
                kept.write_text(json.dumps(results), encoding="utf-8")
    write_atomically(PAGE, "\n".join(page(results)) + "\n")


if __name__ == "__main__":
    main()
