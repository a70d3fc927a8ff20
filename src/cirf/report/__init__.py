"""The page, the pictures and the model cards that tell what came of a run."""
