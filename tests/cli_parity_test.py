#!/usr/bin/env python3
"""`apr parity` without a GPU: the CPU's fast kernels against its plain loops."""
import os

from support.cli import Base, DATA, main, MODEL


class Parity(Base):
    def parity(self, *args):
        return self.answered_json("parity", MODEL, "--no-gpu", *args)

    def test_every_position_of_a_prompt_and_decode_after_it(self):
        n_prompt = len(self.answered_json("tokenize", MODEL, "-p", "one two three")["ids"])
        report = self.parity("-p", "one two three", "-n", "3")
        self.assertTrue(report["passed"])
        self.assertEqual(report["mode"], "exact")
        self.assertEqual(report["backend"]["ran"], "cpu")
        self.assertEqual([p["position"] for p in report["positions"]], list(range(n_prompt + 3)))
        self.assertEqual([p["phase"] for p in report["positions"]],
                         ["prefill"] * n_prompt + ["decode"] * 3)
        for position in report["positions"]:
            self.assertGreater(position["cosine"], 0.99999)
            self.assertLess(position["relative_linf"], 1e-4)
            self.assertGreaterEqual(position["kl"], 0)
            self.assertEqual(position["id"], position["oracle_id"])
        self.assertGreater(report["judged"], n_prompt)

    def test_the_built_in_prompt(self):
        text = self.answered("parity", MODEL, "--no-gpu").decode()
        self.assertIn("logits PASS: exact mode", text)

    def test_lengths_from_one_oracle_pass(self):
        report = self.parity("--lengths", "1..3,9,5", "-n", "2")
        self.assertEqual([p["position"] for p in report["positions"]],
                         [0, 1, 2, 1, 2, 3, 2, 3, 4, 4, 5, 6, 8, 9, 10])
        self.assertTrue(report["passed"])
        # The same lengths of a prompt that is repeated.
        report = self.parity("--lengths", "7", "-n", "0", "-p", "a b")
        self.assertEqual([p["position"] for p in report["positions"]], [6])

    def test_ids(self):
        ids = self.temporary(b"[1, 298, 207]")
        report = self.parity("--ids", ids, "-n", "0")
        self.assertEqual(report["judged"], 3)
        for bad in (b"", b"[]", b"[-1]", b"[4096]", b'["a"]', b"{}"):
            self.refused(4, "parity", MODEL, "--no-gpu", "--ids", self.temporary(bad))

    def test_per_op_compares_every_kind(self):
        report = self.parity("--per-op", "-p", "one two three four")
        ops = report["ops"]
        self.assertIsNone(ops["first_bad_op"])
        self.assertEqual(ops["failed"], [])
        n_ops = len(self.answered_json("plan", MODEL)["ops"])
        self.assertEqual(ops["compared"], 3 * n_ops)  # the prompt, two steps of decode
        kinds = {op["kind"] for op in ops["worst_of_each_kind"]}
        self.assertEqual(kinds, {op["kind"] for op in self.answered_json("plan", MODEL)["ops"]})
        text = self.answered("parity", MODEL, "--no-gpu", "--per-op", "-p", "one two").decode()
        self.assertIn("ops PASS", text)

    def test_of_a_model_with_experts_says_what_was_rerouted(self):
        model = os.path.join(DATA, "models", "tiny-qwen3moe-mix.gguf")
        report = self.answered_json("parity", model, "--no-gpu", "--lengths", "1..4,9", "-n", "2", "--per-op")
        routes = report["routes"]
        self.assertEqual((routes["positions"], routes["choices"]), (29, 29 * 5))  # five layers
        self.assertEqual((routes["failure"], routes["unsteady_positions"]), ("", 0))
        self.assertEqual([p["position"] for p in report["positions"]],
                         [0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5, 8, 9, 10])
        self.assertIsInstance(report["ops"]["rerouted"], list)
        text = self.answered("parity", model, "--no-gpu", "-p", "one two").decode()
        self.assertIn("routes PASS: experts of ", text)
        self.assertIsNone(self.parity("-p", "a", "-n", "0")["routes"])

    def test_every_tensor_bit_for_bit(self):
        n_tensors = len(self.answered_json("tensors", MODEL)["tensors"])
        report = self.parity("--tensors")
        self.assertTrue(report["passed"], report["reason"])
        self.assertEqual(report["tensors"], n_tensors)
        self.assertEqual(sum(row["tensors"] for row in report["types"]), n_tensors)
        self.assertEqual(report["failed"], [])
        self.assertIn("tensors PASS", self.answered("parity", "demo", "--tensors", "--no-gpu").decode())
        for flags in (["-p", "a"], ["--lengths", "3"], ["--per-op"], ["--exact"]):
            self.assertIn("--tensors", self.refused(2, "parity", MODEL, "--no-gpu", "--tensors", *flags))

    def test_bad_values(self):
        for value in ("", "0", "x", "1..", "..3", "5..2", "1,", "1...3", "-1"):
            self.assertIn("--lengths", self.refused(2, "parity", MODEL, "--lengths", value))
        self.refused(2, "parity", MODEL, "--no-gpu", "-n", "-1")
        self.refused(2, "parity", MODEL, "--no-gpu", "-p", "")
        self.refused(2, "parity", MODEL, "--no-gpu", "-p", "a", "--ids", "-")
        self.refused(2, "parity", MODEL, "--no-gpu", "--gpu")
        self.refused(4, "parity", MODEL, "--no-gpu", "--lengths", "1000000")
        self.refused(3, "parity", "/no/such.gguf", "--no-gpu")
        self.refused(3, "parity", MODEL, "--no-gpu", "--ids", "")

    def test_a_context_is_what_there_is_room_for(self):
        for room in ("3", "1000000"):
            self.assertIn("--context is " + room,
                          self.refused(2, "parity", MODEL, "--no-gpu", "-p", "a b", "-n", "2", "--context", room))
        self.assertEqual(len(self.parity("-p", "a b", "-n", "2", "--context", "4")["positions"]), 4)

    def test_ids_of_any_depth_are_refused(self):
        for text, found in ((b"[" * 1000000 + b"]" * 1000000, "element 0 is an array"), (b'[1, {"a": 2}]', "an object"),
                            (b'["' + b"x" * 1000000 + b'"]', "element 0 is a string"), (b"[-1]", "is -1;")):
            self.assertIn(found, self.refused(4, "parity", MODEL, "--no-gpu", "--ids", "-", stdin=text))

    def test_without_a_gpu_nothing_is_compared_with_itself(self):
        cuda = self.answered_json("doctor")["cuda"]
        if cuda["ready"]:
            self.skipTest("SKIPPED: this machine has a GPU that apr can use")
        code = 14 if cuda["compiled"] else 9
        for flags in ([], ["--gpu"], ["--backend", "cuda"]):
            self.assertIn(cuda["reason"], self.refused(code, "parity", MODEL, *flags))


if __name__ == "__main__":
    main()
