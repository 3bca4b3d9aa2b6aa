"""Shared by all rooms: output files, settings files, tables, offsets, progress."""
