"""A saved model at work: asked on the command line, or by a local server with a page to try it on."""
