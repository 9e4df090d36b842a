"""Small real projects, built by a backend of their own: no network, and no tool that is not in them."""

from collections.abc import Iterable
from pathlib import Path

from gpuinstall.base import process
from tests.lab.wheels import pack_sdist

COMMITTER = ("-c", "user.name=lab", "-c", "user.email=lab@index.example")
BACKEND = '''
"""Builds a wheel of one module, as PEP 517 and PEP 660 have it."""
{imports}
import os, zipfile

NAME, VERSION, REQUIRES = {name!r}, {version!r}, {requires!r}
STEM = f"{{NAME.replace('-', '_')}}-{{VERSION}}"
METADATA = "".join(["Metadata-Version: 2.2\\n", f"Name: {{NAME}}\\nVersion: {{VERSION}}\\n",
                    *(f"Requires-Dist: {{one}}\\n" for one in REQUIRES)])


def _wheel(folder, files):
    files = {{**files, f"{{STEM}}.dist-info/METADATA": METADATA,
             f"{{STEM}}.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}}
    files[f"{{STEM}}.dist-info/RECORD"] = "".join(f"{{name}},,\\n" for name in [*files, f"{{STEM}}.dist-info/RECORD"])
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
    imports: str = "",
    pyproject: str = "",
) -> dict[str, str]:
    """The files of a project; ``imports`` stand at the top of what builds it."""
    requires = list(requires)
    table = f'[project]\nname = "{name}"\nversion = "{version}"\ndependencies = {requires!r}\n'
    system = '[build-system]\nrequires = []\nbuild-backend = "the_backend"\nbackend-path = ["."]\n'
    return {
        "pyproject.toml": table + system + pyproject,
        "the_backend.py": BACKEND.format(
            name=name, version=version, requires=requires, imports=imports
        ),
        f"{name.replace('-', '_')}.py": "HERE = True\n",
    }


def make_project(
    folder: Path,
    name: str,
    version: str = "1.0",
    requires: Iterable[str] = (),
    **more: str,
) -> Path:
    """Write a project into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in project_files(name, version, requires, **more).items():
        (folder / file).write_text(text, "utf-8")
    return folder


def make_sdist(
    folder: Path,
    name: str,
    version: str,
    requires: Iterable[str] = (),
    *,
    imports: str = "",
    compiled: bool = False,
    built_with: Iterable[str] = (),
) -> Path:
    """Write ``<name>-<version>.tar.gz``, with metadata that needs no build; a compiled one has a library of its own.

    What it is ``built_with`` is what it says that its build requires.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    requires = list(requires)
    dependencies = "".join(
        f"Requires-Dist: {requirement}\n" for requirement in requires
    )
    files = project_files(name, version, requires, imports=imports)
    if compiled:
        files["the_backend.py"] += COMPILING
    files["pyproject.toml"] = files["pyproject.toml"].replace(
        "requires = []", f"requires = {list(built_with)!r}"
    )
    files["PKG-INFO"] = (
        f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n{dependencies}"
    )
    return pack_sdist(folder, stem, files)


def make_silent_sdist(
    folder: Path,
    name: str,
    version: str,
    requires: Iterable[str] = (),
    *,
    ran: Path,
    built_with: Iterable[str] = (),
) -> Path:
    """Write one that does not say what it requires until it is built; its code leaves a line in ``ran``.

    It imports what it is ``built_with``.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    imports = "\n".join(f"import {package}" for package in built_with)
    leaves = f"import sys\nopen({str(ran)!r}, 'a').write('{stem}' + ' %s.%s' % sys.version_info[:2] + '\\n')"
    files = project_files(name, version, requires, imports=f"{imports}\n{leaves}")
    system = (
        files["pyproject.toml"]
        .partition("[build-system]")[2]
        .join(["[build-system]", ""])
    )
    files["pyproject.toml"] = system.replace(
        "requires = []", f"requires = {list(built_with)!r}"
    )
    files["PKG-INFO"] = f"Metadata-Version: 1.0\nName: {name}\nVersion: {version}\n"
    return pack_sdist(folder, stem, files)


def make_repository(
    folder: Path, name: str, version: str = "1.0", requires: Iterable[str] = ()
) -> str:
    """Make a git repository of a project; return its commit."""
    make_project(folder, name, version, requires)
    return commit(folder)


def commit(folder: Path) -> str:
    """Commit everything in a folder to its branch ``main``."""
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "add", ".")
    _git(folder, *COMMITTER, "commit", "-q", "--allow-empty", "-m", "state")
    return _git(folder, "rev-parse", "HEAD").strip()


def _git(folder: Path, *words: str) -> str:
    done = process.run(["git", "-C", folder, *words])
    assert done.ok, done.err
    return done.out
