"""Is this a machine killpool can keep its promises on: Linux 5.4 or newer."""

import os
import sys

from killpool.faults import UnsupportedPlatform

KERNEL = (5, 4)
_NEEDED = ("pidfd_open", "memfd_create", "eventfd", "waitid", "P_PIDFD")


def require_linux(system: str = sys.platform, release: str | None = None) -> None:
    """Raise UnsupportedPlatform, naming what is missing, unless this is Linux 5.4 or newer."""
    if system != "linux":
        raise UnsupportedPlatform(
            f"killpool needs Linux 5.4 or newer (pidfd, subreaper, memfd), this is {system!r}; "
            "it does not pretend to kill where it cannot"
        )
    release = release if release is not None else os.uname().release
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if numbers < KERNEL:
        raise UnsupportedPlatform(f"killpool needs Linux 5.4 or newer, this kernel is {release}")
    for name in _NEEDED:
        if not hasattr(os, name):
            raise UnsupportedPlatform(f"this Python was built without os.{name}, which killpool needs")
