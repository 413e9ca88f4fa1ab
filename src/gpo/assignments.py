"""Arguments of the form `name=value`."""

from collections.abc import Sequence


def assignments(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Returns the `name=value` arguments of a flag as a mapping."""
    for text in texts:
        if "=" not in text:
            raise ValueError(f"--{flag} takes name=value, got {text!r}.")
    return dict(text.split("=", 1) for text in texts)
