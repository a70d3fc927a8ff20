"""The HTTP server: its routes, schemas, limits and page."""
