"""Build the documentation site in ``site/``.

``python -m tools.site SPHINX-BUILD`` (``make site`` brings it). The pages are staged first, as ``docs/`` has them for a
plain git host and with what only a site has: the menu, which follows the lists of docs/index.md, and one address for
each failure, ``failures/F09.html``. A warning of Sphinx, such as a link to nothing, is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpuinstall.api import load_catalog
from tools.docs import failure_pages, failures_index
from tools.site.selector import selector_page

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
SELECTOR = "select/index.html"
"""The path of the selector page in the site."""
_FILE_LINK = re.compile(r"\[[\w/-]+\.md\]\(([\w./-]+\.md)\)")
"""A link with a file name as text; the site shows the page's title."""
_PAGE = re.compile(r"\]\(([\w-]+)\.md\)")


def main() -> int:
    """Build the site; return Sphinx's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "source"), Path(folder, "site")
        stage(source)
        words = [
            sys.argv[1],
            "-q",
            "-W",
            "--keep-going",
            "-j",
            "auto",
            "-c",
            str(Path(__file__).parent),
        ]
        done = subprocess.run(
            [*words, "-d", f"{folder}/read", str(source), str(built)], check=False
        )
        if done.returncode:
            return done.returncode
        selector = built / SELECTOR
        selector.parent.mkdir()
        selector.write_text(selector_page(load_catalog()), encoding="utf-8")
        shutil.rmtree(SITE, ignore_errors=True)
        shutil.copytree(built, SITE)
    print(f"Open {(SITE / 'index.html').as_uri()}")  # noqa: T201
    return 0


def stage(source: Path) -> None:
    """Write what Sphinx is given."""
    shutil.copytree(ROOT / "docs", source)
    for place in source.rglob("*.md"):
        place.write_text(
            _FILE_LINK.sub(r"[](\1)", place.read_text(encoding="utf-8")),
            encoding="utf-8",
        )
    readme, index = ROOT / "README.md", source / "index.md"
    index.write_text(
        home(readme.read_text(encoding="utf-8"), index.read_text(encoding="utf-8")),
        encoding="utf-8",
    )
    (source / "failures.md").write_text(failures_index(), encoding="utf-8")
    (source / "failures").mkdir()
    for name, text in failure_pages().items():
        (source / "failures" / f"{name}.md").write_text(text, encoding="utf-8")


def home(readme: str, index: str) -> str:
    """Return the first page and the menu."""
    what = readme.split("\n\n")[1]
    asks = f'<a href="{SELECTOR}">Which PyTorch runs on my GPU?</a> asks for your cards and driver.'
    lists = re.split(r"\n\n(?=For )", index.rstrip())[1:]
    return "\n\n".join(["# gpuinstall", what, asks, *lists, *map(_menu, lists)])


def _menu(part: str) -> str:
    caption, _, entries = part.partition(":\n")
    pages = "\n".join(dict.fromkeys(_PAGE.findall(entries)))
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


if __name__ == "__main__":
    sys.exit(main())
