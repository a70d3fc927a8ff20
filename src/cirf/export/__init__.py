"""Export and publication of a model or a run's rows: checks, cards, formats and upload."""
