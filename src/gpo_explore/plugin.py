"""Registers the command `gpo explore`; the entry point of the plug-in names this module."""

from gpo.cli.registry import COMMANDS, Command

COMMANDS.register(
    "explore",
    Command("gpo_explore.command:ExploreCommand", "Opens a trained run as a local web page."),
)
