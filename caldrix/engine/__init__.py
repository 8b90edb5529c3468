"""The engine: one thread per member, no sockets, no event loop."""

import os

# OpenMP threads that spin at barriers starve when other programs use the cores; read when llama.cpp's library loads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
