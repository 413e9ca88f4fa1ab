"""The paper's tables and figures as commands; every entry of a table is a run that can be repeated."""
