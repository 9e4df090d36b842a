"""A fake torch wheel whose kernel results come from a file.

The file named by LAB_VERDICT is a JSON object. Its keys are GPU UUIDs (or other values
of CUDA_VISIBLE_DEVICES), "cpu" if that variable shows no GPU, or "*" for every device.
Its values are kernel results. All checks pass on a device without a key. A key with a
build prefix, "2.15.0+cu130/*" or "cu130/GPU-0…1", applies only to that build and has
precedence.

    {"GPU-0…1": {"failed": {"matmul-float32": "CUDA error: no kernel image is available"},
                 "unproven": "CUDA error: all CUDA-capable devices are busy or unavailable",
                 "refused": {"matmul-fp8": "CUDA error: architecture mismatch"},
                 "crash": 11, "exit": 3, "hang": true, "at": "convolution", "architecture": "sm_89"}}

``refused`` is a library's error for an unsupported operation, which the check itself
evaluates. ``crash``, ``exit``, and ``hang`` occur in the check named by ``at``, by
default the first one. The kernel process receives the results while it imports torch,
through the channel that waits for the import, and then exits. Programs that use torch
are really imported, but their operations are simulated.
"""

from functools import cache
from textwrap import dedent

from tests.frozen import frozen_catalog

USUAL = (
    "sm_50",
    "sm_60",
    "sm_70",
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_90",
    "sm_100",
    "sm_120",
)

INIT = '''
"""A stand-in for torch."""
import sys

from . import cuda, version
from .version import __version__

ARCHITECTURES = {architectures!r}


class Tensor:
    """A tensor that can only be brought to the GPU."""

    def cuda(self):
        cuda.init()
        return self


def zeros(*shape):
    return Tensor()


def empty(size, device="cpu", dtype=None):
    cuda.init()
    card = cuda.get_device_properties(0)
    asked, total = size / 2**30, card.total_memory / 2**30
    raise cuda.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {{asked:.2f}} GiB. GPU 0 has a total capacity of {{total:.2f}} GiB of "
        f"which {{total:.2f}} GiB is free."
    )


int8 = "torch.int8"

if "gpuinstall_kernels.main" in sys.modules:
    from . import lab

    lab.answer(__version__, ARCHITECTURES)
'''

CUDA = '''
"""What programs ask torch.cuda, answered by the libcuda that the loader finds, refusals in PyTorch's own words."""
import ctypes
from types import SimpleNamespace


class OutOfMemoryError(RuntimeError):
    pass


def _library():
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, None
    return library, library.cuInit(0)


WORDS = {{
    1: "invalid argument",
    2: "out of memory",
    34: "CUDA driver is a stub library",
    46: "CUDA-capable device(s) is/are busy or unavailable",
    101: "invalid device ordinal",
    304: "OS call failed or operation not supported on this OS",
    802: "system not yet initialized",
    803: "system has unsupported display driver / cuda driver combination",
    804: "forward compatibility was attempted on non supported HW",
    805: "MPS client failed to connect to the MPS control daemon or the MPS server",
    807: "MPS server is not ready to accept new MPS client requests",
}}
OWN_WORDS = {{
    3: "CUDA driver initialization failed, you might not have a CUDA gpu.",
    100: "No CUDA GPUs are available",
    999: "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable "
    "CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
}}


def init():
    library, status = _library()
    if library is None:
        raise RuntimeError(
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver "
            "from http://www.nvidia.com/Download/index.aspx"
        )
    driver = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(driver))
    if _is_too_old(driver.value):
        raise RuntimeError(
            f"The NVIDIA driver on your system is too old (found version {{driver.value}}). Please update your GPU driver "
            "by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
            "Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your "
            "version of the CUDA driver."
        )
    if status in OWN_WORDS:
        raise RuntimeError(OWN_WORDS[status])
    if status:
        raise RuntimeError(
            "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
            f"NumCudaDevices() that might have already set an error? Error {{status}}: {{WORDS.get(status, status)}}"
        )


def _is_too_old(driver):
    from .version import cuda

    # A stub library has no version, and is refused by cuInit.
    return cuda is not None and 0 < driver // 1000 < int(cuda.partition(".")[0])


def open_context():
    init()
    library, _ = _library()
    status = library.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
    if status:
        raise RuntimeError(f"CUDA error: {{WORDS.get(status, 'unknown error')}}")


def device_count():
    count = ctypes.c_int()
    try:
        init()
    except RuntimeError:
        return 0
    _library()[0].cuDeviceGetCount(ctypes.byref(count))
    return count.value


def is_available():
    return device_count() > 0


def get_arch_list():
    from . import ARCHITECTURES

    return ARCHITECTURES


def get_device_properties(index):
    init()
    library, _ = _library()
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    memory, major, minor = ctypes.c_size_t(), ctypes.c_int(), ctypes.c_int()
    library.cuDeviceGetName(name, 256, index)
    library.cuDeviceGetUuid_v2(uuid, index)
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), index)
    library.cuDeviceGetAttribute(ctypes.byref(major), 75, index)
    library.cuDeviceGetAttribute(ctypes.byref(minor), 76, index)
    digits = uuid.raw.hex()
    return SimpleNamespace(
        name=name.value.decode(),
        major=major.value,
        minor=minor.value,
        total_memory=memory.value,
        uuid="-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
    )
'''

