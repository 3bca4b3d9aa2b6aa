"""Measure tokenizers: how they cut texts, and what that costs."""
