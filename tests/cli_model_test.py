#!/usr/bin/env python3
"""The fixtures through the program: greedy answers, chats, logits."""
import json
import os
import struct

from support.cli import Base, DATA, main


class Model(Base):
    def test_greedy_answers_of_the_fixtures(self):
        models = sorted(name for name in os.listdir(os.path.join(DATA, "models")))
        self.assertGreaterEqual(len(models), 7)
        for name in models:
            stem = name[:-len(".gguf")]
            with open(os.path.join(DATA, "refs", stem + ".tasks.json")) as file:
                cases = json.load(file)["cases"]
            for case in cases[::10]:
                path = self.temporary(case["prompt"].encode())
                report = self.answered_json("run", os.path.join(DATA, "models", name), "-i", path,
                                            "--exact", "-n", str(len(case["greedy_ids"])))
                self.assertEqual(report["prompt_tokens"], len(case["prompt_ids"]))
                self.assertEqual(report["tokens"], case["greedy_ids"], (name, case["user"]))
                self.assertEqual(report["text"], case["greedy_text"])

    def test_chat_renders_what_the_fixtures_hold(self):
        for stem in ("tiny-qwen2-legacy", "tiny-qwen3-kmix", "tiny-qwen35-Q4_K_M"):
            with open(os.path.join(DATA, "refs", stem + ".tasks.json")) as file:
                case = json.load(file)["cases"][0]
            report = self.answered_json("run", os.path.join(DATA, "models", stem + ".gguf"),
                                        "--chat", case["user"], "--exact")
            self.assertEqual(report["prompt_tokens"], len(case["prompt_ids"]))
            self.assertEqual(report["tokens"], case["greedy_ids"])

    def test_logits_of_the_fixtures(self):
        # Bound of exact mode (design, numerics): relative Linf 1e-4.
        for stem in ("tiny-qwen3-kmix", "tiny-qwen35-Q4_K_M"):
            with open(os.path.join(DATA, "refs", stem + ".logits.json")) as file:
                reference = json.load(file)
            with open(os.path.join(DATA, "refs", stem + ".logits.f32"), "rb") as file:
                expected = file.read(len(reference["short_positions"]) * reference["vocab"] * 4)
            ids = self.temporary(json.dumps(reference["short_ids"]).encode())
            out = self.temporary(None, "rows.f32")
            self.answered("logits", os.path.join(DATA, "models", stem + ".gguf"), "--ids", ids,
                          "--positions", ",".join(map(str, reference["short_positions"])),
                          "--out", out, "--exact")
            with open(out, "rb") as file:
                got = file.read()
            self.assertEqual(len(got), len(expected))
            n = len(got) // 4
            want, have = struct.unpack(f"<{n}f", expected), struct.unpack(f"<{n}f", got)
            worst = max(abs(a - b) for a, b in zip(want, have))
            self.assertLessEqual(worst, 1e-4 * max(map(abs, want)), stem)


if __name__ == "__main__":
    main()
