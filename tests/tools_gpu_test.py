#!/usr/bin/env python3
"""tools/gpu_check.sh and tools/bench/compare.py over stand-ins: what they count, print and answer."""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

APR = """#!/bin/sh
case "$1" in
doctor) echo '{"cuda": {"ready": %s, "reason": "no card", "remedy": "buy one", "devices": [{"name": "Card", "architecture": "sm_90a"}]}}' ;;
parity) echo "logits PASS: stand-in"; echo "$@" >> "$CALLS"; case "$*" in *bad.gguf*--exact*) echo "error: parity failed: position 3" >&2; exit 13 ;; esac ;;
esac
"""
TEST = "#!/bin/sh\n[ \"$APR_REQUIRE_GPU\" = 1 ] || exit 7\necho '[  PASSED  ] 5 tests.'\n"
FAILING = "#!/bin/sh\necho '[  FAILED  ] Some.Test'\nexit 1\n"


class Scripts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.env = dict(os.environ, APR_BUILD=self.folder.name, APR_CHECK_LOGS=self.path("logs"),
                        CALLS=self.path("calls"), COMPUTE_SANITIZER=self.path("no-sanitizer"),
                        PATH=self.path("bin") + ":/usr/bin:/bin")
        with open(os.path.join(ROOT, "tests", "cuda_tests.cmake"), encoding="utf-8") as file:
            self.gpu_tests = re.findall(r"apr_test\((gpu_\w+) .*LABEL gpu", file.read())
        self.program("apr", APR % "true")
        self.program("bin/python3", "#!/bin/sh\ncase \"$1\" in tests/cli_on_gpu_test.py) echo 'Ran 7 tests in 1s' ;; "
                     f"*) exec {sys.executable} \"$@\" ;; esac\n")
        for name in self.gpu_tests:
            self.program(f"tests/{name}_test", TEST)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def program(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), os.stat(self.path(name)).st_mode | stat.S_IXUSR)

    def check(self, code, *models, **env):
        process = subprocess.run(["bash", os.path.join(ROOT, "tools", "gpu_check.sh"), *models],
                                 env=dict(self.env, **env), capture_output=True, text=True, timeout=120)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        lines = process.stdout.splitlines()
        numbers = [re.match(r"\[(\d+)/(\d+)\] ", line) for line in lines[:-1]]
        self.assertTrue(all(numbers), process.stdout)
        self.assertEqual([int(n[1]) for n in numbers], list(range(1, len(numbers) + 1)))
        self.assertEqual(len({n[2] for n in numbers}), 1)
        return lines

    def test_everything_passes_and_a_missing_sanitizer_is_said(self):
        lines = self.check(0, "m.gguf")
        n_checks = 1 + len(self.gpu_tests) + 1 + 3 * 9 + 4
        self.assertEqual(len(lines), n_checks + 1)
        if not any(os.path.exists(f"/usr/local/cuda{v}/bin/compute-sanitizer") for v in ("", "-13.0")):
            self.assertRegex(lines[-1], rf"^{n_checks - 27} passed, 0 failed, 27 not run, of {n_checks} checks")
            self.assertIn("NOT RUN memcheck gpu_rms_norm", "\n".join(lines))
        self.assertIn("Card, sm_90a", lines[0])
        with open(self.path("calls"), encoding="utf-8") as file:
            calls = file.read().splitlines()
        self.assertEqual(calls, ["parity m.gguf --gpu --tensors",
                                 "parity m.gguf --gpu --lengths 1..64,127,255,511",
                                 "parity m.gguf --gpu --lengths 1..64,127,255,511 --exact",
                                 "parity m.gguf --gpu --per-op"])

    def test_without_a_gpu_it_stops_at_once_and_fails(self):
        self.program("apr", APR % "false")
        lines = self.check(1)
        self.assertEqual(len(lines), 2)
        self.assertIn("no card; buy one", lines[0])
        self.assertRegex(lines[-1], r"^0 passed, 1 failed")

    def test_each_failure_is_counted_and_named(self):
        self.program(f"tests/{self.gpu_tests[0]}_test", FAILING)
        os.remove(self.path(f"tests/{self.gpu_tests[1]}_test"))
        lines = self.check(1, "good.gguf", "bad.gguf", APR_CHECKS="tests parity")
        text = "\n".join(lines)
        self.assertRegex(text, rf"FAIL    test {self.gpu_tests[0]} \(\d+ s\): \[  FAILED  \] Some.Test")
        self.assertIn(f"FAIL    test {self.gpu_tests[1]}", text)
        self.assertRegex(text, r"FAIL    parity-exact bad.gguf \(\d+ s\): error: parity failed: position 3")
        self.assertRegex(lines[-1], r"3 failed, 0 not run")

    def test_what_the_sanitizer_finds_fails_and_what_it_refuses_does_not(self):
        self.program("sanitizer", "#!/bin/sh\ncase \"$2$5\" in\n"
                     "memcheck*) echo '========= ERROR SUMMARY: 2 errors'; exit 99 ;;\n"
                     "racecheck*) echo '========= RACECHECK SUMMARY: 0 hazards displayed' ;;\n"
                     "*) echo '========= Error: Device not supported'; exit 1 ;; esac\n")
        lines = self.check(1, APR_CHECKS="sanitizer", COMPUTE_SANITIZER=self.path("sanitizer"))
        self.assertRegex(lines[-1], r"^10 passed, 9 failed, 9 not run, of 28 checks")
        self.assertIn("2 errors", "\n".join(lines))

    def compare(self, status=0, **env):
        record = {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 200.0, "stddev_ts": 1.0, "model_type": "m",
                  "gb_per_s": 1.0, "tflop_per_s": 2.0, "share_of_bound": 0.5, "devices": "Card", "bound_is": "measured"}
        decode = dict(record, n_prompt=0, n_gen=8, n_depth=64, avg_ts=30.0, share_of_bound=None)
        self.program("apr", "#!/bin/sh\necho '" + json.dumps([record, decode]) + "'\n")
        self.program("llama-bench", "#!/bin/sh\ncase \"$*\" in *'-ub 512'*) ts=50 ;; *) ts=100 ;; esac\n"
                     "printf '[{\"n_prompt\":512,\"n_gen\":0,\"n_depth\":0,\"avg_ts\":%s,\"stddev_ts\":2}]' $ts\n")
        out = self.path("results.md")
        process = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "bench", "compare.py"),
                                  "--apr", self.path("apr"), "--out", out, "m.gguf"],
                                 env=dict(self.env, APR_COMMIT="abc123", **env), capture_output=True, text=True, timeout=60)
        self.assertEqual(process.returncode, status, process.stderr)
        with open(out, encoding="utf-8") as file:
            return file.read()

    def test_compare_takes_the_better_ubatch_and_writes_the_commands(self):
        text = self.compare(LLAMA_BENCH=self.path("llama-bench"))
        self.assertIn("| m | pp512 | 200.0 ± 1.0 | 100.0 ± 2.0 | 2.00 | 1 | 2.0 | 50.0 % |", text)
        self.assertIn("| m | tg8 @ d64 | 30.0 ± 1.0 | not run | - |", text)
        self.assertIn("- commit: abc123", text)
        self.assertEqual(text.count("llama-bench -m m.gguf"), 2)
        self.assertIn("apr bench m.gguf -p 512 -n 128 -d 0 -r 5 --json", text)

    # A copy of compare.py, beside which "old" is the results.md that there was.
    def compare_beside_results(self, ready, backend, *args):
        shutil.copy(os.path.join(ROOT, "tools", "bench", "compare.py"), self.path("compare.py"))
        with open(self.path("results.md"), "w", encoding="utf-8") as file:
            file.write("old")
        record = {"n_prompt": 8, "n_gen": 0, "n_depth": 0, "avg_ts": 2.0, "stddev_ts": 1.0, "model_type": "m", "gb_per_s": 1.0,
                  "tflop_per_s": 2.0, "share_of_bound": None, "devices": "Chip", "bound_is": "measured", "backends": backend,
                  "backend": {"ran": "it", "reason": "too small a card"}}
        doctor = {"cuda": {"ready": ready, "reason": "no card", "remedy": "buy one"}}
        self.program("apr", f"#!/bin/sh\ncase $1 in doctor) echo '{json.dumps(doctor)}' ;; "
                     f"*) echo bench >> $CALLS; echo '{json.dumps([record])}' ;; esac\n")
        process = subprocess.run([sys.executable, self.path("compare.py"), "--apr", self.path("apr"), *args, "m.gguf"],
                                 env=dict(self.env, APR_COMMIT="abc"), capture_output=True, text=True, timeout=60)
        with open(self.path("results.md"), encoding="utf-8") as file:
            return process, file.read()

    def test_compare_keeps_its_results_where_no_gpu_ran(self):
        for ready, why in ((False, "no GPU: no card; buy one"), (True, "m.gguf ran on the CPU (too small a card)")):
            process, results = self.compare_beside_results(ready, "CPU")
            self.assertEqual((process.returncode, results), (1, "old"))
            self.assertIn(why, process.stderr)
            self.assertIn("--out FILE", process.stderr)
            self.assertEqual(os.path.exists(self.path("calls")), ready)  # nothing is measured in vain

    def test_compare_writes_what_a_gpu_did_and_any_file_that_is_named(self):
        process, results = self.compare_beside_results(True, "CUDA")
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("| m | pp8 |", results)
        process, results = self.compare_beside_results(False, "CPU", "--out", self.path("cpu.md"))
        self.assertEqual((process.returncode, results), (0, "old"))
        with open(self.path("cpu.md"), encoding="utf-8") as file:
            self.assertIn("- device: Chip", file.read())

    def test_compare_keeps_its_own_rows_where_llama_bench_fails(self):
        self.program("broken-bench", "#!/bin/sh\nexit 3\n")
        text = self.compare(status=1, LLAMA_BENCH=self.path("broken-bench"))
        self.assertIn("| m | pp512 | 200.0 ± 1.0 | failed | - |", text)
        self.assertRegex(text, r"- failed: \S*broken-bench -m m.gguf .*: exit 3")

    def test_compare_without_llama_bench_says_so(self):
        text = self.compare()
        self.assertIn("not run (LLAMA_BENCH is not set)", text)
        self.assertIn("| 200.0 ± 1.0 | not run | - |", text)


if __name__ == "__main__":
    os.environ.pop("LLAMA_BENCH", None)
    unittest.main(verbosity=2)
