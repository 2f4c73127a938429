#!/usr/bin/env python3
"""`apr fit`: terms, decisions and their boundaries, without a GPU."""
import os

from support.cli import Base, DATA, main, MODEL, run

MIB = 1 << 20
PLAIN = os.path.join(DATA, "models", "tiny-qwen2-legacy.gguf")  # without QK-norm
HYBRID = os.path.join(DATA, "models", "tiny-qwen35-Q4_K_M.gguf")


class Fit(Base):
    def fit(self, *args, **variables):
        env = {key: value for key, value in os.environ.items()
               if key not in ("BATCHED_PREFILL", "FP8_PREFILL")} | variables
        return self.answered_json("fit", *args, env=env)

    def test_the_card_of_the_seeds(self):
        report = self.fit(MODEL, "--vram", "24G")
        self.assertEqual(report["vram_bytes"], 24 * 1024 * MIB)
        self.assertEqual(report["free_bytes"], 23300 * MIB)
        self.assertEqual(self.fit(MODEL, "--vram", "80G")["free_bytes"], (80 * 1024 - 1276) * MIB)
        self.assertEqual(self.fit(MODEL, "--vram", "24G", "--free", "5000000000")["free_bytes"],
                         5000000000)

    def test_terms_add_up(self):
        for model in (MODEL, HYBRID):
            report = self.fit(model, "--vram", "24G", "--context", "2048")
            need, planned = report["need"], report["planned"]
            self.assertEqual(sum(need.values()), report["need_bytes"])
            self.assertEqual(need["reserve_bytes"], 4573741824)
            self.assertGreaterEqual(report["planned_bytes"], sum(planned.values()))
            self.assertLess(report["planned_bytes"], sum(planned.values()) + 64 * MIB)
            self.assertEqual(planned["states_bytes"] > 0, model == HYBRID)
            self.assertTrue(report["missing_kernel"] is None or model == HYBRID)
            self.assertEqual((report["context"], report["decision"], report["fits"]),
                             (2048, "batched", True))
        dims = self.answered_json("inspect", MODEL)["dimensions"]
        row_bytes = 2 * dims["kv_heads"] * dims["head_dim"] * dims["attention_layers"]
        for flags, elem_bytes in (([], 2), (["--exact"], 4)):
            need = self.fit(MODEL, "--vram", "24G", "--context", "100", *flags)["need"]
            self.assertEqual(need["kv_bytes"], 100 * row_bytes * elem_bytes)
            self.assertEqual(need["cache_bytes"] > 0, not flags)

    def test_need_equal_to_free_fits(self):
        need = self.fit(MODEL, "--vram", "24G")["need_bytes"]
        for free, decision in ((need, "batched"), (need - 1, "streamed")):
            process = run("fit", MODEL, "--free", str(free), "--json")
            self.check(process, 0)
            self.assertIn(f'"decision": "{decision}"'.encode(), process.stdout)
            self.assertEqual(b"[#3715] streamed prefill: the FP16 batched prefill needs" in process.stderr,
                             decision == "streamed")

    def test_less_and_less_memory(self):
        streamed = self.fit(MODEL, "--free", "4000M", "--prefill-chunk", "128")["planned_bytes"]
        serial = self.fit(MODEL, "--free", str(streamed - 1))
        self.assertEqual((serial["decision"], serial["chunk"]), ("serial", 1))
        last = self.fit(MODEL, "--free", str(serial["planned_bytes"]))
        self.assertEqual((last["decision"], last["fits"]), ("serial", True))
        refused = self.fit(MODEL, "--free", str(serial["planned_bytes"] - 1))
        self.assertEqual((refused["decision"], refused["fits"]), ("refused", False))
        self.assertIn("--context", refused["reason"])
        self.assertLess(refused["largest_context"], refused["context"])
        self.assertTrue(self.fit(MODEL, "--free", str(serial["planned_bytes"] - 1), "--context",
                                 str(refused["largest_context"]))["fits"])

    def test_who_is_in_charge(self):
        free = ("--free", "4000M")
        for variable, decision in (("0", "serial"), ("1", "batched"), ("yes", "batched")):
            report = self.fit(MODEL, *free, BATCHED_PREFILL=variable)
            self.assertEqual((report["decision"], report["reason"]),
                             (decision, "BATCHED_PREFILL=" + variable))
        for path in ("batched", "streamed", "serial"):
            report = self.fit(MODEL, *free, "--prefill", path, BATCHED_PREFILL="0")
            self.assertEqual((report["decision"], report["reason"]), (path, "--prefill " + path))
        self.assertEqual(self.fit(MODEL, *free, "--prefill", "auto")["decision"], "streamed")

    def test_fp8_is_refused_in_one_line(self):
        for model, flags, reason, ran in (
                (MODEL, (), b"QK-norm", "f16"), (PLAIN, ("--exact",), b"exact mode", "f32")):
            process = run("fit", model, "--vram", "24G", "--json", *flags, env={"FP8_PREFILL": "1"})
            self.check(process, 0)
            lines = [line for line in process.stderr.splitlines() if b"FP8_PREFILL=1 is refused" in line]
            self.assertEqual(len(lines), 1, process.stderr)
            self.assertIn(reason, lines[0])
            self.assertIn(f'"precision": "{ran}"'.encode(), process.stdout)

    def test_fp8_takes_a_byte_an_element(self):
        half, eight = (self.fit(PLAIN, "--vram", "24G", **env) for env in ({}, {"FP8_PREFILL": "1"}))
        self.assertEqual((half["precision"], eight["precision"]), ("f16", "fp8"))
        self.assertEqual(2 * eight["need"]["cache_bytes"], half["need"]["cache_bytes"])
        self.assertLess(eight["planned"]["cache_bytes"], 0.6 * half["planned"]["cache_bytes"])
        process = run("fit", PLAIN, "--vram", "24G", env={"FP8_PREFILL": "2"})
        self.assertEqual(process.stderr.count(b"FP8_PREFILL=2 is not 0 or 1; FP16 is used"), 1)

    def test_text(self):
        text = self.answered("fit", MODEL, "--vram", "24G").decode()
        for word in ("weights", "prefill weights", "KV cache", "recurrent states", "workspace", "libraries",
                     "reserve", "need", "planned", "free", "batched", "largest context"):
            self.assertIn(word, text)

    def test_what_makes_no_sense(self):
        self.assertIn("more than the card's",
                      self.refused(2, "fit", MODEL, "--vram", "2G", "--free", "3G"))
        self.assertIn("allowed: 1 to", self.refused(2, "fit", MODEL, "--vram", "24G", "--context", "9999999"))
        self.refused(3, "fit", "/no/such.gguf", "--vram", "24G")
        if not self.answered_json("doctor")["cuda"]["ready"]:
            self.assertIn("--vram 24G", self.refused(2, "fit", MODEL))


if __name__ == "__main__":
    main()
