"""What every room needs: files to write to, settings that people write, tables."""
