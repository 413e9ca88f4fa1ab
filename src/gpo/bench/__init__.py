"""The paper's tables and figures as commands; every cell of a table is a run anyone can repeat."""
