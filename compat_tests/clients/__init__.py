"""Real clients, unmodified, each with the task of changing a file through a running server: ``make clients``."""
