"""The engine: one thread per member, no sockets, no event loop."""

import os

# How long OpenMP's threads spin at a barrier; read when llama.cpp's library loads. Its default spins for milliseconds
# and collapses when other programs use the cores (measured here: 45 times slower), and waiting without a spin loses
# what the second core gives. A short spin keeps most of both, and `pace.py` goes down to fewer threads where that is
# faster.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
