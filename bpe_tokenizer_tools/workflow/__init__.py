"""From a recipe to the registry: steps, what they were made of, and where tokenizers are kept."""
