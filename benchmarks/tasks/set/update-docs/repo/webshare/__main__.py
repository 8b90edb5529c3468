import sys

from webshare.options import parse
from webshare.serve import serve

serve(parse(sys.argv[1:]))
