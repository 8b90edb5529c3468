"""The tools a model may call: one file each, an input in, a text or a named refusal out."""
