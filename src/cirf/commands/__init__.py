"""What the commands do, behind the thin command line."""
