"""Complete output of every format.

To rewrite the files: ``python -m tests.unit.export.test_golden``.
"""

from importlib.metadata import version
from pathlib import Path

from gpuinstall.export.dockerfile import format_dockerfile, format_image_dockerfile
from gpuinstall.export.formats import format_conda_environment, format_requirements_file
from gpuinstall.export.uv_project import format_uv_tables
from tests.unit.export.locks import cpu_lock, cuda_lock, source, wheel

GOLDEN = Path(__file__).with_name("golden")
LOCKS = [cuda_lock(), cuda_lock("cu130-windows-x86_64"), cuda_lock("cu130"), cpu_lock()]
PROJECT = {"name": "mine", "directory": {"path": ".", "editable": True}}
WITH_JUPYTER = [
    cuda_lock(target, wheel("jupyterlab", "4.5.0")) for target in ("cu126", "cu130")
]


def written():
    """Return the text of every format without uv's version, by file name."""
    texts = {
        "requirements.txt": format_requirements_file(cuda_lock()),
        "environment.yml": format_conda_environment(cuda_lock()),
        "pyproject.toml": format_uv_tables(LOCKS, "https://index.example/whl"),
        "Dockerfile": format_dockerfile(cuda_lock()),
        "Dockerfile.cpu": format_dockerfile(cpu_lock()),
        "Dockerfile.any": format_image_dockerfile(WITH_JUPYTER, ("ssh", "jupyter")),
        "Dockerfile.built": format_dockerfile(
            cuda_lock("cu126", source("flash-attn", "2.9")), ["jupyter"]
        ),
        "Dockerfile.project": format_dockerfile(cuda_lock("cu126", PROJECT)),
    }
    installed = f"uv:{version('uv')} "
    return {name: text.replace(installed, "uv:X.Y.Z ") for name, text in texts.items()}


def test_exports_equal_the_golden_files():
    read = {path.name: path.read_text("utf-8") for path in GOLDEN.iterdir()}
    assert read == written()


if __name__ == "__main__":
    for name, text in written().items():
        (GOLDEN / name).write_text(text, "utf-8")
