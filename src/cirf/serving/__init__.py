"""From a trained model to where it is used: exported files."""
