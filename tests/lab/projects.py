"""Small real projects with their own build backend and no network access."""

from collections.abc import Iterable
from pathlib import Path

from tests.lab.wheels import pack_sdist

BACKEND = '''
"""Builds a wheel of one module, as PEP 517 and PEP 660 have it; leaves a line in the file LAB_RAN."""
{imports}
import os, sys, zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256

NAME, VERSION, REQUIRES = {name!r}, {version!r}, {requires!r}
STEM = f"{{NAME.replace('-', '_')}}-{{VERSION}}"
if "LAB_RAN" in os.environ:
    with open(os.environ["LAB_RAN"], "a") as file:
        file.write(f"{{STEM}} {{sys.version_info[0]}}.{{sys.version_info[1]}}\\n")
METADATA = "".join(["Metadata-Version: 2.2\\n", f"Name: {{NAME}}\\nVersion: {{VERSION}}\\n",
                    *(f"Requires-Dist: {{one}}\\n" for one in REQUIRES)])


def _wheel(folder, files):
    files = {{**files, f"{{STEM}}.dist-info/METADATA": METADATA,
             f"{{STEM}}.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}}
    hashes = {{name: urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode() for name, text in files.items()}}
    rows = [f"{{name}},sha256={{hashes[name]}},{{len(text.encode())}}\\n" for name, text in files.items()]
    files[f"{{STEM}}.dist-info/RECORD"] = "".join([*rows, f"{{STEM}}.dist-info/RECORD,,\\n"])
    with zipfile.ZipFile(os.path.join(folder, f"{{STEM}}-py3-none-any.whl"), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return f"{{STEM}}-py3-none-any.whl"


def build_wheel(folder, settings=None, metadata=None):
    keys = "MAX_JOBS", "CUDA_HOME", "FORCE_CUDA", "TORCH_CUDA_ARCH_LIST", "FLASH_ATTN_CUDA_ARCHS"
    said = "\\n".join(f"{{key}}={{os.environ.get(key)}}" for key in keys)
    return _wheel(folder, {{NAME.replace("-", "_") + ".py": f"SAID = {{said!r}}\\n"}})


def build_editable(folder, settings=None, metadata=None):
    return _wheel(folder, {{f"{{STEM}}.pth": os.getcwd() + "\\n"}})
'''


COMPILING = '''

def build_wheel(folder, settings=None, metadata=None):
    """Compile a library that says beside which torch and for what, and leave a line of that in LAB_COMPILED."""
    import base64, hashlib, platform, subprocess, sys, time, torch

    said = f"torch {torch.__version__} for {os.environ.get('TORCH_CUDA_ARCH_LIST', 'no GPU')}"
    with open(os.environ["LAB_COMPILED"], "a") as log:
        log.write(said + "\\n")
    time.sleep(float(os.environ.get("LAB_COMPILES_FOR", 0)))
    library, name = os.path.join(folder, "_C.so"), NAME.replace("-", "_")
    command = ["cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=f'const char said[] = "{said}";'.encode(), check=True)
    with open(library, "rb") as file:
        compiled = file.read()
    os.unlink(library)
    tag = "cp%d%d-cp%d%d" % (*sys.version_info[:2], *sys.version_info[:2]) + f"-linux_{platform.machine()}"
    files = {f"{name}/__init__.py": f"SAID = {said!r}\\n".encode(), f"{name}/_C.so": compiled,
             f"{STEM}.dist-info/METADATA": METADATA.encode(),
             f"{STEM}.dist-info/WHEEL": f"Wheel-Version: 1.0\\nRoot-Is-Purelib: false\\nTag: {tag}\\n".encode()}
    hashes = {name: base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
              for name, raw in files.items()}
    lines = [f"{name},sha256={hashes[name]},{len(raw)}\\n" for name, raw in files.items()]
    files[f"{STEM}.dist-info/RECORD"] = "".join([*lines, f"{STEM}.dist-info/RECORD,,\\n"]).encode()
    with zipfile.ZipFile(os.path.join(folder, f"{STEM}-{tag}.whl"), "w") as archive:
        for name, raw in files.items():
            # Without a date: what is compiled twice is the same bytes twice.
            archive.writestr(zipfile.ZipInfo(name), raw)
    return f"{STEM}-{tag}.whl"
'''


def project_files(
    name: str,
    version: str,
    requires: Iterable[str] = (),
    *,
    imports: Iterable[str] = (),
    built_with: Iterable[str] = (),
) -> dict[str, str]:
    """Return project files whose build imports and requires packages."""
    requires = list(requires)
    table = f'[project]\nname = "{name}"\nversion = "{version}"\ndependencies = {requires!r}\n'
    system = f'[build-system]\nrequires = {list(built_with)!r}\nbuild-backend = "the_backend"\nbackend-path = ["."]\n'
    lines = "".join(f"import {package}\n" for package in imports)
    return {
        "pyproject.toml": table + system,
        "the_backend.py": BACKEND.format(
            name=name, version=version, requires=requires, imports=lines
        ),
        f"{name.replace('-', '_')}.py": "HERE = True\n",
    }


def make_project(folder: Path, name: str, requires: Iterable[str]):
    """Write a project into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in project_files(name, "1.0", requires).items():
        (folder / file).write_text(text, "utf-8")


def make_sdist(
    folder: Path,
    name: str,
    version: str,
    requires: Iterable[str] = (),
    *,
    imports: Iterable[str] = (),
    built_with: Iterable[str] = (),
    is_compiled: bool = False,
    is_silent: bool = False,
) -> Path:
    """Write ``<name>-<version>.tar.gz``.

    Args:
        imports: Packages that the build imports.
        built_with: Declared build requirements.
        is_compiled: Whether the project contains a compiled library.
        is_silent: Whether the requirements are unknown before a build.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    requires = list(requires)
    files = project_files(
        name, version, requires, imports=imports, built_with=built_with
    )
    if is_compiled:
        files["the_backend.py"] += COMPILING
    dependencies = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files["PKG-INFO"] = (
        f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n{dependencies}"
    )
    if is_silent:
        table = files["pyproject.toml"].partition("[build-system]")
        files["pyproject.toml"] = "".join(table[1:])
        files["PKG-INFO"] = f"Metadata-Version: 1.0\nName: {name}\nVersion: {version}\n"
    return pack_sdist(folder, stem, files)
