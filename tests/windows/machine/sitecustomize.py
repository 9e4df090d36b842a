"""Windows' error of a lock that another process holds, which Wine 8 lacks."""

import errno
import os
import sys

if sys.platform == "win32":
    import msvcrt

    _lock = msvcrt.locking

    def _locking(descriptor: int, mode: int, size: int) -> None:
        try:
            _lock(descriptor, mode, size)
        except OSError as error:
            if error.errno == 0:
                text = os.strerror(errno.EACCES)
                raise PermissionError(errno.EACCES, text) from None
            raise

    msvcrt.locking = _locking
