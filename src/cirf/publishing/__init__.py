"""What is given to others: a model or a run's rows, checked, described and sent to a hub."""
