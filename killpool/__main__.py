"""`python -m killpool`: the same as the `killpool` command."""

import sys

from killpool.cli.main import main

sys.exit(main())
