"""`gpo explore`: shows a trained run on a local web page, where parts of the model can be ablated."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from gpo.cli.console import say
from gpo.cli.query_flags import Velocity
from gpo.optional import require
from gpo.runs import open_run


@dataclass(frozen=True)
class ExploreCommand:
    """Opens a trained run as a local web page: fields, particles, windows, modes and their effects."""

    folder: Positional[Path]
    """Run folder."""
    port: int = 8760
    """Port to listen on (0: any free port)."""
    host: str = "127.0.0.1"
    """Address to listen on. Unless it is the loopback address, the printed URL contains an access token."""
    velocity: Velocity = ()
    """Variables of the velocity along x, y, z, or eastward and northward."""
    browser: FlagCreatePairsOff[
        Annotated[bool, arg(help="Print the address only.", help_behavior_hint="")]
    ] = True
    """Whether to open the page in a browser."""
    compare: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Second run of the same task, to compare with the first."""

    def run(self) -> None:
        """Serves the page until Ctrl-C."""
        for package in ("starlette", "uvicorn"):
            require(package, "explore", "gpo explore")
        from gpo_explore.comparison import compare
        from gpo_explore.server import serve
        from gpo_explore.session import Session

        run = open_run(self.folder)
        session = Session(
            run.config.name, run.forecaster(), run.data, run.split.test, run.split.training,
            self.velocity,
        )  # fmt: skip
        if self.velocity:
            session.flow_variables.on(session.data.geometry())
        session.folder = self.folder
        if self.compare is not None:
            second = open_run(self.compare)
            other = Session(second.config.name, second.forecaster(), second.data, second.split.test)
            if other.name == session.name:
                session.name, other.name = distinct_names([self.folder, self.compare])
            compare(session, other)
        serve(session, self.host, self.port, opens_browser=self.browser, log=say)


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """Returns the shortest path endings that distinguish folders; full paths if they are the same."""
    paths = [folder.resolve().parts for folder in folders]
    for count in range(1, max(map(len, paths)) + 1):
        names = ["/".join(path[-count:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]
