"""The page, the pictures and the model cards that report a run's results."""
