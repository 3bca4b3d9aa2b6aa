"""Show tokens: in a terminal, in a notebook, step by step, on a page."""
