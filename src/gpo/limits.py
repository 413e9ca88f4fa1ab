"""How much memory a file or a model may take at once."""

import os

MAX_BYTES = "GPO_MAX_BYTES"
"""Environment variable: how many bytes a file may take in memory at once."""


LARGE = 2**30
"""Bytes from which on a file that unpacks to far more than it holds is refused."""


LARGEST_RATIO = 500
"""Bytes in memory per byte in the file up to which large content is believed; real fields have 50 at most."""


MAX_LAYERS = 1000


def max_bytes() -> int:
    """Returns how many bytes may be read at once: as the user says, else half of the memory."""
    stated = os.environ.get(MAX_BYTES)
    if stated is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    if not stated.isdecimal() or int(stated) < 1:
        raise ValueError(f"{MAX_BYTES} must be a number of bytes, got {stated!r}.")
    return int(stated)


def size_problem(needed: int, stored: int) -> str | None:
    """Returns why content is too large to be read at once, and what allows it; None where it is not.

    Args:
        needed: Bytes in memory, as the file declares them.
        stored: Bytes in the file.
    """
    limit = max_bytes()
    allow = f"If you trust the file, allow it: {MAX_BYTES}={needed}."
    if needed > limit:
        return f"would take {spell_bytes(needed)} of memory at once, more than {spell_bytes(limit)}. {allow}"
    if MAX_BYTES not in os.environ and needed > max(LARGE, LARGEST_RATIO * stored):
        return f"would unpack {spell_bytes(stored)} to {spell_bytes(needed)}. {allow}"
    return None


def spell_bytes(count: int) -> str:
    """Returns a number of bytes in words."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def check_depth(name: str, count: int) -> None:
    """Refuses more layers than any model has: building them would take hours and all memory."""
    if count > MAX_LAYERS:
        raise ValueError(f"`{name}` must be at most {MAX_LAYERS}, got {name}={count}.")


def check_width(name: str, width: int, num_layers: int = 1) -> None:
    """Refuses a width whose square matrices, one in every layer, would not fit into memory."""
    needed = 4 * width**2 * max(num_layers, 1)
    problem = size_problem(needed, needed)
    if problem is not None:
        raise ValueError(f"`{name}` is too large: {name}={width} {problem}")
