"""`python -m nearcast.cli`."""

import sys

from nearcast.cli.main import main

sys.exit(main())
