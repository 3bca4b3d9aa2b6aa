"""Split patterns: their trees, their spellings for other engines, and where text may be cut."""
