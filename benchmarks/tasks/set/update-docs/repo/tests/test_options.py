import unittest

from webshare.options import parse


class Options(unittest.TestCase):
    def test_defaults(self):
        options = parse([])
        self.assertEqual((options.root, options.port, options.read_only), (".", 8090, False))
