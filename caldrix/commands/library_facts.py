"""The engine's native library, asked in a process of its own, since loading it may end the process.

`python -m caldrix.commands.library_facts` prints one JSON object: version, system_info, wait_policy, gpu.
"""

from __future__ import annotations

import json
import os
import sys

import caldrix.engine  # noqa: F401 - sets the wait policy as a pool does, before the library is loaded


def main() -> int:
    import llama_cpp

    facts = {
        "version": llama_cpp.__version__,
        "system_info": llama_cpp.llama_print_system_info().decode("utf-8", "replace"),
        "wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "spins": os.environ.get("GOMP_SPINCOUNT"),
        "gpu": bool(llama_cpp.llama_supports_gpu_offload()),
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
