"""Corpora: reading records and documents, and drawing a mix of sources by a recipe."""
