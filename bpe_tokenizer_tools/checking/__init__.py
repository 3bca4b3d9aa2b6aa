"""Checks: other loaders, odd tokens, published answers, a model's embeddings."""
