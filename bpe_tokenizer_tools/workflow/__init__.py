"""From a recipe to the registry: steps, their stamps, and the place for tokenizers."""
