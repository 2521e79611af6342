"""What the peers in Python have in common: requests and answers as lines of JSON."""

import json
import sys


def serve(operations):
    """Answers each request on standard input, `{"op": name, ...arguments}`, by the operation of
    that name."""
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = operations[request.pop("op")](**request)
        except Exception as error:  # the benchmark reports it and goes on
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
