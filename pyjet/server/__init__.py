"""The HTTP server: a drop-in for ``llama-server``, from the command line to the last byte of a stream."""
