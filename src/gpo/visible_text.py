"""Text from files, as a terminal may show it."""

import unicodedata


def visible(text: str) -> str:
    """Returns text whose control characters are spelled out: a terminal shows them, and obeys none.

    So are marks that turn the direction of writing, and bytes of file names that are no text.
    """
    return "".join(
        letter.encode("unicode_escape").decode() if _is_hidden(letter) else letter
        for letter in text
    )


def _is_hidden(letter: str) -> bool:
    return letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")
