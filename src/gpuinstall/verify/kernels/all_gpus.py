"""Checks that need all GPUs at once: peer copies and all-reduce."""

from __future__ import annotations

import socket
from datetime import timedelta
from itertools import permutations
from typing import Any

from .context import Check, CheckContext, Skip, Wrong, first_line

COUNT = 1 << 20
PATIENCE = timedelta(seconds=60)


def check_all_reduce(context: CheckContext) -> None:
    """Check an all-reduce over all GPUs, with one NCCL process per GPU."""
    distributed = context.torch.distributed
    if not distributed.is_available() or not distributed.is_nccl_available():
        raise Skip("this build has no NCCL")
    try:
        check_sum(context, "nccl", context.gpus)
    except Exception as error:
        if context.gpus > 1:
            raise
        # A missing network, or only 64 MB of shared memory, is not a fault of the GPUs.
        message = f"NCCL fails with a single process: {first_line(error)}"
        raise Skip(message) from None


def check_sum(
    context: CheckContext,
    backend: str,
    world: int,
) -> None:
    """Check an all-reduce among ``world`` forked processes.

    Args:
        context: The context of the check.
        backend: ``nccl``, or ``gloo`` on the CPU.
        world: The number of processes. NCCL has one per GPU.
    """
    processes = context.torch.multiprocessing
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        _host, port = free.getsockname()
    try:
        processes.start_processes(
            _sum_in_process,
            (context.torch, backend, world, f"tcp://127.0.0.1:{port}"),
            nprocs=world,
            start_method="fork",
        )
    except processes.ProcessRaisedException as error:
        raise Wrong(str(error).strip().splitlines()[-1]) from error


def _sum_in_process(
    rank: int,
    torch: Any,
    backend: str,
    world: int,
    address: str,
) -> None:
    """Sum one number per process, and raise Wrong if the total is incorrect.

    Args:
        rank: The number of this process and its GPU.
        torch: The module, imported before the fork.
        backend: The backend of the process group.
        world: The number of processes.
        address: The URL of the process group.
    """
    device = "cpu"
    if backend == "nccl":
        device = f"cuda:{rank}"
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        backend,
        init_method=address,
        rank=rank,
        world_size=world,
        timeout=PATIENCE,
    )
    x = torch.full((COUNT,), float(rank + 1), device=device)
    torch.distributed.all_reduce(x)
    total = world * (world + 1) / 2
    if not bool((x == total).all()):
        raise Wrong(f"the sum on device {rank} is {float(x.min())}, not {total}")
    torch.distributed.destroy_process_group()


def check_peer_copies(context: CheckContext) -> str:
    """Check copies between all pairs of GPUs, direct if possible."""
    torch = context.torch
    count = torch.cuda.device_count()
    if count < 2:
        raise Skip(f"torch finds {count} GPUs; the check requires 2")
    directions = list(permutations(range(count), 2))
    direct = [pair for pair in directions if torch.cuda.can_device_access_peer(*pair)]
    expected = torch.arange(COUNT)
    for source, target in directions:
        x = torch.arange(COUNT, device=f"cuda:{source}")
        context.compare_exactly(x.to(f"cuda:{target}"), expected)
    return f"{len(direct)} of {len(directions)} directions use direct copies"


CHECKS = (
    Check(
        "all-reduce",
        check_all_reduce,
        where="all",
        cause="F69",
    ),
    Check(
        "peer-to-peer",
        check_peer_copies,
        where="all",
    ),
)
