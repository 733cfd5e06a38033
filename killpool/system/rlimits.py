"""Resource limits of one process (setrlimit(2)), set in the child before any work."""

import resource

NAMES = {"open_files": resource.RLIMIT_NOFILE, "file_size": resource.RLIMIT_FSIZE}


def check(name: str, value: int) -> str:
    """Return "" if this process may set the limit, else the reason: a hard limit below it stands in the way."""
    _soft, hard = resource.getrlimit(NAMES[name])
    if hard != resource.RLIM_INFINITY and value > hard:
        return f"limits.{name} of {value} is above this process's hard limit of {hard}"
    return ""


def descriptors() -> int:
    """Return this process's soft limit of open descriptors."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_descriptors() -> None:
    """Raise the soft limit of open descriptors to the hard one: a supervisor holds several for each worker."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def set_descriptors(soft: int) -> None:
    """Set the soft limit of open descriptors; the hard one stays."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def apply(values: dict[str, int]) -> None:
    """Set soft limits; the hard ones stay, so that a later call may have more."""
    for name, value in values.items():
        _soft, hard = resource.getrlimit(NAMES[name])
        resource.setrlimit(NAMES[name], (value, hard))


def current(names: list[str]) -> dict[str, int]:
    """Return the soft limits of `names`."""
    return {name: resource.getrlimit(NAMES[name])[0] for name in names}


def lock(values: dict[str, int]) -> None:
    """Set soft and hard limits: for a process that serves one call and must not raise them."""
    for name, value in values.items():
        _soft, hard = resource.getrlimit(NAMES[name])
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(NAMES[name], (value, value))
