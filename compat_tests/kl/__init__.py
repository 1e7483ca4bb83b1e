"""KL divergence of pyjet against llama.cpp on the same file and the same tokens."""
