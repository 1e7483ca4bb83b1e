"""Requests that nobody would send, thousands of them: ``make fuzz``."""
