"""The prompts: what a release embeds (stage 1), and later what a profile overlays."""
