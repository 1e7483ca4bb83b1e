"""llama-server's own pytest suite, run unchanged against pyjet-server."""
