#!/usr/bin/env python3
"""What is shown on a terminal, and only there."""
import os
import pty
import select
import subprocess
import time

from support.cli import ANSWER, APR, Base, EXAMPLE, LIMIT_S, main, MODEL


class Terminal(Base):
    def on_terminal(self, args, with_stdin=False, with_stdout=False):
        """Runs apr with stderr on a terminal; returns exit code, stdout, what the terminal saw."""
        master, slave = pty.openpty()
        process = subprocess.Popen([APR, *args], stdin=slave if with_stdin else subprocess.DEVNULL,
                                   stdout=slave if with_stdout else subprocess.PIPE, stderr=slave,
                                   start_new_session=True)
        os.close(slave)
        out = b"" if with_stdout else process.stdout
        seen = b""
        collected = b""
        deadline = time.monotonic() + LIMIT_S
        streams = [master] + ([] if with_stdout else [process.stdout.fileno()])
        while streams and time.monotonic() < deadline:
            for stream in select.select(streams, [], [], 1.0)[0]:
                try:
                    piece = os.read(stream, 65536)
                except OSError:
                    piece = b""
                if not piece:
                    streams.remove(stream)
                elif stream == master:
                    seen += piece
                else:
                    collected += piece
        code = process.wait(timeout=LIMIT_S)
        if out:
            out.close()
        os.close(master)
        return code, collected, seen

    def test_progress_is_shown_on_a_terminal_alone(self):
        code, out, seen = self.on_terminal(["run", MODEL, "--chat", EXAMPLE])
        self.assertEqual((code, out), (0, ANSWER.encode()))
        self.assertIn(b"loading", seen)
        self.assertIn(b"of 22 tokens", seen)
        self.assertTrue(seen.endswith(b"\r\x1b[K"), seen)  # and wiped at the end
        code, out, seen = self.on_terminal(["run", MODEL, "--chat", EXAMPLE, "--quiet"])
        self.assertEqual((code, out, seen), (0, ANSWER.encode(), b""))

    def test_an_answer_on_a_terminal_ends_its_line(self):
        code, _, seen = self.on_terminal(["run", MODEL, "--chat", EXAMPLE, "--quiet"],
                                         with_stdout=True)
        self.assertEqual((code, seen), (0, ANSWER.encode() + b"\r\n"))

    def test_no_prompt_on_a_terminal_does_not_wait(self):
        code, out, seen = self.on_terminal(["run", MODEL], with_stdin=True)
        self.assertEqual((code, out), (2, b""))
        self.assertIn(b"example: apr run ", seen)


if __name__ == "__main__":
    main()
