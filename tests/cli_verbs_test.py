#!/usr/bin/env python3
"""The other verbs, the model inside the program, help."""
import os

from support.cli import ANSWER, Base, EXAMPLE, main, MODEL


class Verbs(Base):
    def test_help_and_version(self):
        help_text = self.answered("--help").decode()
        for verb in ("run", "inspect", "tensors", "tokenize", "logits", "plan", "fit", "parity", "bench", "doctor"):
            self.assertIn(f"  {verb} ", help_text)
            text = self.answered(verb, "--help").decode()
            self.assertIn("Examples:", text)
            self.assertIn(f"apr {verb}", text)
            self.assertIn("--json", text)
        self.assertRegex(self.answered("--version").decode(), r"^apr \d+\.\d+\.\d+\n$")
        self.assertEqual(self.answered("--version"), self.answered("run", "--version"))

    def test_tokenize(self):
        self.assertEqual(self.answered("tokenize", MODEL, "<|im_end|>", "--json"),
                         b'{"ids":[2]}\n')
        self.assertNotIn(2, self.answered_json("tokenize", MODEL, "<|im_end|>",
                                               "--no-special")["ids"])
        self.assertEqual(self.answered_json("tokenize", MODEL, "")["ids"], [])
        self.assertEqual(self.answered_json("tokenize", MODEL, "-", stdin=b"\n")["ids"], [207])
        self.assertEqual(self.answered("tokenize", MODEL, "\n"), b'    207  "\\n"\n')

    def test_inspect_and_tensors(self):
        report = self.answered_json("inspect", MODEL)
        self.assertEqual(report["architecture"], "qwen3")
        self.assertEqual(report["dimensions"]["layers"], 6)
        self.assertTrue(report["runs"])
        tensors = self.answered_json("tensors", MODEL)
        self.assertEqual(report["tensors"], len(tensors["tensors"]))
        self.assertEqual(sum(row["bytes"] for row in report["quantisation"].values()),
                         tensors["total_bytes"])
        self.assertIn("Q4_K", report["quantisation"])
        for verb in ("inspect", "tensors"):
            self.assertIn(b"token_embd.weight" if verb == "tensors" else b"qwen3",
                          self.answered(verb, MODEL))

    def test_demo_is_the_model_inside(self):
        folder = os.path.dirname(self.temporary(b"not a model", "demo"))
        self.assertEqual(self.answered("run", "demo", "--chat", "What is 12 + 13?", cwd=folder),
                         b"12 + 13 = 25.")
        self.assertTrue(self.answered_json("inspect", "demo", cwd=folder)["runs"])
        self.refused(4, "run", "./demo", "hi", cwd=folder)

    def test_plan(self):
        report = self.answered_json("plan", MODEL, "--lowered")
        self.assertEqual(report["ops"][0]["kind"], "embed")
        for phase in ("prefill", "decode"):
            covered = sum(stage["n_ops"] for stage in report[phase]["stages"])
            self.assertEqual(covered, len(report["ops"]))
        gpu = self.answered_json("plan", MODEL, "--lowered", "--backend", "cuda")  # on any machine
        self.assertLess(len(gpu["decode"]["stages"]), len(report["decode"]["stages"]))
        self.refused(2, "plan", MODEL, "--gpu", "--no-gpu")
        self.refused(2, "plan", MODEL, "--context", "99")  # a plan has no context
        self.assertIn(b"embed", self.answered("plan", MODEL))
        self.assertIn(b"decode", self.answered("plan", MODEL, "--lowered"))

    def test_doctor(self):
        report = self.answered_json("doctor")
        self.assertGreater(report["memory"]["total_bytes"], 1 << 20)
        self.assertGreaterEqual(report["cpu"]["cores_usable"], 1)
        self.assertIn("CPU", report["cpu"]["backend"])
        if not report["cuda"]["ready"]:
            self.assertTrue(report["cuda"]["reason"])
            self.assertTrue(report["cuda"]["remedy"])
        if not report["cuda"]["compiled"]:
            self.assertIn("quickstart.sh", report["cuda"]["remedy"])
        self.assertIn(b"cpu.model", self.answered("doctor"))

    def test_logits_rows_come_in_the_order_asked_for(self):
        ids = self.temporary(b"[1, 298, 207, 326, 278]")
        def rows(positions, *flags):
            out = self.temporary(None, "rows.f32")
            self.answered("logits", MODEL, "--ids", ids, "--positions", positions, "--out", out,
                          "--exact", *flags)
            with open(out, "rb") as file:
                data = file.read()
            n = len(data) // len(positions.split(","))
            return [data[first:first + n] for first in range(0, len(data), n)]
        one, three, zero = rows("1,3,0")
        self.assertEqual(len(one), 4096 * 4)
        self.assertEqual(rows("0,3,3,1,0"), [zero, three, three, one, zero])
        self.assertEqual(rows("3", "--prefill-chunk", "1"), [three])
        self.assertEqual(rows("0,1,3", "--prefill-chunk", "2", "--threads", "1"),
                         [zero, one, three])

    def test_logits_refuses_bad_input(self):
        out = self.temporary(None, "rows.f32")
        ids = self.temporary(b"[1, 298, 207]")
        def logits(code, ids_text, positions):
            path = ids if ids_text is None else self.temporary(ids_text)
            error = self.refused(code, "logits", MODEL, "--ids", path, "--positions", positions,
                                 "--out", out)
            self.assertFalse(os.path.exists(out))
            return error
        for bad in (b"", b"{}", b"[]", b"1", b'["a"]', b"[1.5]", b"[-1]", b"[4096]", b"[1",
                    b"[18446744073709551615]", b"[1e3]", b"[[1]]", b"[null]"):
            logits(4, bad, "0")
        for bad in ("", "3", "-1", "a", "0,", ",0", "0,,1", "1.0", "0 1"):
            self.assertIn("--positions", logits(2, None, bad))
        logits(4, b"[" + b"1," * 100000 + b"1]", "0")
        self.refused(2, "logits", MODEL, "--ids", ids, "--positions", "0")
        self.refused(3, "logits", MODEL, "--ids", "/no/ids", "--positions", "0", "--out", out)


if __name__ == "__main__":
    main()
