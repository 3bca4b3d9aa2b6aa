"""Tokens made visible: in a terminal, step by step, on a page."""