VERSION = """
__version__ = {version!r}
cuda = {cuda!r}
hip = None
"""

LAB = """
import json
import os
import signal
import sys
import time


def answer(version, architectures):
    channel, options = _waiting()
    told = _told(version)
    if options.program:
        _program(channel, options, told)
    channel.send(name="import", status="passed", seconds=0.0, message=None)
    channel.send(architectures=architectures)
    if told.get("architecture"):
        channel.send(architecture=told["architecture"])
    from gpuinstall_kernels.main import select_checks

    checks = [] if options.device == "none" else select_checks(options.device, options.work)
    if checks and not _opened(channel, options.device):
        os._exit(0)
    for check in checks:
        channel.send(begin=check.name)
        if check.name == told.get("at", checks[0].name):
            _end(told)
        if not _check(channel, check.name, told):
            break
    os._exit(0)


def _opened(channel, device):
    # Where a driver is played, the GPU is opened through it, so that it answers here as it does elsewhere.
    from gpuinstall_kernels.main import BUSY

    from . import cuda, version

    # A build for ROCm calls its device cuda, too, and loads no libcuda.
    if version.cuda is None or not device.startswith("cuda") or "LAB_GPUS" not in os.environ:
        return True

    try:
        cuda.open_context()
    except RuntimeError as error:
        message = f"RuntimeError: {error}"
        status = "failed"
        if any(sign in str(error) for sign in BUSY):
            status = "skipped"
            channel.send(unproven=message)
        channel.send(name="device", status=status, seconds=0.0, message=message, evidence=str(error))
        return False
    return True


def _program(channel, options, told):
    from gpuinstall_kernels.context import CheckContext
    from gpuinstall_kernels.programs import create_program_check, import_program

    name = create_program_check(options.program, options.device).name
    if told.get("at") == name:
        _end(told)
    import_program(options.program, CheckContext(None, options.device))
    _check(channel, name, told)
    os._exit(0)


def _waiting():
    frame, found = sys._getframe(), {}
    while frame:
        if frame.f_code.co_name == "attempt":
            found["channel"] = frame.f_locals["self"]
        if frame.f_code.co_name == "main" and "options" in frame.f_locals:
            found["options"] = frame.f_locals["options"]
        frame = frame.f_back
    return found["channel"], found["options"]


def _told(version):
    path = os.environ.get("LAB_VERDICT")
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        verdict = json.load(file)
    device = os.environ.get("CUDA_VISIBLE_DEVICES") or "cpu"
    builds = (f"{version}/", f"{version.partition('+')[2]}/", "")
    keys = [f"{build}{name}" for build in builds for name in (device, "*")]
    return next((verdict[key] for key in keys if key in verdict), {})


def _end(told):
    if "crash" in told:
        signal.signal(told["crash"], signal.SIG_DFL) if told["crash"] != signal.SIGKILL else None
        os.kill(os.getpid(), told["crash"])
    if "exit" in told:
        os._exit(told["exit"])
    if told.get("hang"):
        time.sleep(600)


def _check(channel, name, told):
    if told.get("unproven"):
        channel.send(unproven=told["unproven"])
        channel.send(name=name, status="skipped", seconds=0.0, message=told["unproven"])
        return False
    if name in told.get("refused", {}):
        _refuse(channel, name, told["refused"][name])
        return True
    text = told.get("failed", {}).get(name)
    status = "passed" if text is None else "failed"
    channel.send(name=name, status=status, seconds=0.001, message=text, evidence=text or "")
    return True


def _refuse(channel, name, text):
    from gpuinstall_kernels.context import call_if_supported
    from gpuinstall_kernels.deep import UNSUPPORTED
    from gpuinstall_kernels.quick import NO_KERNEL

    def product():
        raise RuntimeError(text)

    signs = NO_KERNEL if name.startswith("attention") else UNSUPPORTED
    channel.attempt(name, lambda: call_if_supported(product, *signs))
"""


def modules(version: str, backend: str, *architectures: str) -> dict[str, str]:
    """Return the files of ``package`` for a fake torch wheel.

    Args:
        version: The full version with its label.
        backend: The tag, such as ``cu126``.
        architectures: The architectures, if they differ from the catalog's or the
            default.
    """
    cuda = None
    chosen = list(architectures)
    if backend.startswith("cu"):
        cuda = f"{backend[2:-1]}.{backend[-1]}"
    if not chosen and cuda:
        chosen = list(_catalogued(version.partition("+")[0], backend) or USUAL)
    return {
        "torch/__init__.py": INIT.format(architectures=chosen).lstrip(),
        "torch/cuda.py": CUDA.format().lstrip(),
        "torch/version.py": VERSION.format(version=version, cuda=cuda).lstrip(),
        "torch/lab.py": dedent(LAB).lstrip(),
    }


@cache
def _catalogued(torch: str, backend: str) -> tuple[str, ...]:
    """Return the catalog's entry for the build for Linux x86_64."""
    for build in frozen_catalog().builds_for("linux", "x86_64"):
        if build.name == f"{torch}+{backend}":
            return build.code
    return ()
