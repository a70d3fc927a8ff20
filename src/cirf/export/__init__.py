"""What is given to others: a model or a run's rows, checked, described, exported and sent to a hub."""
