"""Checks against other programs: llama.cpp's numbers and server suite, and agent chats with known answers."""
