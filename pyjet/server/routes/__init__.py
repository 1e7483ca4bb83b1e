"""One module per API; each offers ``register(app, service)``."""
