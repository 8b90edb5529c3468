"""The server."""

import functools
import http.server


def serve(options):
    """Serve until interrupted."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=options.root)
    with http.server.ThreadingHTTPServer((options.bind, options.port), handler) as server:
        server.serve_forever()
