"""A fake setuptools that builds projects with ``setup.py`` offline."""

from pathlib import Path

from tests.lab.wheels import make_wheel

SETUP = '''
"""``setup()`` keeps what it is told, for the build backend that runs ``setup.py``."""

def setup(**told):
    from setuptools import build_meta

    build_meta.TOLD.update(told)


class Extension:
    def __init__(self, name, sources):
        self.name, self.sources = name, sources
'''
BUILD_META = '''
import os, sys, zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256

TOLD = {}


def _told():
    """Run ``setup.py``, as whoever builds a project does."""
    sys.argv[1:] = []
    with open("setup.py") as file:
        exec(compile(file.read(), "setup.py", "exec"), {"__name__": "__main__", "__file__": "setup.py"})
    return TOLD


def get_requires_for_build_wheel(settings=None):
    return _told().get("setup_requires", [])


def build_wheel(folder, settings=None, metadata=None):
    told = _told()
    files = {f"{name}.py": open(f"{name}.py").read() for name in told.get("py_modules", ())}
    return _wheel(folder, told, files)


def build_editable(folder, settings=None, metadata=None):
    told = _told()
    return _wheel(folder, told, {f"{told['name']}.pth": os.getcwd() + "\\n"})


def _wheel(folder, told, files):
    stem = told["name"].replace("-", "_") + "-" + told.get("version", "0")
    lines = ["Metadata-Version: 2.1", f"Name: {told['name']}", f"Version: {told.get('version', '0')}"]
    lines += [f"Requires-Dist: {one}" for one in told.get("install_requires", ())]
    for extra, listed in told.get("extras_require", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {one}; extra == '{extra}'" for one in listed]
    files = {**files, f"{stem}.dist-info/METADATA": "\\n".join(lines) + "\\n"}
    files[f"{stem}.dist-info/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    hashes = {name: urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode() for name, text in files.items()}
    rows = [f"{name},sha256={hashes[name]},{len(text.encode())}\\n" for name, text in files.items()]
    files[f"{stem}.dist-info/RECORD"] = "".join([*rows, f"{stem}.dist-info/RECORD,,\\n"])
    with zipfile.ZipFile(os.path.join(folder, f"{stem}-py3-none-any.whl"), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return f"{stem}-py3-none-any.whl"


get_requires_for_build_editable = get_requires_for_build_wheel
__legacy__ = sys.modules[__name__]
'''


def make_setuptools(folder: Path) -> Path:
    """Write the wheel of the fake setuptools into ``folder``."""
    modules = {"setuptools/__init__.py": SETUP, "setuptools/build_meta.py": BUILD_META}
    return make_wheel(folder, "setuptools", "80.0", modules=modules)
