"""Statistical tests, the bootstrap, the jackknife, and straight lines."""
