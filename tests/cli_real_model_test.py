#!/usr/bin/env python3
"""Qwen2.5-Coder-0.5B through the program: the ids of the reference, a prompt of 20,000 tokens in bounded memory. A loud
skip without APR_REAL_MODEL_PATH, which tools/test.sh sets where APR_REAL_MODEL=1. On the CPU, with APR_REQUIRE_GPU=1 on
the GPU."""
import json
import os
import resource
import subprocess
import unittest

from support.cli import APR, Base, DATA, main

MODEL = os.environ.get("APR_REAL_MODEL_PATH")
BACKEND = "--gpu" if os.environ.get("APR_REQUIRE_GPU") == "1" else "--no-gpu"
N_LONG = 20000
LIMIT_S = 1500


@unittest.skipUnless(MODEL, "SKIPPED: set APR_REAL_MODEL=1 (and APR_REAL_MODEL_PATH) to run the real model")
class RealModel(Base):
    def run_json(self, *args, stdin=b""):
        process = subprocess.run([APR, *args, "--json", BACKEND], input=stdin, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, timeout=LIMIT_S)
        self.check(process, 0)
        return json.loads(process.stdout)

    def test_answers_are_the_references(self):
        with open(os.path.join(DATA, "refs", "qwen2.5-coder-0.5b.json")) as file:
            cases = json.load(file)["cases"]
        for case in cases:
            ids = case["greedy_ids"]
            report = self.run_json("run", MODEL, "-p", case["prompt"], "-n", str(len(ids)), "--exact")
            self.assertEqual(report["prompt_tokens"], len(case["prompt_ids"]))
            self.assertEqual(report["tokens"], ids, case["user"])

    def count(self, text):
        process = subprocess.run([APR, "tokenize", MODEL, "-", "--json"], input=text.encode(), stdout=subprocess.PIPE,
                                 check=True)
        return len(json.loads(process.stdout)["ids"])

    def test_a_prompt_of_20000_tokens_in_bounded_memory(self):
        lines = [f"def f_{idx}(x):\n    return x + {idx}\n\n" for idx in range(1300)]
        while self.count("".join(lines)) > N_LONG:
            lines = lines[:-10]
        text = "".join(lines)
        n_tokens = self.count(text)
        report = self.run_json("run", MODEL, "-i", self.temporary(text.encode()), "-n", "24")
        self.assertEqual(report["prompt_tokens"], n_tokens)
        self.assertGreater(n_tokens, N_LONG - 300)
        self.assertIn("def f_", report["text"])  # the pattern goes on
        # Weights (0.49 GB, mapped), keys and values (0.49 GB as f32), a chunk's rows, the prompt.
        peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        self.assertLess(peak_bytes, 2 * 10**9)
        print(f"{n_tokens} tokens: prefill {report['prefill_ms'] / 1000:.0f} s, decode {report['tok_per_sec']:.1f} t/s, "
              f"peak {peak_bytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
