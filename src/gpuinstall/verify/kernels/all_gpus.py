"""The checks that need all GPUs at once: memory of one card from another, and a sum over all of them."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

from .context import Check, CheckContext, Skip, Wrong

COUNT = 1 << 20
PATIENCE = timedelta(seconds=60)


def all_reduce(context: CheckContext) -> None:
    """A sum over all cards, one process each, as training does it (NCCL; gloo on the CPU)."""
    distributed = context.torch.distributed
    if not distributed.is_available() or not distributed.is_nccl_available():
        raise Skip("this build has no NCCL")
    sum_over(context, "nccl", context.gpus)


def sum_over(context: CheckContext, backend: str, world: int) -> None:
    """Sum over ``world`` forked processes."""
    processes = context.torch.multiprocessing
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    try:
        processes.start_processes(
            _member, (context.torch, backend, world, address), nprocs=world, start_method="fork"
        )
    except processes.ProcessRaisedException as error:
        raise Wrong(str(error).strip().splitlines()[-1]) from error


def _member(rank: int, torch: Any, backend: str, world: int, address: str) -> None:
    device = f"cuda:{rank}" if backend == "nccl" else "cpu"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        backend, init_method=address, rank=rank, world_size=world, timeout=PATIENCE
    )
    x = torch.full((COUNT,), float(rank + 1), device=device)
    torch.distributed.all_reduce(x)
    total = world * (world + 1) / 2
    if float(x.min()) != total or float(x.max()) != total:
        raise Wrong(f"the sum on device {rank} is {float(x.min())}, not {total}")
    torch.distributed.destroy_process_group()


def peers(context: CheckContext) -> str:
    """Copies from every card to every other, directly where the cards can, unchanged."""
    cuda = context.torch.cuda
    count = cuda.device_count()
    if count < 2:
        raise Skip("there is one device")
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    direct = [pair for pair in pairs if cuda.can_device_access_peer(*pair)]
    for source, target in pairs:
        x = context.torch.arange(COUNT, device=f"cuda:{source}")
        context.same(x.to(f"cuda:{target}"), context.torch.arange(COUNT))
    return f"{len(direct)} of {len(pairs)} directions are direct"


CHECKS = (Check("all-reduce", all_reduce, where="all"), Check("peer-to-peer", peers, where="all"))
