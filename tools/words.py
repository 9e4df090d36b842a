"""Print rates of unusual phrases in docstrings and comments.

``python -m tools.words [FOLDER | FILE ...]`` prints rates per 1,000 words. It counts
clauses that start with a pronoun instead of a noun, and idioms that have a more common
synonym. It never fails, because a worse sentence can have a better rate.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from tools.prose import read_passages

SOURCE = "src/gpuinstall"
WORD = re.compile(r"[A-Za-z][\w'-]*")
PRONOUNS = "what|who|whose|whoever|whatever|those of|that of|none of"
CLAUSE = re.compile(
    rf"(?im)(?:\A\s*|\n\n|[.:;!?,]\s+|\b(?:and|but)\s+|^\s*[-*]\s+)(?:{PRONOUNS})\b"
)
IDIOMS = (
    # Regular expressions, one group for each row of the style guide's table.
    "comes?|goes|went|gone",
    "stays?|stayed",
    "lies|stands|is there|is had",
    "beside",
    "of ours|of others|ours",
    "(?:takes?|taken|took|puts?|brings?|brought) back",
    "(?:is|are|was|were) told",
    "asked for|(?:is|was) wanted",
    "held",
    "speaks? against|spoken against|passed over",
    "go(?:es)? with|runs? beside",
    "the one before|that (?:is|are|was|were) there",
    "comes? to",
    "not known|nobody knows",
    "but for",
    "anew",
    "mends?|mended|advices?",
    "that there is",
    "somebody|whoever",
    "that (?:is|was|were) ended",
    "stand-ins?|played",
    "shall",
    "rooms?",
    "doors?",
    "weighs?",
)
IDIOM = re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(IDIOMS)})(?![\w-])")
COMMONEST = 12


def main(names: list[str]) -> None:
    """Print the rates of each folder or file, and the most frequent hits."""
    hits: Counter[str] = Counter()
    sys.stdout.write(f"{'folder':38}{'words':>9}{'clauses':>9}{'idioms':>9}\n")
    for name in names or [SOURCE]:
        text = read_prose(Path(name))
        clauses, idioms = CLAUSE.findall(text), IDIOM.findall(text)
        words = len(WORD.findall(text))
        rates = "".join(
            f"{1000 * len(f) / max(words, 1):9.1f}" for f in (clauses, idioms)
        )
        sys.stdout.write(f"{name:38}{words:9,}{rates}\n")
        hits.update(" ".join(hit.lower().split()) for hit in (*clauses, *idioms))
    commonest = ", ".join(
        f"{hit} {count}" for hit, count in hits.most_common(COMMONEST)
    )
    sys.stdout.write(f"Most frequent: {commonest}\n")


def read_prose(path: Path) -> str:
    """Read the docstrings and comments below a folder, or of one file."""
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    passages = (each for file in files for each in read_passages(file))
    return "\n\n".join(each.prose for each in passages)


if __name__ == "__main__":
    main(sys.argv[1:])
