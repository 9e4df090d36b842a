"""Script that runs the checks as the package ``gpuinstall_kernels``.

Programs may import another package named kernels, so the name is unique.
"""

import sys

# multiprocessing imports this script again in spawned processes.
if __name__ == "__main__":
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]  # this script's folder

    from importlib import import_module
    from pathlib import Path
    from types import ModuleType

    is_compiling = not sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # write no files next to these modules
    package = ModuleType("gpuinstall_kernels")
    package.__path__ = [str(Path(__file__).parent)]
    sys.modules[package.__name__] = package
    checks = import_module("gpuinstall_kernels.main")
    sys.dont_write_bytecode = not is_compiling
    checks.main()
