"""Registers the command `gpo represent`; an entry point names this module."""

from gpo.cli.registry import COMMANDS, Command

COMMANDS.register(
    "represent",
    Command(
        "gpo_mixture.command:RepresentCommand",
        "Fits Gaussians with full covariance to fields of a file, saves and draws them.",
    ),
)
