# SPDX-License-Identifier: Apache-2.0
"""The process behind :mod:`workers`: says "ready", then answers each line of standard input, a task in
JSON, with a line."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module


def main() -> None:
    # Compilers and kernels may print: what they say goes to the log.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, name = sys.argv[1].split(":")
    function = getattr(import_module(module), name)()
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        answer = json.dumps(function(json.loads(line)))
        answers.write(answer + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
