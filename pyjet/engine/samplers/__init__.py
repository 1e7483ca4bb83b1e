"""The samplers: each narrows or reshapes a set of Candidates. Semantics are those of llama.cpp's llama-sampler.cpp."""
