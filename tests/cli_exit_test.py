#!/usr/bin/env python3
"""Every exit code that can be reached, and the errors behind it."""
import json
import os
import signal
import struct
import subprocess
import time

from support.cli import APR, Base, LIMIT_S, main, MODEL, run


class ExitCodes(Base):
    def test_code_1_out_of_memory(self):
        with open(APR, "rb") as file:
            is_sanitized = b"__asan_init" in file.read()
        if is_sanitized:
            self.skipTest("SKIPPED: AddressSanitizer does not run under a memory limit")
        def limit():
            import resource
            resource.setrlimit(resource.RLIMIT_DATA, (24 << 20, 24 << 20))
        self.assertIn("out of memory",
                      self.refused(1, "tokenize", MODEL, "-", stdin=b"a" * (8 << 20), preexec_fn=limit))

    def test_code_2_usage(self):
        self.assertIn("no verb", self.check(run(), 2))
        error = self.refused(2, "frobnicate", "x")
        for verb in ("run", "inspect", "tensors", "tokenize", "logits", "plan", "fit", "parity", "bench", "doctor"):
            self.assertIn(verb, error)
        self.assertIn("--frob", self.refused(2, "run", MODEL, "hi", "--frob"))
        self.assertIn("MODEL", self.refused(2, "run"))
        self.refused(2, "run", MODEL, "one", "two")
        self.refused(2, "run", MODEL, "one", "-p", "two")
        self.refused(2, "run", MODEL, "hi", "-n")
        self.refused(2, "run", MODEL, "hi", "--quiet", "--verbose")
        self.refused(2, "run", MODEL, "hi", "--system", "s")
        self.refused(2, "run", MODEL, "hi", "--thinking", "on")
        self.refused(2, "run", MODEL, "hi", "--gpu", "--no-gpu")
        self.refused(2, "run", MODEL, "hi", "--no-gpu", "--backend", "cuda")
        self.assertIn("download", self.refused(2, "run", "hf://org/repo", "hi"))
        for flag, name in (("-m", "apr VERB MODEL"), ("--temp", "--temperature"), ("-c", "--context"),
                           ("-ngl", "--no-gpu"), ("-t", "--threads")):
            self.assertIn(name, self.refused(2, "run", MODEL, "hi", flag, "1"))
        self.assertNotIn("--threads", self.refused(2, "run", MODEL, "--frob", "--", "-t"))
        self.assertIn("different formats",
                      self.check(run("run", MODEL, "hi", "--format", "text", "--json"), 2))

    def test_code_2_without_a_prompt(self):
        for more in ({"stdin": b""}, {"stdin": None}):
            error = self.refused(2, "run", MODEL, **more) if more["stdin"] is not None else \
                self.check(subprocess.run([APR, "run", MODEL], stdin=subprocess.DEVNULL,
                                          capture_output=True), 2)
            self.assertIn("example: apr run " + MODEL, error)
        self.refused(2, "run", MODEL, "-p", "")

    def test_code_2_for_bad_values(self):
        table = {
            "--temperature": ["nan", "-1", "1e999", "abc", "", "inf", "1001"],
            "--top-k": ["-1", "1.5", "abc", "nan", "99999999999999999999"],
            "--top-p": ["1.5", "-0.1", "nan", "x"],
            "--min-p": ["1.5", "-1", "nan"],
            "--repeat-penalty": ["0", "-1", "nan", "1e999"],
            "--presence-penalty": ["nan", "1e3", "x"],
            "--frequency-penalty": ["nan", "-1e3", "x"],
            "--repeat-last-n": ["-2", "0.5", "x"],
            "--seed": ["-1", "1.5", "x", "18446744073709551616"],
            "--max-tokens": ["-1", "1.5", "x", "nan", "1e3"],
            "--threads": ["0", "-1", "x", "5000"],
            "--context": ["0", "-1", "x"],
            "--prefill-chunk": ["0", "-1", "x"],
            "--device": ["-1", "x", "1024", ""],
        }
        for flag in ("--vram", "--free"):
            for value in ("", "24", "0G", "1.5G", "x"):
                error = self.refused(2, "fit", MODEL, flag, value)
                self.assertIn(f'{flag} is "{value}"; it must be 1 MiB or more', error)
        self.assertIn("auto, batched, streamed or serial",
                      self.refused(2, "run", MODEL, "hi", "--prefill", "fast"))
        for flag, values in table.items():
            for value in values:
                error = self.refused(2, "run", MODEL, "hi", flag, value)
                self.assertIn(f'{flag} is "{value}"', error)
                self.assertRegex(error, r"from -?[0-9.]+ to [0-9]+$")
        self.assertIn("cuda or cpu", self.refused(2, "run", MODEL, "hi", "--backend", "wgpu"))
        self.assertIn("text, ndjson or json", self.refused(2, "run", MODEL, "hi", "-f", "srt"))
        self.assertIn("text or json", self.check(run("tensors", MODEL, "-f", "ndjson"), 2))
        self.assertIn("on or off",
                      self.refused(2, "run", MODEL, "hi", "--chat", "--thinking", "maybe"))
        self.assertIn("stop string", self.refused(2, "run", MODEL, "hi", "--stop", ""))
        self.assertIn("allowed: 1 to", self.refused(2, "run", MODEL, "hi", "--context", "99999999"))

    def test_code_3_file_not_found(self):
        for verb in (["run", "/no/such.gguf", "hi"], ["inspect", "/no/such.gguf"],
                     ["tensors", "/no/such.gguf"], ["tokenize", "/no/such.gguf", "hi"],
                     ["plan", "/no/such.gguf"], ["inspect", "/tmp"]):
            self.refused(3, *verb)
        self.assertIn("/no/prompt", self.refused(3, "run", MODEL, "-i", "/no/prompt"))

    def test_what_a_terminal_would_obey_is_spelled_out(self):
        self.assertIn(r"cannot open no\x1b[31m\x07such: ", self.refused(3, "run", "no\x1b[31m\x07such", "hi"))
        env = dict(os.environ, FP8_PREFILL="\x1b[2J\x7f")
        process = run("fit", MODEL, "--vram", "24G", env=env)
        self.check(process, 0)
        self.assertIn(rb"FP8_PREFILL=\x1b[2J\x7f is not", process.stderr)

    def test_code_4_invalid_format(self):
        self.refused(4, "inspect", self.temporary(b"not a model at all, surely not"))
        self.refused(4, "run", self.temporary(b""), "hi")
        self.refused(4, "tensors", self.patched(lambda data: data[:5000]))
        error = self.refused(4, "run", MODEL, "hi there, " * 50, "--context", "16")
        self.assertRegex(error, r"has \d\d+ tokens and the context holds 16")
        error = self.refused(4, "run", MODEL, "-", stdin=b"word " * 20000)
        self.assertRegex(error, r"has \d{5,} tokens and the context holds \d+")

    def test_code_4_chat_without_a_template(self):
        model = self.patched(
            lambda data: data.replace(b"tokenizer.chat_template", b"tokenizer.chat_tempIate"))
        self.assertIn("no chat template", self.refused(4, "run", model, "--chat", "hi"))
        self.answered("run", model, "hi", "-n", "1")

    def test_code_6_model_load(self):
        model = self.patched(lambda data: data.replace(b"\x05\0\0\0\0\0\0\0qwen3",
                                                       b"\x05\0\0\0\0\0\0\0qwen9"))
        error = self.refused(6, "run", model, "hi")
        self.assertIn("qwen9", error)
        self.assertIn("qwen3", error)
        report = self.answered_json("inspect", model)  # still worth looking at
        self.assertFalse(report["runs"])
        self.assertIn("qwen9", report["reason"])

    def test_code_7_full_disk(self):
        for args in (["run", MODEL, "--chat", "hi"], ["run", MODEL, "hi", "--json", "-n", "1"],
                     ["run", MODEL, "hi", "--stream", "-n", "1"], ["--help"], ["run", "--help"],
                     ["--version"], ["inspect", MODEL], ["tensors", MODEL], ["plan", MODEL],
                     ["tokenize", MODEL, "hi"], ["doctor", "--json"]):
            with open("/dev/full", "wb") as full:
                process = subprocess.run([APR, *args], stdin=subprocess.DEVNULL, stdout=full,
                                         stderr=subprocess.PIPE, timeout=LIMIT_S)
            self.assertEqual(process.returncode, 7, args)
            self.assertIn(b"No space left", process.stderr)
        ids = self.temporary(b"[1, 2, 3]")
        self.refused(7, "logits", MODEL, "--ids", ids, "--positions", "0", "--out", "/dev/full")
        self.assertTrue(os.path.exists("/dev/full"))
        self.refused(7, "logits", MODEL, "--ids", ids, "--positions", "0", "--out", "/no/such/dir")
        self.refused(7, "run", MODEL, "-i", "/tmp")

    def test_code_7_closed_stdout(self):
        process = subprocess.run(["/bin/sh", "-c", 'exec "$0" run demo hi -n 1 >&-', APR],
                                 stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=LIMIT_S)
        self.assertEqual(process.returncode, 7, process.stderr)

    def test_code_7_a_model_that_is_cut_while_it_runs(self):
        path = self.patched(lambda data: data)
        process = self.endless(model=path)
        process.stdout.read(1)
        os.truncate(path, 4096)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 7, err)
        self.assertIn(b"error: a model file was cut", err)

    def test_code_8_inference(self):
        tensors = self.answered_json("tensors", MODEL)["tensors"]
        norm = next(t for t in tensors if t["name"] == "output_norm.weight")
        self.assertEqual(norm["type"], "F32")
        def poison(data):
            data[norm["file_offset"]:norm["file_offset"] + 4] = struct.pack("<f", float("nan"))
            return data
        self.assertIn("non-finite", self.refused(8, "run", self.patched(poison), "hi"))

    def test_code_9_or_14_for_a_gpu_that_is_not_there(self):
        cuda = self.answered_json("doctor")["cuda"]
        if cuda["ready"]:
            self.skipTest("SKIPPED: this machine has a GPU that apr can use")
        code = 14 if cuda["compiled"] else 9
        for flags in (["--gpu"], ["--backend", "cuda"], ["--gpu", "--backend", "cpu"]):
            error = self.refused(code, "run", MODEL, "hi", *flags)
            self.assertIn(cuda["reason"], error)
            self.assertIn(cuda["remedy"], error)
            self.assertIn("--no-gpu", error)
        self.refused(code, "run", "/no/such.gguf", "hi", "--gpu")  # before any file is touched
        for verb in ("run", "doctor", "logits"):  # --list-devices needs no model
            self.assertIn(cuda["reason"], self.refused(code, verb, "--list-devices"))
        start = time.monotonic()
        self.refused(code, "run", MODEL, "hi", "--gpu")
        self.assertLess(time.monotonic() - start, 1.0)
        ids = self.temporary(b"[1]")
        self.refused(code, "logits", MODEL, "--ids", ids, "--positions", "0", "--out",
                     "/dev/null", "--gpu")
        report = json.loads(run("run", MODEL, "hi", "--gpu", "--json").stdout)
        self.assertEqual(report["error"]["code"], code)
        self.assertEqual(report["backend"], {"requested": "gpu", "ran": "none", "fell_back": True,
                                             "reason": report["error"]["message"]})

    def test_code_130_while_answering(self):
        process = self.endless("--stream")
        first = json.loads(process.stdout.readline())
        self.assertEqual((first["event"], first["index"]), ("token", 0))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, err)
        final = json.loads(out.splitlines()[-1])
        self.assertEqual((final["event"], final["finish_reason"]), ("final", "cancelled"))
        self.assertGreater(final["tokens_generated"], 0)
        self.assertIn(b"interrupted after", err)

    def test_code_130_keeps_the_text(self):
        process = self.endless()
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, err)
        (first + out).decode()  # whole characters

    def test_code_130_while_a_pipe_has_no_writer(self):
        path = self.temporary(None)
        os.mkfifo(path)
        for verb in (["run", MODEL, "-i"], ["parity", MODEL, "--no-gpu", "--ids"]):
            process = subprocess.Popen([APR, *verb, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=LIMIT_S)
            self.assertEqual(process.returncode, 130, err)

    def test_code_130_while_reading_the_prompt(self):
        process = subprocess.Popen([APR, "run", MODEL], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130)
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


if __name__ == "__main__":
    main()
