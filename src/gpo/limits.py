"""Limits of the memory that a file or a model may take."""

import os

MAX_BYTES = "GPO_MAX_BYTES"
"""Environment variable: maximum number of bytes of a file in memory."""


MAX_SECONDS = "GPO_MAX_SECONDS"
"""Environment variable: maximum number of CPU seconds of a child process for one answer."""


LARGE = 2**30
"""Bytes in memory above which the compression ratio of a file is limited."""


LARGEST_RATIO = 500
"""Maximum compression ratio of large files; real fields reach at most 50."""


MAX_LAYERS = 1000


MAX_CHUNK_VALUES = 2**23
"""Maximum number of values of a field read at once; a single frame may have more."""


def max_bytes() -> int:
    """Returns the maximum number of bytes to read at once, by default half of the memory."""
    text = os.environ.get(MAX_BYTES)
    if text is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{MAX_BYTES} must be a number of bytes, got {text!r}.")
    return int(text)


def max_seconds() -> int:
    """Returns the maximum number of CPU seconds of a child process for one answer."""
    text = os.environ.get(MAX_SECONDS, "60")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{MAX_SECONDS} must be a number of seconds, got {text!r}.")
    return int(text)


def size_problem(needed: int, stored: int) -> str | None:
    """Returns why a file is too large to be read at once, and how to allow it, else None.

    Args:
        needed: Bytes in memory, as declared in the file.
        stored: Bytes in the file.
    """
    limit = max_bytes()
    allow = f"If you trust the file, allow it: {MAX_BYTES}={needed}."
    if needed > limit:
        return f"would take {format_bytes(needed)} of memory at once, more than {format_bytes(limit)}. {allow}"
    if MAX_BYTES not in os.environ and needed > max(LARGE, LARGEST_RATIO * stored):
        return f"would unpack {format_bytes(stored)} to {format_bytes(needed)}. {allow}"
    return None


def format_bytes(count: int) -> str:
    """Returns a number of bytes as text with a unit."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def check_depth(name: str, count: int) -> None:
    """Raises an error for more layers than could be built in reasonable time and memory."""
    if count > MAX_LAYERS:
        raise ValueError(f"`{name}` must be at most {MAX_LAYERS}, got {name}={count}.")


def check_width(name: str, width: int, num_layers: int = 1) -> None:
    """Raises an error if one square matrix per layer would not fit into memory."""
    needed = 4 * width**2 * max(num_layers, 1)
    problem = size_problem(needed, needed)
    if problem is not None:
        raise ValueError(f"`{name}` is too large: {name}={width} {problem}")
