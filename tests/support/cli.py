"""For tests that run the built `apr` as a process and check what a person or a script would see.

Each test program takes the path of `apr` first: cli_exit_test.py build/apr [unittest's arguments]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

APR = os.path.abspath(sys.argv[1])
DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
MODEL = os.path.join(DATA, "models", "tiny-qwen3-kmix.gguf")
LIMIT_S = 240
EXAMPLE = "What is 99 - 71?"
ANSWER = "99 - 71 = 28."


def run(*args, stdin=b"", env=None, **more):
    """Runs apr; returns the finished process with bytes in stdout and stderr."""
    return subprocess.run([APR, *args], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=LIMIT_S, env=env, **more)


class Base(unittest.TestCase):
    maxDiff = 4000

    def check(self, process, code):
        """The exit code, and the manners of every run: no escape codes, one error line if any."""
        self.assertEqual(process.returncode, code, process.stderr.decode(errors="replace"))
        self.assertNotIn(b"\x1b", process.stdout + process.stderr)
        errors = [line for line in process.stderr.split(b"\n") if line.startswith(b"error: ")]
        self.assertEqual(len(errors), 1 if code not in (0, 130) else 0, process.stderr)
        return errors[0].decode() if errors else ""

    def refused(self, code, *args, **more):
        """Runs apr, which must fail with `code` and print nothing on stdout; the error line."""
        process = run(*args, **more)
        error = self.check(process, code)
        self.assertEqual(process.stdout, b"")
        return error

    def answered(self, *args, **more):
        """Runs apr, which must succeed; its stdout."""
        process = run(*args, **more)
        self.check(process, 0)
        return process.stdout

    def answered_json(self, verb, *args, **more):
        return json.loads(self.answered(verb, "--json", *args, **more))

    def temporary(self, content=b"", name="file"):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        return path

    def patched(self, change):
        """A copy of the model whose bytes went through `change`."""
        with open(MODEL, "rb") as file:
            return self.temporary(change(bytearray(file.read())), "patched.gguf")

    def endless(self, *more, model=MODEL):
        """A run that only a signal ends soon: random text up to the context."""
        return subprocess.Popen([APR, "run", model, "hi", "--temperature", "9", "--top-k", "0",
                                 "--threads", "1", *more],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)


SKIP_CODE = 77  # SKIP_RETURN_CODE of the tests that may skip


def main():
    """Runs the tests; where all of them skipped, says so as a gtest program does, with SKIP_CODE."""
    program = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2, exit=False)
    result = program.result
    if result.wasSuccessful() and result.testsRun > 0 and len(result.skipped) == result.testsRun:
        reason = result.skipped[0][1]
        print(f"{sys.argv[0]}: Skipped\n{reason}\n[  SKIPPED ] {result.testsRun} tests.\n[  PASSED  ] 0 tests.")
        sys.exit(SKIP_CODE)
    sys.exit(not result.wasSuccessful())
