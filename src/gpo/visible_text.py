"""Escapes text from files for safe printing."""

import unicodedata


def visible(text: str) -> str:
    """Returns text with control characters escaped, so that a terminal does not execute them.

    Marks of text direction and undecodable bytes of file names are escaped as well.
    """
    return "".join(
        letter.encode("unicode_escape").decode() if _is_hidden(letter) else letter
        for letter in text
    )


def _is_hidden(letter: str) -> bool:
    return letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")
