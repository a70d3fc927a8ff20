"""A saved model at work: asked on the command line, or behind a local server with a page to try it on."""
