"""From a recipe to the registry: the steps, their stamps, and the registry itself."""
