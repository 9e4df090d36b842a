"""Search for the torch of an interpreter, with and without isolated mode.

torch is located without importing it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.values import Value
from gpuinstall.base.vendors import BACKEND_ROWS
from gpuinstall.base.versions import Backend, find_torch_backend
from gpuinstall.machine.pythons import run_script
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

    first: str | None = None
    """The file of the torch that a program in the working folder imports."""

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

    @property
    def shadow(self) -> str | None:
        """Another torch that a program in this folder would import, if any."""
        torch = self.plain.first
        return None if torch == self.torch_to_verify.torch else torch


def inspect_interpreter(python: Path) -> Interpreter:
    """Find an interpreter's torch, or raise UsageError if it fails."""
    isolated_look = (python, "-I", "-B", LOOK)
    plain_look = [str(python), "-B", str(LOOK), *map(str, _list_first_folders())]
    # Run both in parallel, because starting Python takes most of the time.
    with ThreadPoolExecutor(2) as pool:
        isolated = pool.submit(run_script, FoundTorch, isolated_look)
        plain = pool.submit(run_script, FoundTorch, plain_look)
    try:
        return Interpreter(isolated.result(), plain.result())
    except UsageError as error:
        # If the interpreter does not start with -I either, isolated.result() raises the error.
        return Interpreter(isolated.result(), isolated.result(), start_error=error.why)


def find_interference(interpreter: Interpreter) -> Finding | None:
    """Return a finding if programs in this folder import another torch.

    The finding's evidence is the path of that torch. An interpreter that starts only
    with ``-I`` is also a finding.
    """
    reason = interpreter.start_error
    if reason:
        code = "torch-shadowed"
        message = (
            f"the interpreter starts here only in isolated mode (python -I): {reason}"
        )
        home = os.environ.get("PYTHONHOME")
        if home:
            code = "python-home-set"
            message += f"; PYTHONHOME={home}"
        return Finding(code, message, where="environment")
    if interpreter.shadow:
        return _report_shadow(interpreter.shadow)
    return None


def _report_shadow(shadow: str) -> Finding:
    """Create the finding about another torch that programs would import."""
    top = Path(shadow)
    if top.name == "__init__.py":
        top = top.parent
    if top.parent == Path.cwd():
        code = "module-in-folder"
        origin = "in this folder"
    elif top.parent in _list_first_folders():
        code = "torch-shadowed"
        origin = "from PYTHONPATH"
    else:
        code = "user-packages-first"
        origin = "from the user's packages"
    return Finding(
        code,
        f"a program started in this folder would import another torch: {top}, {origin}",
        evidence=str(top),
        where="environment",
    )


def _list_first_folders() -> list[Path]:
    """Return this folder and PYTHONPATH, which programs search first."""
    folders = []
    for folder in ("", *os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        with suppress(OSError):  # the working folder may have been removed
            folders.append(Path(folder).absolute())
    return folders
