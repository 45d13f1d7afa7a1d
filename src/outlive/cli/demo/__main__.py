"""``python -m outlive.cli.demo`` is ``outlive demo``."""

import sys

from outlive.cli.demo import main

sys.exit(main(sys.argv[1:]))
