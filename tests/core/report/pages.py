"""Reports of untrained runs on all kinds of sites, and a parser that checks their HTML."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

from gpo.data.splits import split_time_slices
from gpo.evaluation.example import ReportExample, last_example
from gpo.evaluation.score import evaluate
from gpo.report.run_report import ReportInputs, write_report
from tests.explore.sessions import make_session

VOID = frozenset(("meta", "img", "source", "input", "br", "hr", "link"))
ADDRESSES = ("src", "srcset", "href", "action", "poster", "data")


@dataclass
class Page(HTMLParser):
    """The elements of a page; fails where they are not nested properly."""

    opened: list[str] = field(default_factory=list)
    elements: list[tuple[str, dict]] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self):
        super().__init__()

    @classmethod
    def read(cls, text):
        page = cls()
        page.feed(text)
        page.close()
        assert not page.opened, f"left open: {page.opened}"
        return page

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice: {names}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag):
        assert self.opened, f"{tag} was never opened"
        assert self.opened.pop() == tag

    def handle_data(self, data):
        if self.opened:
            self.texts.setdefault(self.opened[-1], []).append(data)

    def all(self, tag, kind=None):
        """The attributes of all elements with a tag and, if `kind` is given, a class."""
        elements = [attributes for name, attributes in self.elements if name == tag]
        return [
            part for part in elements if kind is None or kind in (part.get("class") or "").split()
        ]

    def addresses(self):
        return [value for _, part in self.elements for name, value in part.items() if name in ADDRESSES]  # fmt: skip


def reported(session, folder, scope="all"):
    """Writes the report of a session and returns its path."""
    forecaster, data, samples = session.forecaster.eval(), session.data, session.samples
    task = forecaster.task
    split = split_time_slices(data, history=task.history, lead=task.lead)
    inputs = ReportInputs(
        name="tiny <run>",
        settings={"model": "gpo"},
        log=[{"epoch": 0.0, "train/total": 0.5, "validation/rmse_over_std": 1.0}],
        results=evaluate(forecaster, data, split, scope=scope, is_quiet=True),
        data=data,
        samples=samples,
        shown=ReportExample.of(forecaster, last_example(forecaster, data, samples)),
    )
    return write_report(folder, inputs, forecaster), inputs.results


def report_of(kind, folder, **changes):
    return reported(make_session(kind, **changes), folder)
