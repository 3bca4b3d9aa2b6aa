"""Does it hold? Other loaders, odd tokens, published answers, a model's embeddings."""
