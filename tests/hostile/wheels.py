"""Kinds of hostile wheel."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

Files = dict[str, bytes]

INFO = "filelock-9.9.dist-info"


def _read(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(wheel, files, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(wheel, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)


def adding(*names, data=b"evil"):
    """With further entries."""
    return lambda wheel: _write(wheel, {**_read(wheel), **dict.fromkeys(names, data)})


def changed(name, change):
    """With one file of its metadata altered."""

    def craft(wheel):
        files = _read(wheel)
        files[f"{INFO}/{name}"] = change(files.get(f"{INFO}/{name}", b""))
        _write(wheel, files)

    return craft


def without(name):
    return lambda wheel: _write(
        wheel, {key: data for key, data in _read(wheel).items() if key != f"{INFO}/{name}"}
    )


def bytewise(change):
    """With the bytes of the archive altered."""
    return lambda wheel: _rewrite(wheel, change(wheel.read_bytes()))


def _rewrite(wheel, data):
    wheel.write_bytes(data)


def linked(wheel):
    """With a link that leads out, and a file below it."""
    files = _read(wheel)
    with zipfile.ZipFile(wheel, "w") as archive:
        link = zipfile.ZipInfo("filelock/out")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "../../../../../..")
        archive.writestr("filelock/out/victim", "evil")
        for name, data in files.items():
            archive.writestr(name, data)


def doubled(wheel):
    """With a file twice, the second of other content."""
    files = _read(wheel)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(
            zipfile.ZipInfo(f"{INFO}/METADATA"), "Metadata-Version: 2.1\nName: evil\nVersion: 1\n"
        )


def nested(wheel):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", b"0" * 50_000_000)
    adding("filelock/inner.zip", data=inner.getvalue())(wheel)


KINDS: dict[str, Callable[[Path], None]] = {
    "an entry that leads out": adding("../victim"),
    "an absolute entry": adding("/tmp/torture-evil"),  # noqa: S108  what a hostile wheel names
    "an entry with backslashes": adding("..\\..\\victim"),
    "an entry of data that leads out": adding("filelock-9.9.data/data/../../../victim"),
    "a script in the place of the interpreter": adding(
        "filelock-9.9.data/scripts/python", data=b"#!/bin/false\n"
    ),
    "a link that leads out": linked,
    "a file twice": doubled,
    "a bomb": adding("filelock/bomb", data=b"0" * 200_000_000),
    "a name without end": adding("filelock/" + "x" * 5000),
    "no metadata": without("METADATA"),
    "no record": without("RECORD"),
    "another name in its metadata": changed(
        "METADATA", lambda data: data.replace(b"filelock", b"evil")
    ),
    "ten thousand demands": changed(
        "METADATA",
        lambda data: (
            data + b"".join(b"Requires-Dist: evil-%d\n" % number for number in range(10_000))
        ),
    ),
    "a record of what is not there": changed(
        "RECORD", lambda data: data + b"../victim,sha256=x,1\n"
    ),
    "entry points in the place of programs": changed(
        "entry_points.txt",
        lambda _: b"[console_scripts]\npython = evil:main\n../../victim = evil:main\n",
    ),
    "cut in half": bytewise(lambda data: data[: len(data) // 2]),
}
