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

Every command takes `--json` and then prints exactly one document on stdout, on failure too; progress and warnings go to
stderr. The examples were recorded by `python -m tools.record_documents` with a driver and indexes that the tests play
(two RTX 4090s with driver 535; the machines of the second and third example of `probe` were recorded by other people).
Lists are cut to their first entries, and a document inside another is cut to its `schema`; it has a section of its own.

A reader should ignore keys that it does not know. Where `data` has a `schema`, its number changes when a key changes
its meaning or goes; new keys may come at any time.
"""
ENVELOPE = {
    "gpuinstall": "the version of this envelope, 1",
    "command": "the command that printed it",
    "status": "`success`, `partial` (done, with something left out or in need of attention) or `error`",
    "exit_code": "the exit status of the process: [usage.md](usage.md) lists them",
    "data": "what the sections below describe; present whenever it could be made, on failure too",
    "errors": "empty unless `status` is `error`",
    "errors[].code": "a slug for programs; that of a refused plan is the code of its first reason",
    "errors[].message": "what happened",
    "errors[].hint": "what to do, one line for each step, or null",
    "errors[].page": "the failure's page in the documentation site ([usage.md](usage.md)); missing where it has none",
}
REASON = {"code": "a slug for programs", "message": "the same for people"}
SYSTEM = {
    "os": "`linux`, `windows` or `macos`",
    "arch": "`x86_64`, `aarch64` or `arm64` (macOS)",
}


ROW = {
    "package": "`torch`, or another package with GPU code",
    "version": "its version",
    "backend": "the backend of the torch that it is, or runs beside",
    "platform": "the system and the processor: `linux-x86_64`",
    "architectures": "the code in it: `sm_90` is machine code, `compute_90` PTX; empty where it does not say",
    "cuda": "the CUDA that it was made with; null where it does not say",
    "needs": "the libraries that its own need and that neither it nor every Linux has",
    "opens": "the libraries that are only named in it, and may be opened or not",
    "torch": "which torch its code loads beside",
    "torch.kind": "`stable`: any from `min`; `ordinary`: those of `fits`; `none`; `unknown`: part of it says nothing",
    "torch.min": "the oldest torch, `2.13`; null where it is not stable, or newer than what is known",
    "torch.fits": "the minor releases that have every name that it uses; null where that is not known",
    "glibc": "the glibc that its code needs, whatever its name promises, or null",
    "file": "the wheel that was read",
    "sha256": "its hash, where its index gives one, or null",
    "bytes": "how much of it was read",
    "requests": "in how many requests",
    "witness": "the part of it that was asked: `flags`, `gencode`, `fatbins` or a file; null where none could say",
    "learned": "when it was read, in UTC; null for a build of the catalogue as shipped",
    "missing": "what the catalogue as shipped has for the build and the wheel does not name; absent where nothing is",
}


class Document(NamedTuple):
    """A section: its title, what prints it, its recorded examples, and the meaning of each key."""

    title: str
    text: str
    examples: tuple[str, ...]
    keys: Mapping[str, str]


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
    "plan": "the plan that was carried out ([Plan](#plan))",
    "lock": "the lock that was installed",
    "lock.path": "where it lies",
    "lock.sha256": "the digest of the file",
    "lock.status": "`written` or `unchanged`",
    "lock.packages": "how many packages it holds",
    "lock.changes": "what came, went and moved in the environment",
    **below("lock.changes[]", CHANGE),
    "environment": "the environment that is in place now",
    "environment.path": "its folder",
    "environment.python": "the Python it was made for, `X.Y`",
    "environment.torch": "torch's version, with the backend after the plus sign",
    "environment.backend": "the backend: `cu126` is PyTorch for CUDA 12.6, `cpu` the one without CUDA",
    "environment.status": "`built`, `proven` (as it was, by new kernels) or `none` (there was nothing to do)",
    "previous": "the environment that was replaced and kept, or null",
    "previous.path": "its folder",
    "previous.bytes": "its size",
    "verdict": "the proof ([Verdict](#verdict)); for an environment that stays as it is, that of its last proof",
    "bytes": "what was downloaded",
    "seconds": "how long it took",
}

LOCKED_NODES = {
    "name": "the folder of the lock in the run's folder",
    "lock": "its file",
    "torch": "its torch",
    "backend": "its backend",
    "python": "its Python, the same on all nodes",
    "nodes": "the nodes that it is for, as a list that srun takes",
    "count": "how many they are",
    "sha256": "the digest of the file",
    "nccl": "the collective library that it holds, or null",
}
CLASS = {
    "label": "the GPUs and the driver",
    "nodes": "the nodes, as a list that srun takes",
    "count": "how many they are",
}
UPDATE = {
    "nodes": "the nodes, as a list that srun takes",
    "count": "how many they are",
    "now": "the drivers that they have",
    "branch": "the driver to install",
    "gives": "what that gives",
    "message": "the same for people",
}
INTO = {"plan", "environment", "verdict", "bytes", "seconds"}

DOCUMENTS = (
    Document(
        "Machine",
        "`gpuinstall probe --json` prints it, `--machine FILE` reads it, with or without the envelope. In a file only "
        "`schema`, `os`, `arch`, `gpus` and the `index` and `compute_capability` of each GPU are needed; the rest may "
        "be missing or null, which means unknown.",
        ("probe", "probe-slices", "probe-refusing"),
        {
            "schema": "`gpuinstall.machine/1`",
            **SYSTEM,
            "libc": "`glibc`, `musl` or null",
            "glibc": "glibc's version, which wheels for Linux ask for",
            "environment": "what surrounds the system",
            "environment.wsl": "whether it is Windows Subsystem for Linux",
            "environment.container": "`docker`, `podman`, `kubernetes`, `apptainer`, `lxc` or null",
            "environment.jetson": 'null, or a Jetson\'s `{"l4t": version of Linux for Tegra}`',
            "environment.jetson.l4t": "the version of Linux for Tegra",
            "pythons": "the interpreters found; missing or null in a file: any can be had",
            "driver": "NVIDIA's driver, or null",
            "driver.version": "its release, such as 535.183.01",
            "driver.cuda": "the newest CUDA that it supports, which is not an installed toolkit",
            "driver.found_via": "where the release was read",
            "gpus": "what this process was given, in NVML's order",
            "gpus[].index": "NVML's index (the order on the PCI bus)",
            "gpus[].name": "as the driver says it",
            "gpus[].uuid": "the driver's name for this one card",
            "gpus[].pci_id": "`vendor:device` in hexadecimal",
            "gpus[].compute_capability": "the architecture: 8.9 is sm_89; null when unknown",
            "gpus[].memory_mib": "memory in MiB; null where it is shared with the CPU",
            "gpus[].mig": "whether the card is divided into slices (MIG)",
            "gpus[].mig_devices": "the slices, where there are any",
            "gpus[].mig_devices[].uuid": "the driver's name for the slice",
            "gpus[].mig_devices[].profile": "its size, such as 1g.10gb",
            "gpus[].mig_devices[].memory_mib": "its memory in MiB",
            "gpus[].found_via": "where the card was found: `nvml`, `nvidia-smi`, `pci`, …",
            "gpus[].vendor": "the maker; missing: NVIDIA, or the one of `pci_id`",
            "gpus[].architecture": "the maker's own name of the code that the GPU runs, such as sm_89",
            "problems": "what is wrong with the machine",
            "problems[].code": "a slug for programs",
            "problems[].id": "the entry of [failures.md](failures.md), or null",
            "problems[].message": "what is wrong",
            "problems[].fix": "what to do, one line for each step",
            "problems[].blocking": "whether nothing can be installed for the GPUs until it is repaired",
            "problems[].gpus": "the indices of the GPUs that it concerns; missing: the whole machine",
            "problems[].why": "how it came about",
            "problems[].seen": "the evidence",
            "problems[].needs": "what the repair takes: `root`, `reboot`, …",
            "distribution": "the name of the Linux distribution, where known",
            "signs": "why this looks like a machine that builds for others (CI, a container, a login node)",
        },
    ),
    Document(
        "Plan",
        "`gpuinstall plan --json`; a refusal has exit status 3 (another request would be served) or 8 (the machine has "
        "to be repaired).",
        ("plan", "plan-refused"),
        {
            "schema": "`gpuinstall.plan/1`",
            "status": "`ok` (every GPU runs it), `partial` (some are left out), `cpu` or `refused`",
            "build": "the choice; null when refused",
            "build.torch": "torch's version",
            "build.backend": "`cu126` is PyTorch for CUDA 12.6, `cpu` the one without CUDA",
            "build.index": "the index that has it; null: the default index",
            "build.python": "the Python to use, `X.Y`",
            "build.requirements": "what is asked for, torch and its companions pinned",
            "gpus": "what the build has for each GPU",
            "gpus[].index": "the GPU's index in the Machine",
            "gpus[].runs": "the code in the build that it runs, such as sm_86; null when none",
            "gpus[].how": "`sass` (machine code), `ptx` (compiled by the driver when it is first used) or `none`",
            "reasons": "why this build, or why none; the first one decides",
            **below("reasons[]", REASON),
            "rejected": "the other builds, newest first",
            "rejected[].torch": "torch's version",
            "rejected[].backend": "its backend",
            **below("rejected[]", REASON),
            "warnings": "what does not keep the build from running",
            **below("warnings[]", REASON),
        },
    ),
    Document("Installation", "`gpuinstall install --json`.", ("install",), INSTALLED),
    Document(
        "Installation into an environment of others",
        "`gpuinstall install --into --json`; with `--dry-run` nothing is changed, and `verdict` is null.",
        ("install-into",),
        {
            **{key: meaning for key, meaning in INSTALLED.items() if key.partition(".")[0] in INTO},
            "environment": "the environment of others",
            "environment.status": "`changed`, or `none` (it held what is asked for)",
            "changes": "the packages that came or moved",
            "changes[].package": "the package",
            "changes[].kind": "`added` or `changed`",
            "changes[].old": "its version before, or null",
            "changes[].new": "its version now",
        },
    ),
    Document(
        "Dry run",
        "`gpuinstall install --dry-run --json`: nothing is changed.",
        ("install-dry-run",),
        {
            "plan": "the plan that would be carried out ([Plan](#plan))",
            "lock": "the lock that would be installed",
            "lock.changes": "what would come, go and move in the environment",
            **below("lock.changes[]", CHANGE),
            "bytes": "what would be downloaded",
            "sources": "the hosts that it would come from, the most first",
            "sources[].host": "the host",
            "sources[].bytes": "what it would send",
            "space": "what would be written where",
            "space[].path": "the folder",
            "space[].bytes": "the space that is needed there",
            "commands": "what would be run, each a list of words",
        },
    ),
    Document(
        "Sync",
        "`gpuinstall sync --json`: as an installation, and which lock was taken.",
        ("sync",),
        {
            **INSTALLED,
            "chosen": "the lock that fits this machine",
            "rejected": "the others",
            "rejected[].lock": "the file",
            **below("rejected[]", REASON),
        },
    ),
    Document(
        "Verdict",
        "`gpuinstall verify --json`; exit status 5 where a kernel failed. With `--bench` there is `bench` too, and "
        "with `--against` also `changes`.",
        ("verify",),
        {
            "schema": "`gpuinstall.verdict/1`",
            "status": "`failed` where a device failed, else `unproven` where one could not be tried, else `passed`",
            "environment": "what was tested",
            "environment.python": "its Python",
            "environment.torch": "its torch; null where it has none",
            "environment.backend": "the torch's backend",
            "environment.architectures": "what torch was compiled for, by its own word",
            "devices": "each GPU, each slice of a GPU in MIG mode, or the CPU",
            "devices[].index": "the GPU's index",
            "devices[].name": "its name",
            "devices[].status": "`passed`, `failed` or `unproven` (busy, no free memory, not this job's, no GPU here)",
            "devices[].checks": "what was run, in order ([checks.md](checks.md))",
            "devices[].checks[].name": "the check",
            "devices[].checks[].status": "`passed`, `failed` or `skipped`",
            "devices[].checks[].seconds": "how long it took",
            "devices[].checks[].message": "what happened; null where it passed and there is nothing to say",
            "devices[].checks[].cause": "the entry of [failures.md](failures.md), or null",
        },
    ),
    Document(
        "Examination",
        "`gpuinstall doctor --json`; exit status 8 where the machine has to be repaired, 5 where only the environment "
        "is at fault.",
        ("doctor",),
        {
            "machine": "[Machine](#machine)",
            "preflight": "a small kernel on every GPU, run through the driver alone",
            "preflight.gpus": "how it ended",
            "preflight.gpus[].index": "the GPU's index",
            "preflight.gpus[].status": "`proven`, `memory-only`, `unproven` or `failed`",
            "preflight.gpus[].message": "why, where it is not proven",
            "preflight.problems": "as in the Machine",
            "preflight.seconds": "how long it took",
            "environment": "the environment, or null where there is none",
            "environment.venv": "its folder",
            "environment.verdict": "[Verdict](#verdict), or null where its Python does not run",
            "findings": "everything that is wrong, what to do first at the top",
            "findings[].id": "the entry of [failures.md](failures.md), or null",
            "findings[].code": "a slug for programs",
            "findings[].title": "what is wrong",
            "findings[].why": "how it came about",
            "findings[].fix": "what to do, one line for each step",
            "findings[].blocking": "whether it has to be repaired; else it is a note",
            "repairs": "with `--fix`: what was done; missing without it",
            "repairs[].command": "the command, as the finding's `fix` has it",
            "repairs[].status": "`done` or `failed`; after one that failed nothing more is done",
            "repairs[].message": "why it failed, or null",
        },
    ),
    Document(
        "Explanation",
        "`gpuinstall explain --json`; exit status 0, also where nothing is recognised.",
        ("explain", "explain-other"),
        {
            "causes": "what the text shows, the likeliest first",
            "causes[].id": "the entry of [failures.md](failures.md)",
            "causes[].title": "the cause",
            "causes[].confidence": "from 0 to 1",
            "causes[].evidence": "the line that shows it",
            "causes[].line": "its number, from 1; in a notebook within its cell; null in a log of over 3 MB",
            "causes[].cell": "the execution count of the notebook's cell; only for a notebook",
            "causes[].fix": "what to do, one entry for each step",
            "causes[].page": "its page in the documentation site ([usage.md](usage.md))",
            "lookalikes": "what looks like a problem of GPU or build and is none; missing where there is nothing",
            "lookalikes[].id": "a slug",
            "lookalikes[].title": "what it is",
            "lookalikes[].evidence": "the line that shows it",
            "lookalikes[].fix": "what to do",
            "advice": "advice that the text gives and that does not help; missing where there is none",
            "advice[].told": "the advice",
            "advice[].why": "why it does not help",
            "code": "packages with GPU code of their own, as it was learned; missing where nothing of it matters",
            "code[].package": "the package",
            "code[].version": "its version",
            "code[].architectures": "what it has code for",
            "code[].without": "the GPUs of `--machine` that it has none for",
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
            "locks[].sha256": "the digest of the file",
            "locks[].torch": "torch's version in it",
            "locks[].changes": "what came, went and moved since the lock that lay there",
            **below("locks[].changes[]", CHANGE),
            "locks[].private": "the sources that others may not reach: folders and mirrors",
            "locks[].unhashed": "the packages of a folder or a repository, which no hash pins",
            "differences": "the packages that have different versions in different locks",
            "differences[].package": "the package",
            "differences[].target": "the lock",
            "differences[].version": "its version there",
            "differences[].why": "what keeps it from the version of the others",
            "removed": "the locks that `--prune` removed",
        },
    ),
    Document(
        "Freshness",
        "`gpuinstall lock --check --json`; exit status 6 where a lock is stale.",
        ("lock-check",),
        {
            "locks": "one for each lock",
            "locks[].target": "the kind of machine",
            "locks[].path": "the file",
            "locks[].status": "`fresh` or `stale`",
            "locks[].sha256": "the digest of the file",
            "locks[].torch": "torch's version in it",
            "locks[].reasons": "why it is stale",
            **below("locks[].reasons[]", REASON),
        },
    ),
    Document(
        "Comparison of locks",
        "`gpuinstall lock --diff OLD NEW --json`.",
        ("lock-diff",),
        {
            "changes": "the packages that differ",
            **below("changes[]", CHANGE),
        },
    ),
    Document(
        "Downloaded files",
        "`gpuinstall lock --download DIR --json`.",
        ("lock-download",),
        {"folder": "where they are", "files": "their names; every hash was checked"},
    ),
    Document(
        "Export",
        "`gpuinstall export requirements --json`, and so with the other formats.",
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
            "backend": "the backend of the environment, or of the plan where there is none",
            "variables": "an object of names and values: `UV_TORCH_BACKEND`, `UV_CONSTRAINT`, … ([teams.md](teams.md))",
            "text": "the lines for the shell",
        },
    ),
    Document(
        "Table",
        "`gpuinstall table --json`.",
        ("table",),
        {
            **SYSTEM,
            "rows": "an object for each kind of GPU: `gpu`, and for each range of drivers the build, or a dash",
            "others": "without `--gpu` and `--driver`: one for each chip of the makers whose builds ask for no driver",
            "others[].gpu": "the chip's name",
            "others[].maker": "its maker",
            "others[].architecture": "the name of the code that it runs",
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
        "`gpuinstall catalog learn --json`: the wheels that were read, or had been.",
        ("catalog-learn",),
        {"rows": "one for each wheel", **below("rows[]", ROW)},
    ),
    Document(
        "Catalogue",
        "`gpuinstall catalog list --json` and `show`: what is known of builds, shipped and learned.",
        ("catalog-list", "catalog-show"),
        {
            "date": "that of the catalogue as shipped",
            "folder": "where learned rows are kept, a TOML file each, which may be removed",
            "rows": "one for each build that is known, and for each package that was read",
            **below("rows[]", ROW),
            "rows[].confidence": "how sure the catalogue is: `high`, `medium`, `low` or `unverified`",
            "rows[].evidence": "the keys of its sources",
        },
    ),
    Document(
        "Node",
        "`gpuinstall node survey --json`, and so with `install` and `verify`: the record of one step on one node. The "
        "same lies in the run's folder, and without `--json` it is printed in one line.",
        ("node",),
        {
            "schema": "`gpuinstall.node/1`",
            "run": "the id of the run; empty where nobody drives",
            "node": "the node's name",
            "step": "`survey`, `install`, `verify`, or `together-N`",
            "attempt": "which attempt this is",
            "status": "`started`, `ok` or `failed`; `started` that stays so is a node that was lost",
            **REASON,
            "hint": "what to do, or null",
            "exit_code": "that of the command",
            "started": "when, in seconds since 1970",
            "seconds": "how long it took",
            "tool": "the release of gpuinstall on the node",
            "data": "what the step found: `machine`, `scratch`, `gigabits` and `tools` of a survey; `lock`, `sha256`, "
            "`environment`, `change` and `verdict` of an installation; `verdict` of a verification",
            "data.machine": "the node as a [Machine](#machine)",
            "data.scratch": "where the node keeps environments of its own",
            "data.scratch.path": "the folder",
            "data.scratch.type": "the type of its file system",
            "data.scratch.free": "the bytes that are free there",
            "data.scratch.shared": "whether other nodes see it too",
            "data.gigabits": "what its network carries, in Gbit/s each way, or null",
            "data.tools": "the programs for images that are there",
        },
    ),
    Document(
        "Fleet plan",
        "`gpuinstall fleet plan --json`; exit status 7 where some nodes have no lock.",
        ("fleet-plan",),
        {
            "schema": "`gpuinstall.fleet-plan/1`",
            "requirements": "what was asked for",
            "locks": "the fewest that serve every node that any lock can serve",
            **below("locks[]", LOCKED_NODES),
            "classes": "nodes that a choice cannot tell apart",
            **below("classes[]", CLASS),
            "classes[].build": "the build that they get, or null",
            "uncovered": "the classes that no lock serves",
            **below("uncovered[]", CLASS | REASON),
            "uncovered[].hint": "what to do, or null",
            "updates": "what newer drivers would give, the fewest nodes first",
            **below("updates[]", UPDATE),
            "apart": "why no job can run across some of the locks, or null",
        },
    ),
    Document(
        "Fleet report",
        "`gpuinstall fleet report --json`, and `survey`, `install`, `verify` and `up`; exit status 7 where some nodes "
        "are not proven.",
        ("fleet-report",),
        {
            "schema": "`gpuinstall.fleet-report/1`",
            "nodes": "for each node an object of steps, each with `state` (`ok`, `failed`, `lost`, `never started` or "
            "`stale`), `code`, `message` and `hint`",
            "counts": "how many nodes are in each state",
            "hosts": "the nodes in each state, as a list that srun takes",
            "locks": "those of the plan",
            **below("locks[]", LOCKED_NODES),
            "updates": "as in the plan",
            **below("updates[]", UPDATE),
            "apart": "as in the plan",
            "together": "for each group that may share a job: `nodes`, `backend`, the `good` ones, the bandwidth of "
            "their all-reduce (`gb_s`, beside `link_gb_s`, what the slowest link carries), and the `culprits`",
        },
    ),
    Document(
        "Environments",
        "`gpuinstall env list --json`.",
        ("env-list",),
        {
            "environments": "those of this user, and this folder's",
            "environments[].path": "its folder",
            "environments[].torch": "torch's version",
            "environments[].python": "its Python",
            "environments[].backend": "its backend",
            "environments[].status": "how its last proof ended",
            "environments[].bytes": "its size",
            "environments[].previous": "the one that it replaced, or null",
            "environments[].previous.path": "its folder",
            "environments[].previous.bytes": "its size",
        },
    ),
    Document(
        "Removed environments",
        "`gpuinstall env remove --json`.",
        ("env-remove",),
        {
            "removed": "the folders that were removed",
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
    return sorted({key for each in printed for key in _keys(each["data"], "", 0)} - {*document.keys})


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
