"""How many processor cores there are to use."""

import os


def usable_cores() -> int:
    """The cores that this process may run on; where a system does not say, all that it has."""
    if hasattr(os, "sched_getaffinity"):  # a container may allow fewer than the machine has
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
