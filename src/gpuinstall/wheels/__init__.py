"""Wheels that are not here, read in parts: what GPU code they hold, for a hundredth of their size."""

from gpuinstall.wheels.companions import CompanionCode, load_members, read_companion
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.needs import Needs, TorchNeeds, own_cuda, read_needs
from gpuinstall.wheels.ranges import FileRanges, Limits, Ranges, WheelError
from gpuinstall.wheels.torch_wheel import TorchCode, Witness, read_torch
from gpuinstall.wheels.variants import Variant, load_vocabulary, parse_variants
from gpuinstall.wheels.wheel_reader import WheelReader

__all__ = [
    "CompanionCode",
    "FileRanges",
    "HttpRanges",
    "Limits",
    "Needs",
    "Ranges",
    "TorchCode",
    "TorchNeeds",
    "Variant",
    "WheelError",
    "WheelReader",
    "Witness",
    "load_members",
    "load_vocabulary",
    "own_cuda",
    "parse_variants",
    "read_companion",
    "read_needs",
    "read_torch",
]
