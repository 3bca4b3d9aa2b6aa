"""Other ways to train: SentencePiece's components, other rules for ties, superwords, parity."""
