import sys

from tally.cli import main

sys.exit(main(sys.argv[1:]))
