"""Model references, serving flags and the memory they need."""
