"""Methods that answer in words, or at once."""
