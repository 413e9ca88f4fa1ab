"""Registers the command `gpo represent`; an entry point names this module."""

from gpo.cli.registry import COMMANDS, Command

COMMANDS.register(
    "represent",
    Command(
        "gpo_mixture.command:RepresentCommand",
        "Writes fields of a file as Gaussians with full covariance, and draws them.",
    ),
)
