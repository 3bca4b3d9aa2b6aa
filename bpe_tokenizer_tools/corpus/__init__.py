"""Corpora: records and documents read, and a mix of sources drawn by a recipe."""
