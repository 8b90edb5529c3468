"""The only room that knows caldrix: a pool as the runtime sees it, and how one is found or started."""
