"""The panels of the page by name: the request of each, the function that answers it, what draws it.

A package adds a panel with one line, in the module that its entry point in the group `gpo.plugins`
names:

    PANELS.register("histogram", "my_package.histogram:PANEL")

where `PANEL = Panel(VariableRequest, histogram, title="Histogram", module=...)`. The function
answers POST requests at `api/histogram`. The page loads the JavaScript module from
`static/panel-histogram.js`, beside its own modules, and calls the function `draw(container, store)`
that it exports: `container` is an empty element below the title, `store` holds settings and answers
(`static/store.js`), and `post("histogram", {...})` of `./requests.js` sends a request.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpo.registry import Registry

Queue = Literal["session", "rollout", "own"]


@dataclass(frozen=True)
class Panel:
    """One panel of the page, or one of the requests of a panel."""

    request: type[Any] | str
    """Subclass of `ExampleRequest`, a dataclass; or `"module:attribute"`, imported when used."""
    answer: Callable[..., Any] | str
    """Function from the session and the request to a `Packet` or to bytes; or `"module:attribute"`."""
    queue: Queue = "session"
    """Which requests it waits for: "session", all short ones, which run one at a time under
    `session.lock` and whose recent answers are cached; "rollout", those that use the rollout model;
    "own", those of the same panel. In the latter two the function acquires the locks that it needs,
    and takes `is_abandoned` as a third argument: it returns True once nobody waits for the answer."""
    title: str = ""
    """Heading of a panel that `module` draws."""
    module: Path | None = None
    """JavaScript file that draws a panel from another package; the page draws its own panels."""


BUILT_IN: dict[str, tuple[str, str, Queue]] = {
    "sites": ("ExampleRequest", "answers:sites", "session"),
    "frames": ("ExampleRequest", "answers:frames", "session"),
    "prediction": ("AblationRequest", "answers:prediction", "session"),
    "internals": ("AblationRequest", "internals:layers", "session"),
    "particles": ("AblationRequest", "internals:particles", "session"),
    "window": ("WindowRequest", "internals:window", "session"),
    "mixture": ("MixtureRequest", "mixtures:mixture", "own"),
    "nearby": ("PointRequest", "nearby:nearby", "session"),
    "spectrum": ("VariableRequest", "spectra:spectrum", "session"),
    "typical": ("ExampleRequest", "typical:typical", "own"),
    "ranking": ("RankingRequest", "ranking:ranking", "own"),
    "other": ("ExampleRequest", "comparison:prediction", "session"),
    "other-rollout": ("RolloutRequest", "comparison:rollout", "own"),
    "value": ("PointRequest", "answers:value", "session"),
    "dependence": ("PointRequest", "answers:dependence", "session"),
    "rollout": ("RolloutRequest", "answers:rollout", "rollout"),
    "motion": ("ExampleRequest", "motion:motion", "rollout"),
    "flow": ("FlowRequest", "motion:flow", "rollout"),
    "tracers": ("TracerRequest", "motion:tracers", "rollout"),
    "netcdf": ("AblationRequest", "saved:netcdf", "session"),
}
"""Request, function and queue of the page's own panels."""

PANELS: Registry[Panel] = Registry(
    "panel",
    {
        name: Panel(f"gpo_explore.requests:{request}", f"gpo_explore.{answer}", queue)
        for name, (request, answer, queue) in BUILT_IN.items()
    },
)
"""All panels, by the last part of the address of their requests."""
