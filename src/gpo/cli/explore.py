"""`gpo explore`: a trained run as a page on which its parts can be seen and switched off."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from gpo.cli.console import say
from gpo.files import require
from gpo.runs import open_run


@dataclass(frozen=True)
class ExploreCommand:
    """Opens a trained run as a local web page: fields, particles, windows, modes, and what they cause."""

    folder: Positional[Path]
    """A run folder."""
    port: int = 8760
    """Port to listen on; 0 takes any that is free."""
    host: str = "127.0.0.1"
    """Address to listen on. Other than this machine's own, the printed address has a token."""
    velocity: tuple[str, ...] = ()
    """Variables that are the components of the velocity, one along every axis, where names do not tell."""
    browser: bool = True
    """Opens the address in a browser."""

    def run(self) -> None:
        """Serves until Ctrl-C."""
        for package in ("starlette", "uvicorn"):
            require(package, "explore", "gpo explore")
        from gpo.explore.motion_rollout import flow_variables
        from gpo.explore.server import serve
        from gpo.explore.session import Session

        run = open_run(self.folder)
        session = Session(
            run.config.name, run.forecaster(), run.data, run.split.test, run.split.training,
            self.velocity,
        )  # fmt: skip
        if self.velocity:
            flow_variables(session).on(session.data.geometry())
        serve(session, self.host, self.port, opens_browser=self.browser, say=say)
