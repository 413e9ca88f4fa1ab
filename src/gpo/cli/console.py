"""What commands print: names from files are shown as they are, and nothing in them is obeyed."""

from typing import Any

from rich.console import Console
from rich.text import Text

from gpo.visible_text import visible


class PlainConsole(Console):
    """A terminal to which text is text: neither markup nor emoji codes nor escape sequences.

    Args:
        wraps: Whether long lines are broken at the width of the terminal, as in tables.
        **settings: Of `rich.console.Console`.
    """

    def __init__(self, *, wraps: bool = False, **settings: Any) -> None:
        super().__init__(
            soft_wrap=not wraps, highlight=False, markup=False, emoji=False, **settings
        )

    def render_str(self, text: str, **settings: Any) -> Text:
        """Returns text to print, its control characters spelled out."""
        return super().render_str(visible(text), **settings)


def say(text: str) -> None:
    """Prints a line as it is, however long."""
    PlainConsole().print(text)
