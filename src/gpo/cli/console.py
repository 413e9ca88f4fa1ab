"""Safe printing: text from files cannot contain markup or escape sequences."""

from typing import Any

from rich.console import Console
from rich.text import Text

from gpo.visible_text import visible


class PlainConsole(Console):
    """A console without markup, emoji codes and escape sequences.

    Args:
        wraps: Whether to wrap long lines at the width of the terminal, as in tables.
        **settings: Arguments of `rich.console.Console`.
    """

    def __init__(self, *, wraps: bool = False, **settings: Any) -> None:
        super().__init__(
            soft_wrap=not wraps, highlight=False, markup=False, emoji=False, **settings
        )

    def render_str(self, text: str, **settings: Any) -> Text:
        """Returns printable text, with control characters escaped."""
        return super().render_str(visible(text), **settings)


def say(text: str) -> None:
    """Prints a line without wrapping."""
    PlainConsole().print(text)
