"""The files of an index as text: a line for each, with indented libraries.

``tests/stories`` documents the format of a line.
"""

import random
import re

from tests.lab import stub_torch
from tests.lab.native import native_library
from tests.lab.projects import make_sdist
from tests.lab.setuptools import make_setuptools
from tests.lab.wheels import make_wheel
from tests.unit.wheels.made import fatbin


def steps_of(text):
    """Yield each line with the indented lines below it."""
    for part in re.split(r"\n(?! )", text):
        line, *below = part.split("\n")
        yield line, [each.removeprefix("    ") for each in below]


def publish(folder, line, below=()):
    """Create a package file from its line and its libraries."""
    words, _, requires = line.partition(":")
    words, _, backend = words.partition(" on ")
    kind, name, version, *tag = words.split()
    made = folder / "made" / f"{name}-{version}"
    folder = folder / "whl" / backend if backend else folder / "simple"
    if kind == "sdist":
        traits = {each.partition(" ")[0]: each.split()[1:] for each in below}
        make_sdist(
            folder,
            name,
            version,
            needs(requires),
            imports=traits.get("imports", ()),
            built_with=traits.get("with", ()),
            is_compiled="compiled" in traits,
            is_silent="silent" in traits,
        )
        return
    if name == "setuptools":
        make_setuptools(folder)
        return
    if name == "torch" and backend:
        make_wheel(
            folder,
            name,
            version,
            *tag,
            requires=needs(requires),
            modules=stub_torch.modules(version, backend, *" ".join(below).split()),
        )
        return
    modules = {}
    module = name.replace("-", "_")
    for library in below:
        path, _, facts = library.partition("  ")
        modules[path] = native(made / path, facts)
    if modules:
        tag = tag or ["py3-none-manylinux_2_28_x86_64"]
        loaded = (path.split(".")[0].replace("/", ".") for path in modules)
        imports = "".join(f"import {each}\n" for each in loaded)
        modules = {f"{module}/__init__.py": imports, **modules}
    all_needs = needs(requires)
    pythons = [each for each in all_needs if each.startswith("Python")]
    make_wheel(
        folder,
        name,
        version,
        *tag,
        requires=[each for each in all_needs if each not in pythons],
        requires_python=",".join(pythons).removeprefix("Python") or None,
        extras=re.findall(r'extra == "(\w+)"', requires),
        modules=modules or None,
    )


def needs(requires):
    return [each for each in requires.strip().split(", ") if each]


def native(file, facts):
    """Compile a library from its line.

    An example is ``sm_80 compute_86 isa 8.2; needs libtorch.so; undefined NAME; opens
    libcublas.so.12; module o``.
    """
    code, *rest = facts.strip().split("; ")
    kernels = fatbin(code) * 3 if code else b""
    words = ("needs", "undefined", "opens", "module", "glibc", "large")
    linked: dict[str, list[str]] = {word: [] for word in words}
    for fact in rest:
        word, *names = fact.split()
        linked[word] += names or [word]
    if not any(linked.values()):
        return kernels
    made = native_library(
        file,
        needs=linked["needs"],
        undefined=linked["undefined"],
        strings=linked["opens"],
        modules=linked["module"],
        glibc=next(iter(linked["glibc"]), None),
        code=kernels,
    )
    rest_of_large = random.Random(0).randbytes(5 << 20) if linked["large"] else b""
    return made.read_bytes() + rest_of_large
