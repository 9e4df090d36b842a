"""Find the torch of an interpreter, and modules that hide its packages.

Modules are located without importing them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.machinery import PathFinder
from itertools import takewhile
from pathlib import Path

from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.text import join_names
from gpuinstall.base.values import Value
from gpuinstall.base.vendors import BACKEND_ROWS
from gpuinstall.base.versions import Backend, find_torch_backend
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.packages import find_required_names, read_packages
from gpuinstall.environments.stamp import TORCH
from gpuinstall.machine.pythons import run_script
from gpuinstall.verify.files import list_modules
from gpuinstall.verify.kernel_run import KERNELS

LOOK = KERNELS / "look.py"


class FoundTorch(Value):
    """The torch that an interpreter would import."""

    python: str
    """The version of Python."""

    venv: bool
    torch: str | None = None
    """The file of the torch module."""

    constants: Mapping[str, str] = {}
    """The strings in torch's ``version.py``, such as the version of CUDA."""

    path: tuple[str, ...] = ()
    """The interpreter's ``sys.path``."""

    @property
    def version(self) -> str | None:
        """The version of torch, if known."""
        return self.constants.get("__version__")

    @property
    def backend(self) -> Backend | None:
        """The backend of torch by version or toolkit, or None."""
        if self.version is None:
            return None
        toolkit = None
        for row in BACKEND_ROWS:
            text = self.constants.get(row.toolkit or row.kind)
            if text and not toolkit:
                # 6.4.43482-0f2d60242 is ROCm 6.4.
                release = ".".join(text.split(".")[:2]) if row.version else None
                toolkit = Backend(row.kind, release)
        return find_torch_backend(self.version, toolkit)

    @property
    def kind(self) -> str | None:
        """The kind of torch's backend."""
        return self.backend and self.backend.kind


class Interpreter(Value):
    """An interpreter's torch with and without isolated mode."""

    isolated: FoundTorch
    """The torch that ``python -I`` finds."""

    plain: FoundTorch
    """The torch that Python finds without ``-I``, or ``isolated``.

    The working folder's modules are not searched.
    """

    start_error: str | None = None
    """The reason why the interpreter does not start without ``-I``, if any."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The interpreter flags that isolate a verification from the user.

        An interpreter outside a venv that finds torch only without ``-I`` has no flags.
        """
        if self.isolated.torch is None and not self.isolated.venv:
            return ()
        return ("-I",)

    @property
    def torch_to_verify(self) -> FoundTorch:
        """The torch that a verification imports."""
        return self.isolated if self.flags else self.plain


def inspect_interpreter(python: Path) -> Interpreter:
    """Find an interpreter's torch, or raise UsageError if it fails."""
    isolated_look = (python, "-I", "-B", LOOK)
    plain_look = (python, "-B", LOOK)
    # Run both in parallel, because starting Python takes most of the time.
    with ThreadPoolExecutor(2) as pool:
        isolated = pool.submit(run_script, FoundTorch, isolated_look)
        plain = pool.submit(run_script, FoundTorch, plain_look)
    try:
        return Interpreter(isolated.result(), plain.result())
    except UsageError as error:
        # If the interpreter does not start with -I either, isolated.result() raises the error.
        return Interpreter(isolated.result(), isolated.result(), start_error=error.why)


def find_interference(
    interpreter: Interpreter, venv: Path, requested: Collection[str]
) -> Iterator[Finding]:
    """Yield a finding for each folder whose modules hide required packages.

    The finding's evidence is the path of a module. An interpreter that starts only
    with ``-I`` is also a finding.

    Args:
        interpreter: The interpreter.
        venv: The environment, whose locked packages are required.
        requested: Further required packages.
    """
    reason = interpreter.start_error
    if reason:
        code = "python-path-first"
        message = (
            f"the interpreter starts here only in isolated mode (python -I): {reason}"
        )
        home = os.environ.get("PYTHONHOME")
        if home:
            code = "python-home-set"
            message += f"; PYTHONHOME={home}"
        yield Finding(code, message, where="environment")
    marker = read_marker(venv)
    required = {TORCH, *requested, *(marker.packages if marker else ())}
    modules = defaultdict(list)
    for path in _find_hiding_modules(interpreter, required):
        modules[path.parent].append(path)
    for folder, paths in modules.items():
        yield _report_hiding_modules(folder, paths)


def _find_hiding_modules(
    interpreter: Interpreter, required: Collection[str]
) -> Iterator[Path]:
    """Yield modules that a program in this folder imports before packages."""
    torch = interpreter.torch_to_verify
    own = [Path(folder) for folder in torch.path]
    packages = {package.name: package for package in reversed(read_packages(own))}
    sites = {}
    # torch may have no metadata.
    if torch.torch:
        sites[TORCH] = Path(torch.torch).parent.parent
    for name in sorted(find_required_names(required, packages)):
        package = packages.get(name)
        # A local project's own folder contains the same modules.
        if package and not package.read_source():
            sites.update(dict.fromkeys(list_modules(package), package.record.parent))
    first = [*_list_first_folders(), *map(Path, interpreter.plain.path)]
    for module, site in sites.items():
        before = takewhile(site.__ne__, first)
        folders = [str(folder) for folder in before if folder not in own]
        spec = PathFinder.find_spec(module, folders)
        # A folder without __init__.py hides no package.
        if spec and spec.origin:
            path = Path(spec.origin)
            yield path.parent if path.name == "__init__.py" else path


def _report_hiding_modules(folder: Path, paths: list[Path]) -> Finding:
    """Create the finding about a folder whose modules hide packages."""
    if folder == Path.cwd():
        code, place = "module-in-folder", "this folder"
    elif folder in _list_first_folders():
        code, place = "python-path-first", "PYTHONPATH"
    else:
        code, place = "user-packages-first", "the user's packages"
    names = join_names([path.stem for path in paths])
    return Finding(
        code,
        f"modules in {place} ({folder}) hide installed packages: {names}",
        evidence=str(paths[0]),
        where="environment",
    )


def _list_first_folders() -> list[Path]:
    """Return this folder and PYTHONPATH, which programs search first."""
    folders = []
    for folder in ("", *os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        with suppress(OSError):  # the working folder may have been removed
            folders.append(Path(folder).absolute())
    return folders
