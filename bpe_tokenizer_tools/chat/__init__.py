"""Chat: templates that track who wrote what, conversations as ids, sessions with a model."""
