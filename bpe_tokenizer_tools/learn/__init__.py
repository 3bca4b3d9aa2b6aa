"""The algorithms made plain: small, complete, importable."""
