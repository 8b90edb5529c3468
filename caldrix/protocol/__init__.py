"""The caldrix protocol, version 2: frames, messages and errors. Imports nothing of ours and does no I/O."""
