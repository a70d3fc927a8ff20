"""What the report shows, read from a run folder."""
