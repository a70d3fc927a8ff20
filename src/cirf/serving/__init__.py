"""A saved model at work: exported to a file, asked on the command line, or behind a local server with a page to try it on."""
