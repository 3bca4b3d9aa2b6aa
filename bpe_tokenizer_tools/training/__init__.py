"""Other ways to train: SentencePiece's components, words, ties, superwords, parity."""
