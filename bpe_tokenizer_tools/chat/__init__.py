"""Chat: templates that keep who wrote what, conversations kept as ids, sessions with a model."""
