"""Build the documentation site in ``site/``.

``python -m tools.site SPHINX-BUILD``, as in ``make site``, first copies ``docs/``. It adds
a menu from the lists of docs/index.md and a page for each failure, such as
``failures/F09.html``. A warning of Sphinx, such as a broken link, is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpuinstall.api import load_catalog
from tools.docs import format_failure_index, format_failure_pages
from tools.site.selector import build_selector_page

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
SELECTOR = "select/index.html"
"""The path of the selector page in the site."""
_FILE_LINK = re.compile(r"\[[\w/-]+\.md\]\(([\w./-]+\.md)\)")
"""A link with a file name as text; the site shows the page's title."""
_PAGE = re.compile(r"\]\(([\w-]+)\.md\)")


def main() -> int:
    """Build the site, and return Sphinx's exit status."""
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
        selector.write_text(build_selector_page(load_catalog()), encoding="utf-8")
        shutil.rmtree(SITE, ignore_errors=True)
        shutil.copytree(built, SITE)
    print(f"Open {(SITE / 'index.html').as_uri()}")  # noqa: T201
    return 0


def stage(source: Path) -> None:
    """Write the pages that Sphinx reads."""
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
    pages = format_failure_pages()
    menu = "\n".join(f"failures/{name}" for name in pages)
    table = format_failure_index("[{id}](failures/{id}.md)")
    (source / "failures.md").write_text(
        f"---\nnosearch: true\n---\n{table}\n```{{toctree}}\n:hidden:\n\n{menu}\n```\n",
        encoding="utf-8",
    )
    (source / "failures").mkdir()
    for name, text in pages.items():
        (source / "failures" / f"{name}.md").write_text(text, encoding="utf-8")


def home(readme: str, index: str) -> str:
    """Return the first page and the menu."""
    introduction = readme.split("\n\n")[1]
    selector = f'<a href="{SELECTOR}">Which PyTorch runs on my GPU?</a> selects a build for your GPUs and driver.'
    lists = re.split(r"\n\n(?=## )", index.rstrip())[1:]
    return "\n\n".join(
        ["# gpuinstall", introduction, selector, *lists, *map(_menu, lists)]
    )


def _menu(part: str) -> str:
    title, _, entries = part.partition("\n")
    caption = title.removeprefix("## ")
    pages = "\n".join(dict.fromkeys(_PAGE.findall(entries)))
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


if __name__ == "__main__":
    sys.exit(main())
