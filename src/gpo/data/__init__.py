"""Fields on files: one data model, readers of published layouts, solvers that write them."""
