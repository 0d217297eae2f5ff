"""Runs a program on the inputs of its tests and reports its outputs. The expected outputs never enter the sandbox.

Standard input is one JSON object: {"code", "function": name or null, "tests": [{"input"} or {"arguments": [JSON texts or values]}]}.
Standard output gets one JSON object per line: {"ready": true}, then for each test {"test", "ok", "out"} or {"test", "ok": false, "error"}.
The line of a called function also has "json", the result as JSON, unless JSON cannot hold the result.
Source: RAGEN ragen/env/deepcoder/utils.py (run_deepcoder_sandbox). Unlike in RAGEN, sys.exit() ends only the test, and sys.stdin.buffer
and descriptor 0 have the input.
"""

import ast
import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout

# Results go to the original standard output. What the program writes to descriptor 1 goes to standard error.
results = os.dup(1)
os.dup2(2, 1)


def report(**fields):
    rest = (json.dumps(fields) + "\n").encode()
    while rest:
        rest = rest[os.write(results, rest) :]


def argument(value):
    """The value of an argument. RAGEN evaluates a text as Python. Here it is parsed as JSON or as a Python literal; if both fail, it stays a string."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return value


def call(program, name, arguments):
    scope = {"__name__": "solution"}
    exec(program, scope, scope)
    owner = scope.get("Solution")
    function = getattr(owner(), name) if owner else scope[name]
    result = function(*map(argument, arguments))
    try:
        return {"out": str(result), "json": json.dumps(result)}
    except (TypeError, ValueError):
        return {"out": str(result)}


def standard_input(data):
    """Opens the input as a file without a name on descriptor 0. If the sandbox cannot hold the file, the input stays in memory."""
    try:
        file = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
        try:
            rest = data
            while rest:
                rest = rest[os.write(file, rest) :]
            os.lseek(file, 0, os.SEEK_SET)
            os.dup2(file, 0)
        finally:
            if file != 0:  # os.open returns 0 after a program has closed descriptor 0
                os.close(file)
        return open(0, "rb", closefd=False)
    except OSError:
        return io.BytesIO(data)


class Output(io.BytesIO):
    """Stays readable: a program may close sys.stdout, or wrap sys.stdout.buffer in a file that closes the buffer at its end."""

    def close(self):
        pass


def feed(program, text):
    sys.stdin = io.TextIOWrapper(standard_input(text.encode()), encoding="utf-8")
    out = Output()
    with redirect_stdout(io.TextIOWrapper(out, encoding="utf-8", write_through=True)):
        try:
            scope = {"__name__": "__main__"}
            exec(program, scope, scope)
        except SystemExit:
            pass
        if not getattr(sys.stdout, "closed", False):
            sys.stdout.flush()  # as Python does when a program ends
    return {"out": out.getvalue().decode("utf-8", "replace")}


task = json.loads(sys.stdin.buffer.read())
report(ready=True)
for number, test in enumerate(task["tests"]):
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            program = compile(task["code"], "solution.py", "exec")
            if "arguments" in test:
                result = call(program, task["function"], test["arguments"])
            else:
                result = feed(program, test["input"])
        report(test=number, ok=True, **result)
    except BaseException as error:
        report(test=number, ok=False, error=repr(error)[:500])
