"""Greedy answers of pyjet beside llama.cpp's, from the same prompt on the same file."""
