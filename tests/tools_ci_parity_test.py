#!/usr/bin/env python3
"""tools/ci_parity.sh over a stand-in for apr: its cells, what fails one, its receipts and its exit code."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Answers as apr does. FAULTS: {"verb backend mode": what is wrong with it}.
APR = r'''#!%s -SE
import json, os, sys, time
args = sys.argv[1:]
faults = json.loads(os.environ.get("FAULTS", "{}"))
gemm = os.environ.get("APR_QWEN35_PREFILL_GEMM", "")
assert args[0] in ("doctor", "--help") or not {"SKIP_PARITY_GATE", "FP8_PREFILL"} & set(os.environ)
gpu = "--gpu" in args
mode = "exact" if "--exact" in args else gemm if gemm in ("f32", "dp4a") else "default"
verb = "dequant" if "--tensors" in args else "judge" if "--ids" in args else args[0]
fault = faults.get(f"{verb} {'gpu' if gpu else 'cpu'} {mode}")
with open(os.environ["CALLS"], "a") as file:
    print(json.dumps([gemm, *args]), file=file)
if args == ["--help"]:
    print("VERBS\n  run   answer\n" + ("  chat   talk\n" if os.environ.get("HAS_CHAT") else ""))
    sys.exit()
if args[0] == "doctor":
    print(json.dumps({"cpu": {"backend": "CPU, 2 threads"}, "build": {"version": "9.9", "type": "Release"},
                      "cuda": {"ready": not os.environ.get("NO_GPU"), "reason": "no card", "remedy": "buy one",
                               "devices": [{"name": "Card", "architecture": "sm_90a"}]}}))
    sys.exit()
if fault == "slow":
    time.sleep(60)
if fault == "garbage":
    print("{")
    sys.exit()
if isinstance(fault, int):
    print(json.dumps({"passed": False, "reason": "parity failed: position 3", "backend": {"ran": "gpu" if gpu else "cpu"}}))
    print("error: parity failed: position 3", file=sys.stderr)
    sys.exit(fault)
backend = {"requested": "gpu", "ran": "cpu" if fault == "fell back" or not gpu else "gpu", "reason": "why"}
tokens = list(range(32))
if fault == "other token":
    tokens[5] = 900
if fault == "short":
    tokens = tokens[:7]
report = {"backend": backend, "passed": fault != "not passed", "prefill_gemm": {"ran": "f32" if gemm == "dp4a" else gemm, "reason": "not Q4_K"},
          "judged": 0 if fault == "nothing" else 12, "min_cosine": 0.99999, "routes": {"rerouted_positions": 3}}
if verb == "run":
    report |= {"tokens": tokens, "finish_reason": "cancelled" if fault == "cancelled" else "length"}
elif verb == "dequant":
    report |= {"tensors": 4 if fault == "one missing" else 5, "values": 100, "types": [{"type": "Q4_K"}, {"type": "F32"}]}
elif verb == "judge":
    ids = json.load(open(args[args.index("--ids") + 1]))
    assert ids == [7, 8, 9, 0, 1, 2, 3, 4] and args[args.index("--lengths") + 1] == "3" and args[args.index("-n") + 1] == "5", args
    report["positions"] = [{}, {"id": 5 if fault == "same" else 900, "oracle_id": 5, "margin": 0.01}]
elif verb == "tensors":
    report = {"tensors": [{}] * 5}
elif verb == "tokenize":
    report = {"ids": [7, 8, 9]}
elif verb == "chat":
    print("" if fault == "silent" else "42." + sys.stdin.read())
    sys.exit()
print(json.dumps(report))
'''


class CiParity(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.env = {"PATH": os.path.dirname(sys.executable) + ":/usr/bin:/bin", "APR_BUILD": self.folder,
                    "APR_PARITY_RESULTS": self.path("results"), "CALLS": self.path("calls"), "APR_COMMIT": "abc",
                    # Of the caller: no cell has these unasked.
                    "APR_QWEN35_PREFILL_GEMM": "dp4a", "SKIP_PARITY_GATE": "1", "FP8_PREFILL": "1"}
        self.file("apr", APR % sys.executable)
        os.chmod(self.path("apr"), 0o755)
        self.model = self.file("m.gguf", "weights")

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, text=""):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def check(self, code, *arguments, faults=None, **env):
        """Runs the script; its lines by cell name, the last one under None."""
        for old in glob.glob(self.path("results/*")) + glob.glob(self.path("calls")):
            os.remove(old)
        process = subprocess.run(["bash", os.path.join(ROOT, "tools", "ci_parity.sh"), *arguments],
                                 env=dict(self.env, FAULTS=json.dumps(faults or {}), **env), capture_output=True,
                                 text=True, timeout=120)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        cells = {}
        for line in process.stdout.splitlines():
            if match := re.match(r"\[\d+/\d+\] (\w+) (\w+ \w+ \w+) \S+ \(\d+ s\): (.*)", line):
                cells[match[2]] = (match[1], match[3])
            else:
                cells[None] = line
        self.assertEqual(len(glob.glob(self.path("results/*.json"))), cells[None] and sum(
            int(n) for n in re.findall(r"(\d+) (?:passed|failed|skipped)", cells[None])))
        return cells

    def receipt(self, cell):
        (path,) = glob.glob(self.path(f"results/*-m-{cell.replace(' ', '-')}.json"))
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def calls(self):
        with open(self.path("calls"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_all_cells_pass(self):
        cells = self.check(0, self.model)
        names = ["run cpu default", "parity cpu default", "dequant cpu default"]
        names += [f"{verb} gpu {mode}" for verb in ("run", "parity") for mode in ("default", "exact", "f32", "dp4a")]
        self.assertEqual([name for name in cells if name], names + ["dequant gpu default"])
        self.assertEqual({status for status, _ in (cells[name] for name in names)}, {"PASS"})
        self.assertRegex(cells[None], "^12 passed, 0 failed, 0 skipped, of 12 cells")
        self.assertIn("the CPU's", cells["run gpu exact"][1])
        self.assertIn("dp4a products asked for, f32 ran: not Q4_K", cells["run gpu dp4a"][1])
        self.assertIn("3 positions re-routed", cells["parity gpu default"][1])
        self.assertIn("5 tensors (F32, Q4_K)", cells["dequant gpu default"][1])
        asked = {(call[0], "--exact" in call) for call in self.calls() if "--gpu" in call and "--tensors" not in call}
        self.assertEqual(asked, {("f16", False), ("", True), ("f32", False), ("dp4a", False)})
        self.assertEqual({call[0] for call in self.calls() if "--no-gpu" in call}, {""})

    def test_a_receipt_says_what_ran_on_what(self):
        self.check(0, self.model)
        receipt = self.receipt("parity gpu f32")
        self.assertEqual(receipt["device"], "Card (sm_90a)")
        self.assertEqual(receipt["files"][0]["bytes"], 7)
        self.assertEqual(len(receipt["files"][0]["sha256"]), 64)
        self.assertEqual((receipt["apr"]["version"], receipt["apr"]["commit"]), ("9.9", "abc"))
        self.assertEqual((receipt["status"], receipt["verb"], receipt["mode"]), ("PASS", "parity", "f32"))
        self.assertEqual(receipt["environment"], {"APR_QWEN35_PREFILL_GEMM": "f32"})
        self.assertEqual(receipt["answers"][0]["judged"], 12)
        self.assertIn("1..64,127,255,511", receipt["commands"][0])
        self.assertEqual(self.receipt("run cpu default")["device"], "CPU, 2 threads")

    def test_without_a_gpu_a_skip_is_no_pass(self):
        cells = self.check(1, self.model, NO_GPU="1")
        self.assertRegex(cells[None], "^3 passed, 0 failed, 9 skipped, of 12 cells")
        self.assertEqual(cells["run gpu default"][0], "SKIP")
        self.assertIn("no card", cells["run gpu default"][1])
        self.assertEqual(self.receipt("dequant gpu default")["status"], "SKIP")
        cells = self.check(0, "--cpu-only", self.model, NO_GPU="1")
        self.assertRegex(cells[None], "^3 passed, 0 failed, 0 skipped, of 3 cells")

    def test_each_fault_fails_its_cell_alone(self):
        for faults in ({"run gpu exact": ("fell back", "the gpu was asked for, cpu ran: why"),
                        "run gpu f32": (13, "exit 13: parity failed: position 3"),
                        "run gpu default": ("short", "7 tokens where"),
                        "run gpu dp4a": ("garbage", "no JSON object"),
                        "parity gpu dp4a": ("not passed", "passed is False"),
                        "parity cpu default": ("nothing", "judged 0"),
                        "dequant gpu default": (13, "exit 13"),
                        "dequant cpu default": ("one missing", "4 of 5 tensors")},
                       {"run cpu default": ("cancelled", "finish_reason cancelled"),
                        "parity gpu default": (13, "position 3")}):
            cells = self.check(1, self.model, faults={cell: fault for cell, (fault, _) in faults.items()})
            for cell, (_, words) in faults.items():
                self.assertEqual(cells[cell][0], "FAIL")
                self.assertIn(words, cells[cell][1])
                self.assertIn(words, self.receipt(cell)["reason"])
            # Without the CPU's answer the GPU's four have nothing to be compared with.
            n_failed = len(faults) + (4 if "run cpu default" in faults else 0)
            self.assertRegex(cells[None], f"^{12 - n_failed} passed, {n_failed} failed, 0 skipped")

    def test_where_tokens_part_parity_decides(self):
        cells = self.check(0, self.model, faults={"run gpu default": "other token"})
        self.assertIn("the CPU's up to token 5, a near tie (margin 0.01)", cells["run gpu default"][1])
        self.assertEqual(len(self.receipt("run gpu default")["answers"]), 2)
        cells = self.check(1, self.model, faults={"run gpu default": "other token", "judge gpu default": 13})
        self.assertIn("exit 13: parity failed", cells["run gpu default"][1])
        cells = self.check(1, self.model, faults={"run gpu exact": "other token", "judge gpu exact": "same"})
        self.assertIn("both choose 5", cells["run gpu exact"][1])

    def test_a_cell_that_takes_too_long_is_ended(self):
        cells = self.check(1, "--cpu-only", self.model, faults={"parity cpu default": "slow"}, APR_CELL_SECONDS="5")
        self.assertIn("not done after 5 s", cells["parity cpu default"][1])
        self.assertEqual(cells["dequant cpu default"][0], "PASS")

    def test_names_of_every_kind_are_lines_and_receipts(self):
        for name in ("sp ace", "new\nline", "q'uo\"te", "\u00fc\uff12", "-dash", "x" * 245):
            self.file(f"odd/{name}.gguf")
        with open(os.fsencode(self.path("odd")) + b"/bad\xff.gguf", "wb"):
            pass
        os.mkfifo(self.path("odd/pipe.gguf"))  # nobody writes to it
        for locale in ("C", "C.UTF-8"):
            cells = self.check(0, "--cpu-only", self.path("odd"), LC_ALL=locale, PYTHONIOENCODING="ascii:strict")
            self.assertRegex(cells[None], "^24 passed, 0 failed, 0 skipped, of 24 cells")

    def test_what_makes_no_sense_is_said_in_a_line(self):
        for variables, said in (({"APR_CELL_SECONDS": "nan"}, "APR_CELL_SECONDS"),
                                ({"APR_PARITY_RESULTS": "/dev/null/x"}, "APR_PARITY_RESULTS"),
                                ({"APR_PARITY_RESULTS": "/proc"}, "APR_PARITY_RESULTS")):
            process = subprocess.run(["bash", os.path.join(ROOT, "tools", "ci_parity.sh"), "--cpu-only", self.model],
                                     env={**self.env, **variables}, capture_output=True, text=True, timeout=60)
            self.assertEqual(process.returncode, 1)
            self.assertRegex(process.stderr, r"\Aerror: .*" + said + r".*\n\Z")

    def test_chat_where_there_is_one(self):
        cells = self.check(0, self.model, HAS_CHAT="1")
        self.assertEqual([name for name in cells if name and name.startswith("chat")],
                         ["chat cpu default", "chat gpu default", "chat gpu exact"])
        cells = self.check(1, self.model, HAS_CHAT="1", faults={"chat gpu exact": "silent"})
        self.assertEqual(cells["chat gpu exact"][0], "FAIL")

    def test_folders_and_split_files(self):
        for name in ("more/b-00001-of-00002.gguf", "more/b-00002-of-00002.gguf", "more/a.gguf", "more/notes.txt"):
            self.file(name, name)
        self.check(0, "--cpu-only", self.path("more"))
        files = sorted(os.listdir(self.path("results")))
        self.assertEqual(len(files), 6)
        self.assertTrue(files[0].startswith("001-a-run-cpu") and files[3].startswith("004-b-00001-of-00002-run"), files)
        with open(self.path("results/" + files[3]), encoding="utf-8") as file:
            parts = json.load(file)["files"]
        self.assertEqual([part["bytes"] for part in parts], [26, 26])
        process = subprocess.run(["bash", os.path.join(ROOT, "tools", "ci_parity.sh"), self.path("results")],
                                 env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("no .gguf file there", process.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
