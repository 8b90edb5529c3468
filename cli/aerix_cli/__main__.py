"""`python -m aerix_cli`, as `aerix`."""

from __future__ import annotations

from aerix_cli.main import main

if __name__ == "__main__":
    main()
