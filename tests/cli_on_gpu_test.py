#!/usr/bin/env python3
"""The verbs on a GPU. A loud skip without one, a failure with APR_REQUIRE_GPU=1."""
import json
import os
import signal
import subprocess
import unittest

from support.cli import ANSWER, APR, Base, DATA, EXAMPLE, LIMIT_S, main, MODEL, run

REQUIRED = os.environ.get("APR_REQUIRE_GPU", "0") not in ("", "0")


class OnGpu(Base):
    def setUp(self):
        self.cuda = self.answered_json("doctor")["cuda"]
        if not self.cuda["ready"]:
            message = f"no GPU: {self.cuda['reason']}"
            if REQUIRED:
                self.fail("APR_REQUIRE_GPU is set, but " + message)
            raise unittest.SkipTest("SKIPPED: " + message)

    def test_run_gives_the_answer_of_the_cpu(self):
        for flags in ([], ["--gpu"], ["--backend", "cuda"], ["--gpu", "--exact"], ["--device", "0"]):
            process = run("run", MODEL, "--chat", EXAMPLE, "--json", *flags)
            self.check(process, 0)
            report = json.loads(process.stdout)
            self.assertEqual(report["text"], ANSWER, flags)
            self.assertTrue(report["used_gpu"])
            forced = "--gpu" in flags or "--backend" in flags
            self.assertEqual(report["backend"]["requested"], "gpu" if forced else "default")
            self.assertEqual((report["backend"]["ran"], report["backend"]["fell_back"]), ("gpu", False))
            self.assertEqual(report["prefill_gemm"]["ran"], "f32" if "--exact" in flags else "f16")
            self.assertEqual(report["prefill_gemm"]["tier"] == "", "--exact" in flags)
            self.assertEqual(process.stderr.decode().count("selected: gpu"), 1)

    def test_gates_run_once_and_leave_a_receipt(self):
        folder = os.path.dirname(self.temporary())
        def parity(*flags, **variables):
            process = run("run", MODEL, "--chat", EXAMPLE, "--gpu", "--json", *flags,
                          env={**os.environ, "APR_F2_RECEIPT_DIR": folder, **variables})
            self.check(process, 0)
            found = json.loads(process.stdout)["parity"]
            return found["status"], found["source"], process.stderr.decode()
        status, source, lines = parity()
        self.assertEqual((status, source), ("PASS", "fresh"))
        self.assertIn("validating once", lines)
        self.assertIn("parity: PASS cosine=", lines)
        status, source, lines = parity()
        self.assertEqual((status, source), ("PASS", "receipt"))
        self.assertIn("parity: receipt", lines)
        self.assertEqual(parity("--revalidate")[:2], ("PASS", "fresh"))
        self.assertEqual(parity("--exact")[:2], ("PASS", "fresh"))  # other kernels
        self.assertEqual(parity("--exact")[:2], ("PASS", "receipt"))
        self.assertEqual(parity(SKIP_PARITY_GATE="1")[:2], ("skipped", "not-judged"))
        receipt = next(name for name in os.listdir(folder) if name.endswith(".json"))
        with open(os.path.join(folder, receipt)) as file:
            self.assertEqual(json.load(file)["model_sha256"] + ".json", receipt)

    def test_no_gpu_runs_on_the_cpu(self):
        report = self.answered_json("run", MODEL, "--chat", EXAMPLE, "--no-gpu")
        self.assertEqual((report["text"], report["used_gpu"]), (ANSWER, False))

    def test_what_has_no_kernel_falls_back_or_fails(self):
        error = self.refused(14, "run", "demo", "hi", "--gpu")  # a hybrid
        self.assertIn("no GPU kernel yet", error)
        self.assertIn("--no-gpu", error)
        process = run("run", "demo", "hi", "-n", "2", "--json")
        self.check(process, 0)
        self.assertIn(b"runs on the CPU: ", process.stderr)
        backend = json.loads(process.stdout)["backend"]
        self.assertEqual((backend["requested"], backend["ran"], backend["fell_back"]),
                         ("default", "cpu", False))
        self.assertIn("no GPU kernel yet", backend["reason"])

    def test_devices(self):
        devices = json.loads(self.answered("run", "--list-devices", "--json"))["devices"]
        self.assertEqual(devices, self.cuda["devices"])
        self.assertIn(devices[0]["name"].encode(), self.answered("doctor", "--list-devices"))
        self.assertIn("--list-devices", self.refused(14, "run", MODEL, "hi", "--gpu", "--device", "900"))

    def test_ctrl_c(self):
        process = subprocess.Popen([APR, "run", MODEL, "hi", "--gpu", "--temperature", "9",
                                    "--top-k", "0", "--stream"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(json.loads(out.splitlines()[-1])["finish_reason"], "cancelled")

    def test_logits_and_parity(self):
        ids = self.temporary(b"[1, 298, 207, 326, 278]")
        report = self.answered_json("logits", MODEL, "--ids", ids, "--positions", "0,4", "--out",
                                    self.temporary(None), "--gpu")
        self.assertTrue(report["used_gpu"])
        for flags in ([], ["--exact"], ["--lengths", "1..9,63..65"], ["--exact", "--lengths", "1,64"],
                      ["--per-op"], ["--per-op", "--exact"]):
            report = self.answered_json("parity", MODEL, *flags)
            self.assertTrue(report["passed"], report["reason"])
            self.assertEqual(report["backend"]["ran"], "gpu")

    def test_parity_of_experts(self):
        model = os.path.join(DATA, "models", "tiny-qwen3moe-mix.gguf")
        for flags in ([], ["--exact"], ["--lengths", "1..9,63..65,200"], ["--exact", "--lengths", "1..9,64,200"],
                      ["--per-op"], ["--per-op", "--exact"]):
            report = self.answered_json("parity", model, "--gpu", *flags)
            self.assertTrue(report["passed"], report["reason"])
            self.assertEqual((report["routes"]["failure"], report["routes"]["unsteady_positions"]), ("", 0))
            print(f"  {flags}: {report['routes']['rerouted_positions']} of {report['routes']['positions']} positions re-routed")

    def test_every_tensor_bit_for_bit_in_both_layouts(self):
        report = self.answered_json("parity", MODEL, "--tensors")
        self.assertTrue(report["passed"], report["reason"])
        self.assertEqual(report["backend"]["ran"], "gpu")
        layouts = {(row["type"], row["layout"]) for row in report["types"]}
        self.assertTrue({("Q4_K", "planes"), ("Q4_K", "raw"), ("F32", "raw")} <= layouts, layouts)

    def test_bench(self):
        prompt, decode = self.answered_json("bench", MODEL, "--gpu", "-p", "128", "-n", "16", "-r", "2")
        for record in (prompt, decode):
            self.assertEqual(record["backends"], "CUDA")
            self.assertGreater(record["share_of_bound"], 0)
            self.assertLess(record["share_of_bound"], 1)
            self.assertGreater(record["bound_gb_per_s"], 50)


if __name__ == "__main__":
    main()
