"""A table of numbers with its best entries marked, as Markdown, LaTeX and HTML."""

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Marks = dict[int | None, tuple[str, str]]
"""Markup before and after the best entry (1), the second (2), and all others (None)."""


@dataclass(frozen=True)
class Entry:
    """One number, or the reason why it is missing."""

    value: int | float | None = None
    """The number."""
    spread: float | None = None
    """Standard deviation over seeds."""
    note: str = ""
    """Text in parentheses after the number, such as the steps; or the reason why it is missing."""
    digits: int = 3
    """Number of significant digits."""

    @property
    def text(self) -> str:
        """The entry without markup."""
        if self.value is None:
            return f"- ({self.note})" if self.note else "-"
        number = (
            f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:.{self.digits}g}"
        )
        spread = "" if self.spread is None else f" ± {self.spread:.1g}"
        note = f" ({self.note})" if self.note else ""
        return f"{number}{spread}{note}"


@dataclass
class Table:
    """Rows of entries under named columns."""

    title: str
    """Title above the table."""
    corner: str
    """Heading of the column of row names."""
    columns: Sequence[str]
    """Headings of the other columns."""
    rows: dict[str, list[Entry]] = field(default_factory=dict)
    """Entries by row name."""
    unranked: frozenset[str] = frozenset()
    """Rows and columns without markup, such as reference forecasts and the paper's numbers."""
    best: Literal["smallest", "largest", "none"] = "smallest"
    """Which entry of a column is the best."""
    notes: list[str] = field(default_factory=list)
    """Lines below the table."""

    def add(self, name: str, entries: Sequence[Entry]) -> None:
        """Appends a row with one entry per column."""
        if len(entries) != len(self.columns):
            raise ValueError(
                f"`entries` must have one entry for each of {len(self.columns)} columns, "
                f"got {len(entries)}."
            )
        self.rows[name] = list(entries)

    def ranks(self, column: int) -> dict[str, int]:
        """Returns the best (1) and the second (2) row of a column."""
        if self.best == "none" or self.columns[column] in self.unranked:
            return {}
        values = {
            name: entry.value
            for name, entries in self.rows.items()
            if name not in self.unranked and (entry := entries[column]).value is not None
        }
        sign = -1 if self.best == "largest" else 1
        ordered = sorted(values, key=lambda name: sign * float(values[name] or 0.0))
        return {name: rank for rank, name in enumerate(ordered[:2], start=1)}

    def markdown(self) -> str:
        """Returns the table with the best entry bold and the second in italics."""
        marks: Marks = {1: ("**", "**"), 2: ("*", "*"), None: ("", "")}
        lines = [f"### {self.title}", "", f"| {' | '.join((self.corner, *self.columns))} |"]
        lines.append("|" + "---|" * (len(self.columns) + 1))
        for name, cells in self._marked_rows(marks):
            lines.append(f"| {name} | {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def latex(self) -> str:
        """Returns a tabular with the best entry bold and the second underlined."""
        marks: Marks = {1: (r"\textbf{", "}"), 2: (r"\underline{", "}"), None: ("", "")}
        lines = [rf"% {self.title}", rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\hline"]
        head = (self.corner, *self.columns)
        lines.append(" & ".join(_escape(name) for name in head) + r" \\ \hline")
        for name, cells in self._marked_rows(marks, _escape):
            lines.append(" & ".join((_escape(name), *cells)) + r" \\")
        lines += [r"\hline", r"\end{tabular}"]
        return "\n".join([*lines, *(f"% {note}" for note in self.notes)]) + "\n"

    def html(self) -> str:
        """Returns the table with the best entry strong and the second emphasised."""
        marks: Marks = {1: ("<strong>", "</strong>"), 2: ("<em>", "</em>"), None: ("", "")}
        head = "".join(f"<th>{html.escape(name)}</th>" for name in (self.corner, *self.columns))
        body = "".join(
            f"<tr><td>{html.escape(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"
            for name, cells in self._marked_rows(marks, html.escape)
        )
        notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in self.notes)
        return (
            f"<h2>{html.escape(self.title)}</h2>\n<table><tr>{head}</tr>\n{body}</table>\n{notes}"
        )

    def _marked_rows(
        self, marks: Marks, escape: Callable[[str], str] = str
    ) -> Iterator[tuple[str, list[str]]]:
        """Yields the name and the cells of each row, with markup."""
        ranks = [self.ranks(column) for column in range(len(self.columns))]
        for name, entries in self.rows.items():
            cells = []
            for column, entry in enumerate(entries):
                before, after = marks[ranks[column].get(name)]
                cells.append(f"{before}{escape(entry.text)}{after}")
            yield name, cells


def _escape(text: str) -> str:
    """Returns text with the special characters of LaTeX escaped."""
    for character in "&%_#":
        text = text.replace(character, f"\\{character}")
    return text.replace("±", r"$\pm$")
