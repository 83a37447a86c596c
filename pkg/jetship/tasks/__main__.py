"""`python -m jetship.tasks PROGRAM ...`: the tasks.py of a repository, for its own ./run.

PROGRAM is what the user called, for the commands that messages propose.
"""

import sys

import jetship
from jetship.tasks.program import JetshipProgram

if __name__ == "__main__":
    del sys.argv[0]
    JetshipProgram(name="jetship", version=jetship.__version__).run()
