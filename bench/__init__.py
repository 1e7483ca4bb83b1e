"""Measurements: load generators, their results and the tables made from them."""
