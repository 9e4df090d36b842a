"""The page docs/documents.md: every JSON document, by a recorded example and what each of its keys means.

The keys come from the recorded documents (docs/documents); a key without a meaning here stops the making of the page.
"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "documents"

HEAD = """\
# JSON documents

With `--json`, every command prints exactly one document on stdout, on failure too; progress and warnings go to stderr.
Ignore keys that you do not know: new keys may be added at any time. Where `data` has a `schema`, its number changes
when the meaning of a key changes or a key is removed.

`python -m tools.record_documents` recorded the examples with a stand-in driver (two RTX 4090s, driver 535) and stand-in
indexes; the second and third `probe` come from other people's machines. Lists are shortened, and a document inside
another to its `schema`.
"""
ENVELOPE = {
    "gpuinstall": "the version of this envelope, 1",
    "command": "the command",
    "status": "`success`, `partial` (done, but something was left out or needs attention) or `error`",
    "exit_code": "the [exit status](usage.md#exit-status)",
    "data": "see below; present on failure too, if it could be made",
    "errors": "empty unless `status` is `error`",
    "errors[].code": "a slug for programs; for a refused plan, the code of its first reason",
    "errors[].message": "what happened",
    "errors[].hint": "what to do, one line for each step, or null",
    "errors[].page": "the failure's page in [the site](usage.md#settings); missing if it has none",
}
REASON = {"code": "a slug for programs", "message": "the same for people"}
SYSTEM = {
    "os": "`linux`, `windows` or `macos`",
    "arch": "`x86_64`, `aarch64` or `arm64` (macOS)",
}


ROW = {
    "package": "`torch`, or another package with GPU code",
    "version": "its version",
    "backend": "the backend of torch",
    "platform": "system and processor: `linux-x86_64`",
    "architectures": "its GPU code: `sm_90` is machine code, `compute_90` PTX; empty if unknown",
    "cuda": "its CUDA version; null if unknown",
    "needs": "the libraries that it needs and does not contain, except those of every Linux",
    "opens": "the libraries that it may open at run time",
    "torch": "the torch that its code can load beside",
    "torch.kind": "`stable`: any from `min`; `ordinary`: those in `fits`; `none`; `unknown`",
    "torch.min": "the oldest torch, `2.13`; null if not stable, or newer than any known",
    "torch.fits": "the minor releases that have every symbol it uses; null if unknown",
    "glibc": "the glibc that its code needs, whatever its file name says, or null",
    "file": "the wheel that was read",
    "sha256": "its hash, or null if the index has none",
    "bytes": "the bytes that were read",
    "requests": "the number of requests",
    "witness": "the part that was read: `flags`, `gencode`, `fatbins` or a file; null if none had an answer",
    "learned": "when it was read, in UTC; null for a shipped row",
    "missing": "what the shipped row has and the wheel does not; absent if nothing",
}


class Document(NamedTuple):
    """A section: its title, what prints it, its recorded examples, and the meaning of each key.

    ``elsewhere`` are further keys, which the section that the text names explains.
    """

    title: str
    text: str
    examples: tuple[str, ...]
    keys: Mapping[str, str]
    elsewhere: Mapping[str, str] = {}

    @property
    def every_key(self) -> Mapping[str, str]:
        """The meaning of each key, whichever section explains it."""
        return {**self.elsewhere, **self.keys}


def below(path: str, keys: Mapping[str, str]) -> dict[str, str]:
    """Put keys below a path."""
    return {f"{path}.{key}": meaning for key, meaning in keys.items()}


CHANGE = {
    "package": "the package",
    "kind": "`added`, `removed`, `changed` or `other-file` (the same version, another file)",
    "old": "its version before, or null",
    "new": "its version after, or null",
}
INSTALLED = {
    "plan": "the [Plan](#plan)",
    "lock": "the lock that was installed",
    "lock.path": "its path",
    "lock.sha256": "its sha256",
    "lock.status": "`written` or `unchanged`",
    "lock.packages": "the number of packages",
    "lock.changes": "the packages added, removed or changed",
    **below("lock.changes[]", CHANGE),
    "environment": "the environment",
    "environment.path": "its folder",
    "environment.python": "the Python it was made for, `X.Y`",
    "environment.torch": "torch's version, with its backend after the plus sign",
    "environment.backend": "`cu126` is PyTorch for CUDA 12.6, `cpu` is without CUDA",
    "environment.status": "`built`, `proven` (unchanged, kernels ran again) or `none` (up to date)",
    "previous": "the previous environment, which was kept, or null",
    "previous.path": "its folder",
    "previous.bytes": "its size",
    "verdict": "the [Verdict](#verdict); for an unchanged environment, the last one",
    "bytes": "the bytes downloaded",
    "seconds": "the duration",
}

LOCKED_NODES = {
    "name": "the lock's folder in the run folder",
    "lock": "its file",
    "torch": "its torch",
    "backend": "its backend",
    "python": "its Python, the same on all nodes",
    "nodes": "its nodes, as a list for srun",
    "count": "the number of nodes",
    "sha256": "its sha256",
    "nccl": "its NCCL, or null",
}
CLASS = {
    "label": "the GPUs and the driver",
    "nodes": "the nodes, as a list for srun",
    "count": "the number of nodes",
}
UPDATE = {
    "nodes": "the nodes, as a list for srun",
    "count": "the number of nodes",
    "now": "their drivers",
    "branch": "the driver to install",
    "gives": "the torch it gives",
    "message": "the same for people",
}
PLANNED = {
    "locks": "the fewest that serve every node that can be served",
    **below("locks[]", LOCKED_NODES),
    "updates": "what newer drivers would give, the fewest nodes first",
    **below("updates[]", UPDATE),
    "apart": "why no job can run across some of the locks, or null",
}
INTO = {"plan", "environment", "verdict", "bytes", "seconds"}

DOCUMENTS = (
    Document(
        "Machine",
        "`gpuinstall probe --json` prints it; `--machine FILE` reads it, with or without the envelope. A file needs "
        "`schema`, `os`, `arch`, `gpus` and the `index` and `compute_capability` of each GPU; what is missing or null "
        "is unknown.",
        ("probe", "probe-slices", "probe-refusing"),
        {
            "schema": "`gpuinstall.machine/1`",
            **SYSTEM,
            "libc": "`glibc`, `musl` or null",
            "glibc": "glibc's version",
            "environment": "where the system runs",
            "environment.wsl": "whether it is Windows Subsystem for Linux",
            "environment.container": "`docker`, `podman`, `kubernetes`, `apptainer`, `lxc` or null",
            "environment.jetson": 'null, or a Jetson\'s `{"l4t": version of Linux for Tegra}`',
            "environment.jetson.l4t": "the version of Linux for Tegra",
            "pythons": "the installed interpreters; missing or null in a file: any",
            "driver": "NVIDIA's driver, or null",
            "driver.version": "its release, such as 535.183.01",
            "driver.cuda": "the newest CUDA that it supports (not an installed toolkit)",
            "driver.found_via": "where the release was read",
            "gpus": "the GPUs of this process, in NVML's order",
            "gpus[].index": "NVML's index (the order on the PCI bus)",
            "gpus[].name": "its name, as the driver reports it",
            "gpus[].uuid": "its UUID",
            "gpus[].pci_id": "`vendor:device` in hexadecimal",
            "gpus[].compute_capability": "the architecture: 8.9 is sm_89; null when unknown",
            "gpus[].memory_mib": "memory in MiB; null if shared with the CPU",
            "gpus[].mig": "whether the card is divided into slices (MIG)",
            "gpus[].mig_devices": "its slices, if any",
            "gpus[].mig_devices[].uuid": "its UUID",
            "gpus[].mig_devices[].profile": "its size, such as 1g.10gb",
            "gpus[].mig_devices[].memory_mib": "its memory in MiB",
            "gpus[].found_via": "where it was read: `nvml`, `nvidia-smi`, `pci`, …",
            "gpus[].vendor": "the maker; missing: NVIDIA, or the one of `pci_id`",
            "gpus[].architecture": "the maker's name of the code that it runs, such as sm_89",
            "problems": "what is wrong with the machine",
            "problems[].code": "a slug for programs",
            "problems[].id": "the entry of [failures.md](failures.md), or null",
            "problems[].message": "what is wrong",
            "problems[].fix": "what to do, one line for each step",
            "problems[].blocking": "whether it must be repaired before anything can be installed for the GPUs",
            "problems[].gpus": "the indices of the affected GPUs; missing: the whole machine",
            "problems[].why": "its cause",
            "problems[].seen": "the evidence",
            "problems[].needs": "what the repair requires: `root`, `reboot`, …",
            "distribution": "the Linux distribution, if known",
            "signs": "why this looks like a builder for other machines (CI, a container, a login node)",
        },
    ),
    Document(
        "Plan",
        "`gpuinstall plan --json`; a refusal exits with 3 (another request would work) or 8 (the machine needs a "
        "repair).",
        ("plan", "plan-refused"),
        {
            "schema": "`gpuinstall.plan/1`",
            "status": "`ok` (every GPU runs it), `partial` (some are left out), `cpu` or `refused`",
            "build": "the choice; null when refused",
            "build.torch": "torch's version",
            "build.backend": "`cu126` is PyTorch for CUDA 12.6, `cpu` is without CUDA",
            "build.index": "its index; null: the default index",
            "build.python": "the Python to use, `X.Y`",
            "build.requirements": "the requirements, with torch and its companions pinned",
            "gpus": "the build's code for each GPU",
            "gpus[].index": "the GPU's index in the Machine",
            "gpus[].runs": "the code that it runs, such as sm_86; null if none",
            "gpus[].how": "`sass` (machine code), `ptx` (compiled by the driver on first use) or `none`",
            "reasons": "why this build, or none; the first is decisive",
            **below("reasons[]", REASON),
            "rejected": "the other builds, newest first",
            "rejected[].torch": "torch's version",
            "rejected[].backend": "its backend",
            **below("rejected[]", REASON),
            "warnings": "warnings",
            **below("warnings[]", REASON),
        },
    ),
    Document("Installation", "`gpuinstall install --json`.", ("install",), INSTALLED),
    Document(
        "Installation into an existing environment",
        "`gpuinstall install --into --json`: some keys of an [installation](#installation), and the changes. With "
        "`--dry-run`, `verdict` is null; with `--rollback`, `plan` is too.",
        ("install-into",),
        {
            "environment": "the existing environment",
            "environment.status": "`changed`, or `none` (up to date)",
            "changes": "the packages added or changed",
            "changes[].package": "the package",
            "changes[].kind": "`added` or `changed`",
            "changes[].old": "its version before, or null",
            "changes[].new": "its version now",
        },
        elsewhere={key: meaning for key, meaning in INSTALLED.items() if key.partition(".")[0] in INTO},
    ),
    Document(
        "Dry run",
        "`gpuinstall install --dry-run --json`: what would happen.",
        ("install-dry-run",),
        {
            "plan": "the [Plan](#plan)",
            "lock": "the lock",
            "lock.changes": "the packages that would be added, removed or changed",
            **below("lock.changes[]", CHANGE),
            "bytes": "the bytes to download",
            "sources": "the hosts to download from, largest first",
            "sources[].host": "the host",
            "sources[].bytes": "the bytes from it",
            "space": "the disk space",
            "space[].path": "the folder",
            "space[].bytes": "the space needed there",
            "commands": "the commands to run, each a list of words",
        },
    ),
    Document(
        "Sync",
        "`gpuinstall sync --json`: the keys of an [installation](#installation), and the lock that was chosen.",
        ("sync",),
        {
            "chosen": "the lock that fits this machine",
            "rejected": "the others",
            "rejected[].lock": "the file",
            **below("rejected[]", REASON),
        },
        elsewhere=INSTALLED,
    ),
    Document(
        "Verdict",
        "`gpuinstall verify --json`; exit status 5 if a kernel failed. `--bench` adds `bench`, `--against` `changes`.",
        ("verify",),
        {
            "schema": "`gpuinstall.verdict/1`",
            "status": "`failed` if a device failed, else `unproven` if one could not be tested, else `passed`",
            "environment": "what was tested",
            "environment.python": "its Python",
            "environment.torch": "its torch, or null",
            "environment.backend": "the torch's backend",
            "environment.architectures": "the architectures that torch reports",
            "devices": "each GPU, each slice of a GPU in MIG mode, or the CPU",
            "devices[].index": "the GPU's index",
            "devices[].name": "its name",
            "devices[].status": "`passed`, `failed` or `unproven` (busy, no free memory, not this job's, no GPU here)",
            "devices[].checks": "the [checks](checks.md), in order",
            "devices[].checks[].name": "the check",
            "devices[].checks[].status": "`passed`, `failed` or `skipped`",
            "devices[].checks[].seconds": "the duration",
            "devices[].checks[].message": "what happened, or null",
            "devices[].checks[].cause": "the entry of [failures.md](failures.md), or null",
        },
    ),
    Document(
        "Examination",
        "`gpuinstall doctor --json`; exit status 8 if the machine needs a repair, 5 if only the environment does.",
        ("doctor",),
        {
            "machine": "[Machine](#machine)",
            "preflight": "a small kernel on every GPU, through the driver alone",
            "preflight.gpus": "its results",
            "preflight.gpus[].index": "the GPU's index",
            "preflight.gpus[].status": "`proven`, `memory-only`, `unproven` or `failed`",
            "preflight.gpus[].message": "why it is not proven",
            "preflight.problems": "as in the Machine",
            "preflight.seconds": "the duration",
            "environment": "the environment, or null",
            "environment.venv": "its folder",
            "environment.verdict": "[Verdict](#verdict), or null if its Python does not run",
            "findings": "what is wrong, most urgent first",
            "findings[].id": "the entry of [failures.md](failures.md), or null",
            "findings[].code": "a slug for programs",
            "findings[].title": "what is wrong",
            "findings[].why": "its cause",
            "findings[].fix": "what to do, one line for each step",
            "findings[].blocking": "whether it must be repaired; otherwise it is a note",
            "repairs": "only with `--fix`: the repairs",
            "repairs[].command": "the command, as the finding's `fix` has it",
            "repairs[].status": "`done` or `failed`, after which it stops",
            "repairs[].message": "why it failed, or null",
        },
    ),
    Document(
        "Explanation",
        "`gpuinstall explain --json`; exit status 0, even if nothing is recognised.",
        ("explain", "explain-other"),
        {
            "causes": "the causes, likeliest first",
            "causes[].id": "the entry of [failures.md](failures.md)",
            "causes[].title": "the cause",
            "causes[].confidence": "from 0 to 1",
            "causes[].evidence": "the line that shows it",
            "causes[].line": "its line number, in a notebook within its cell; null in a log of over 3 MB",
            "causes[].cell": "only for a notebook: the cell's execution count",
            "causes[].fix": "what to do, one entry for each step",
            "causes[].page": "its page in [the site](usage.md#settings)",
            "lookalikes": "what only looks like a GPU problem; missing if none",
            "lookalikes[].id": "a slug",
            "lookalikes[].title": "what it is",
            "lookalikes[].evidence": "the line that shows it",
            "lookalikes[].fix": "what to do",
            "advice": "advice in the text that does not help; missing if none",
            "advice[].told": "the advice",
            "advice[].why": "why it does not help",
            "code": "packages with GPU code in the text; missing if none",
            "code[].package": "the package",
            "code[].version": "its version",
            "code[].architectures": "the architectures in it",
            "code[].without": "the GPUs of `--machine` that it has no code for",
        },
    ),
    Document(
        "Locks",
        "`gpuinstall lock --json`.",
        ("lock",),
        {
            "locks": "one for each target",
            "locks[].target": "the kind of machine: `cu126` (Linux x86_64), `cu130-windows-x86_64`, …",
            "locks[].path": "the file",
            "locks[].status": "`written` or `unchanged`",
            "locks[].sha256": "its sha256",
            "locks[].torch": "torch's version in it",
            "locks[].changes": "the packages added, removed or changed since the old lock",
            **below("locks[].changes[]", CHANGE),
            "locks[].private": "sources that others may not reach: folders and mirrors",
            "locks[].unhashed": "packages from a folder or a repository, without a hash",
            "differences": "packages whose versions differ between locks",
            "differences[].package": "the package",
            "differences[].target": "the lock",
            "differences[].version": "its version there",
            "differences[].why": "why it differs",
            "removed": "the locks that `--prune` removed",
        },
    ),
    Document(
        "Freshness",
        "`gpuinstall lock check --json`; exit status 6 if a lock is stale.",
        ("lock-check",),
        {
            "locks": "one for each lock",
            "locks[].target": "the kind of machine",
            "locks[].path": "the file",
            "locks[].status": "`fresh` or `stale`",
            "locks[].sha256": "its sha256",
            "locks[].torch": "torch's version in it",
            "locks[].reasons": "why it is stale",
            **below("locks[].reasons[]", REASON),
        },
    ),
    Document(
        "Comparison of locks",
        "`gpuinstall lock diff OLD NEW --json`.",
        ("lock-diff",),
        {
            "changes": "the packages that differ",
            **below("changes[]", CHANGE),
        },
    ),
    Document(
        "Downloaded files",
        "`gpuinstall lock download DIR --json`.",
        ("lock-download",),
        {"folder": "the folder", "files": "their names; every hash was checked"},
    ),
    Document(
        "Export",
        "`gpuinstall export requirements --json`, and other formats.",
        ("export",),
        {
            "format": "`requirements`, `uv`, `conda` or `dockerfile`",
            "path": "the file that was written, or null",
            "text": "what was written",
        },
    ),
    Document(
        "Shell variables",
        "`gpuinstall shellenv --json`.",
        ("shellenv",),
        {
            "shell": "the shell that `text` is for",
            "backend": "the backend of the environment, or else of the plan",
            "variables": "an object of names and values: `UV_TORCH_BACKEND`, `UV_CONSTRAINT`, … ([teams.md](teams.md))",
            "text": "the lines for the shell",
        },
    ),
    Document(
        "Hook",
        "`gpuinstall hook pip|uv --json`.",
        ("hook",),
        {
            "tool": "`pip` or `uv`",
            "path": "the configuration file",
            "status": "`written`, `unchanged`, `shown` (nothing was written) or `removed`",
            "text": "the text of the file, with `shown` that of our lines alone; empty where they were removed",
            "bound": "the versions of torch that run here, as a requirement; empty where the lines were removed",
        },
    ),
    Document(
        "Table",
        "`gpuinstall table --json`.",
        ("table",),
        {
            **SYSTEM,
            "rows": "for each kind of GPU: `gpu`, and for each range of drivers the build, or a dash",
            "others": "without `--gpu` and `--driver`: the chips of other makers",
            "others[].gpu": "the chip's name",
            "others[].maker": "its maker",
            "others[].architecture": "the code that it runs",
            "others[].products": "the cards with it",
            "others[].os": "the system",
            "others[].build": "the newest build there, or a dash",
        },
    ),
    Document(
        "Page",
        "`gpuinstall page --json`.",
        (),
        {"path": "the file that was written", "bytes": "its size"},
    ),
    Document(
        "Learned builds",
        "`gpuinstall catalog learn --json`.",
        ("catalog-learn",),
        {"rows": "one for each wheel", **below("rows[]", ROW)},
    ),
    Document(
        "Catalogue",
        "`gpuinstall catalog list --json` and `show`: the builds, shipped and [learned](#learned-builds).",
        ("catalog-list", "catalog-show"),
        {
            "date": "the date of the shipped catalogue",
            "folder": "where learned rows are, a TOML file each, which you may delete",
            "rows": "one for each known build, and each package that was read",
            "rows[].confidence": "`high`, `medium`, `low` or `unverified`",
            "rows[].evidence": "the keys of its sources",
        },
        elsewhere=below("rows[]", ROW),
    ),
    Document(
        "Node",
        "`gpuinstall node survey --json`, `install` and `verify`: the record of one step on one node, as in the run "
        "folder. Without `--json` it is printed in one line.",
        ("node",),
        {
            "schema": "`gpuinstall.node/1`",
            "run": "the id of the run; empty without an engine",
            "node": "the node's name",
            "step": "`survey`, `install`, `verify`, or `together-N`",
            "attempt": "which attempt this is",
            "status": "`started` (if it stays so, the node was lost), `ok` or `failed`",
            **REASON,
            "hint": "what to do, or null",
            "exit_code": "that of the command",
            "started": "when, in seconds since 1970",
            "seconds": "the duration",
            "tool": "the release of gpuinstall on the node",
            "data": "what the step found: `machine`, `scratch`, `gigabits` and `tools` of a survey; `lock`, `sha256`, "
            "`environment`, `change` and `verdict` of an installation; `verdict` of a verification",
            "data.machine": "the node as a [Machine](#machine)",
            "data.scratch": "where the node keeps its own environments",
            "data.scratch.path": "the folder",
            "data.scratch.type": "its file system",
            "data.scratch.free": "the free bytes",
            "data.scratch.shared": "whether other nodes see it",
            "data.gigabits": "the network's speed in Gbit/s each way, or null",
            "data.tools": "the programs for images",
        },
    ),
    Document(
        "Fleet plan",
        "`gpuinstall fleet plan --json`; exit status 7 if some nodes have no lock.",
        ("fleet-plan",),
        {
            "schema": "`gpuinstall.fleet-plan/1`",
            "requirements": "the requirements",
            "classes": "nodes that need the same build",
            **below("classes[]", CLASS),
            "classes[].build": "their build, or null",
            "uncovered": "the classes without a lock",
            **below("uncovered[]", CLASS | REASON),
            "uncovered[].hint": "what to do, or null",
            **PLANNED,
        },
    ),
    Document(
        "Fleet report",
        "`gpuinstall fleet report --json`, `survey`, `install`, `verify` and `up`; exit status 7 if only some nodes "
        "are done. `locks`, `updates` and `apart` are those of the [plan](#fleet-plan).",
        ("fleet-report",),
        {
            "schema": "`gpuinstall.fleet-report/1`",
            "nodes": "for each node an object of steps, each with `state` (`ok`, `failed`, `lost`, `never started` or "
            "`stale`), `code`, `message` and `hint`",
            "counts": "how many nodes are in each state",
            "hosts": "the nodes in each state, as a list for srun",
            "together": "for each group that may share a job: `nodes`, `backend`, the `good` ones, the bandwidth of "
            "their all-reduce (`gb_s`) and of the slowest link (`link_gb_s`), and the `culprits`",
        },
        elsewhere=PLANNED,
    ),
    Document(
        "Environments",
        "`gpuinstall env list --json`.",
        ("env-list",),
        {
            "environments": "this user's environments, and this folder's",
            "environments[].path": "its folder",
            "environments[].torch": "torch's version",
            "environments[].python": "its Python",
            "environments[].backend": "its backend",
            "environments[].status": "the result of its last proof",
            "environments[].bytes": "its size",
            "environments[].previous": "the previous environment, or null",
            "environments[].previous.path": "its folder",
            "environments[].previous.bytes": "its size",
        },
    ),
    Document(
        "Removed environments",
        "`gpuinstall env remove --json`.",
        ("env-remove",),
        {
            "removed": "the removed folders",
            "removed[].path": "the folder",
            "removed[].bytes": "its size",
        },
    ),
)
OPEN = frozenset({"variables", "rows[]", "nodes", "counts", "hosts"})
"""Objects whose keys are data."""


def documents_page() -> str:
    """Write the page; raise KeyError for a key of a recorded document that has no meaning here."""
    envelope = _block(recorded("lock-diff"))
    parts = [HEAD, "## The envelope\n", envelope, _table(ENVELOPE)]
    for document in DOCUMENTS:
        parts += [f"## {document.title}\n", f"{fill(document.text, 120)}\n"]
        parts += [_block(recorded(name)["data"]) for name in document.examples]
        parts += [_table(document.keys)]
        if missing := unexplained(document, *map(recorded, document.examples)):
            raise KeyError(f"tools/documents.py says nothing of {', '.join(missing)} in {document.title}")
    return "\n".join(parts)


def recorded(name: str) -> dict[str, Any]:
    """Read a recorded document."""
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return document


def unexplained(document: Document, *printed: Mapping[str, Any]) -> list[str]:
    """List the keys of printed documents that have no meaning here; a document inside another counts as one key."""
    return sorted({key for each in printed for key in _keys(each["data"], "", 0)} - {*document.every_key})


def _keys(value: object, path: str, depth: int) -> Iterator[str]:
    if isinstance(value, list):
        for entry in value:
            yield from _keys(entry, f"{path}[]", depth)
    elif isinstance(value, dict) and path not in OPEN and not (depth and "schema" in value):
        for key, entry in value.items():
            inner = f"{path}.{key}" if path else key
            yield inner
            yield from _keys(entry, inner, depth + 1)


def _block(value: object) -> str:
    return f"```json\n{json.dumps(value, indent=1, ensure_ascii=False)}\n```\n"


def _table(keys: Mapping[str, str]) -> str:
    rows = "".join(f"| `{key}` | {meaning} |\n" for key, meaning in keys.items())
    return f"| key | meaning |\n|---|---|\n{rows}"
