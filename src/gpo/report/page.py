"""HTML of the report: figures with captions, tables, the animation, and the page around them.

The page is one file without external resources: images are embedded, and its content security policy
allows no other source, and only its own script and style, by their checksums.
"""

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpo.evaluation.results import format_score
from gpo.report.animation import Animation

STATIC = Path(__file__).parent / "static"
SPEEDS = (1, 2, 4, 8, 16)
"""Choices of steps per second."""
DEFAULT_SPEED = 4
KEYS = "Space plays and pauses, the left and right arrow keys move by one step, Home and End go to the first and the last step, + and - change the speed."  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """A figure for light and for dark paper."""

    light: bytes
    dark: bytes
    size: tuple[int, int]
    """Width and height on the page, in pixels."""


@dataclass(frozen=True)
class Section:
    """A heading and the HTML below it; left out where the HTML is empty."""

    title: str
    content: str


def make_page(title: str, head: str, sections: Sequence[Section]) -> str:
    """Returns the page.

    Args:
        title: Title of the page, in plain text.
        head: HTML above the sections.
        sections: The sections in order; those without content are left out.
    """
    shown = [section for section in sections if section.content]
    links = "".join(f'<li><a href="#{_anchor(s.title)}">{html.escape(s.title)}</a></li>' for s in shown)  # fmt: skip
    body = "\n".join(
        f'<section id="{_anchor(s.title)}">\n<h2>{html.escape(s.title)}</h2>\n{s.content}\n</section>'
        for s in shown
    )
    style, script = (_static(name) for name in ("report.css", "report.js"))
    policy = (
        f"default-src 'none'; img-src data:; style-src {_checksum(style)}; "
        f"script-src {_checksum(script)}; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n"
        f'<body>\n<header>\n{head}\n</header>\n<nav aria-label="Sections"><ul>{links}</ul></nav>\n'
        f"<main>\n{body}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def figure_element(picture: Picture, alt: str, caption: str) -> str:
    """Returns a figure with its caption.

    Args:
        picture: The figure for light and dark paper.
        alt: Description for screen readers.
        caption: Plain text below the figure.
    """
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f'<figure>\n<div class="wide">{_picture(picture, alt)}</div>\n{below}\n</figure>'


def player_element(
    animations: Sequence[Animation], labels: Sequence[str], caption: str, alt: str
) -> str:
    """Returns an animation with controls; without JavaScript and on paper, its last frame.

    Args:
        animations: One animation per variable.
        labels: Text for each step, in order.
        caption: Plain text below the animation.
        alt: Description for screen readers, without variable and step.
    """
    stages = "\n".join(
        _stage(animation, labels, alt, is_first=number == 0)
        for number, animation in enumerate(animations)
    )
    last = len(animations[0].frames) - 1
    speeds = "".join(
        f'<option value="{speed}"{" selected" if speed == DEFAULT_SPEED else ""}>{speed} steps / s</option>'
        for speed in SPEEDS
    )
    names = "".join(f'<option value="{n}">{html.escape(a.variable)}</option>' for n, a in enumerate(animations))  # fmt: skip
    choice = f'<label>Variable <select class="variable">{names}</select></label>' if len(animations) > 1 else ""  # fmt: skip
    return (
        f'<figure class="player" tabindex="0" role="group" aria-label="Animation of the rollout. {html.escape(KEYS)}">\n'
        f"{stages}\n"
        '<div class="controls" hidden>'
        '<button type="button" class="play" aria-pressed="false">Play</button>'
        f'<input type="range" class="position" min="0" max="{last}" value="{last}" step="1" aria-label="Step">'
        f'<label>Speed <select class="speed">{speeds}</select></label>{choice}</div>\n'
        f'<p class="step"><output>{html.escape(labels[animations[0].steps[-1] - 1])}</output></p>\n'
        f'<figcaption>{html.escape(caption)} <span class="keys" hidden>{html.escape(KEYS)}</span></figcaption>\n</figure>'
    )


def table(rows: Mapping[str, Mapping[str, float | str]], corner: str = "") -> str:
    """Returns a table with one row per name; a row with the key `reason` shows the reason only."""
    if not rows:
        return ""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row if key != "reason"))
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in columns)
    lines = []
    for name, row in rows.items():
        if "reason" in row:
            cells = (
                f'<td colspan="{max(len(columns), 1)}">- ({html.escape(str(row["reason"]))})</td>'
            )
        else:
            cells = "".join(f"<td>{_number(row.get(column))}</td>" for column in columns)
        lines.append(f'<tr><th scope="row">{html.escape(name)}</th>{cells}</tr>')
    return (
        f'<div class="wide"><table><thead><tr><th scope="col">{html.escape(corner)}</th>{head}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def listed(sentences: Sequence[str]) -> str:
    """Returns a list of sentences; empty where there are none."""
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def paragraph(text: str, kind: str = "") -> str:
    """Returns a paragraph of plain text, with a CSS class if `kind` is not empty."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{html.escape(text)}</p>"


def data_url(content: bytes) -> str:
    """Returns an image as a `data:` URL."""
    kind = "webp" if content[8:12] == b"WEBP" else "png"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _stage(animation: Animation, labels: Sequence[str], alt: str, *, is_first: bool) -> str:
    width, height = animation.size
    paper = Picture(animation.light, animation.dark, animation.size)
    last = len(animation.frames) - 1
    frames = "\n".join(
        f'<img class="frame" width="{width}" height="{height}"{"" if number == last else " hidden"} '
        f'data-label="{html.escape(labels[step - 1])}" '
        f'alt="{html.escape(f"{alt} {animation.variable}, {labels[step - 1]}")}" '
        f'src="{data_url(frame)}">'
        for number, (step, frame) in enumerate(zip(animation.steps, animation.frames, strict=True))
    )
    return (
        f'<div class="wide stage"{"" if is_first else " hidden"}><div class="layers">'
        f"{_picture(paper, f'Axes and colours of {animation.variable}')}\n{frames}</div></div>"
    )


def _picture(picture: Picture, alt: str) -> str:
    width, height = picture.size
    return (
        '<picture><source media="screen and (prefers-color-scheme: dark)" '
        f'srcset="{data_url(picture.dark)}"><img width="{width}" height="{height}" '
        f'alt="{html.escape(alt)}" src="{data_url(picture.light)}"></picture>'
    )


def _number(value: float | str | None) -> str:
    return (
        format_score(value, 3) if isinstance(value, int | float) else html.escape(str(value or "-"))
    )


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


@cache
def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _checksum(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
