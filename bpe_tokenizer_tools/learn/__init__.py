"""The algorithms as plain programs: small, complete, importable."""
