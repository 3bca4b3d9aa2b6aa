"""Other ways to train: SentencePiece's components, and other rules for ties."""
