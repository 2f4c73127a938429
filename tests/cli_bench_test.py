#!/usr/bin/env python3
"""`apr bench`: llama-bench's flags and fields; numbers that belong together."""
import json
import statistics

from support.cli import Base, main, MODEL, run

FIELDS = """build_commit cpu_info gpu_info backends model_filename model_type model_size model_n_params n_batch
n_ubatch n_threads type_k type_v n_gpu_layers devices n_prompt n_gen n_depth test_time avg_ns stddev_ns avg_ts
stddev_ts samples_ns samples_ts""".split()


class Bench(Base):
    def bench(self, *args):
        return self.answered_json("bench", MODEL, "--no-gpu", *args)

    def test_one_record_a_test_with_the_fields_of_llama_bench(self):
        records = self.bench("-p", "8,16", "-n", "4", "-d", "0,5", "-r", "2")
        tests = [(r["n_prompt"], r["n_gen"], r["n_depth"]) for r in records]
        self.assertEqual(tests, [(8, 0, 0), (16, 0, 0), (0, 4, 0), (8, 0, 5), (16, 0, 5), (0, 4, 5)])
        for record in records:
            for field in FIELDS:
                self.assertIn(field, record)
            self.assertEqual(record["backends"], "CPU")
            self.assertEqual(record["backend"]["ran"], "cpu")
            self.assertRegex(record["test_time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def test_rates_follow_from_the_samples(self):
        for record in self.bench("-p", "8", "-n", "3", "-r", "4"):
            n_tokens = record["n_prompt"] + record["n_gen"]
            self.assertEqual(len(record["samples_ns"]), 4)
            rates = [n_tokens * 1e9 / ns for ns in record["samples_ns"]]
            for found, expected in zip(record["samples_ts"], rates):
                self.assertAlmostEqual(found, expected, delta=1e-6 * expected)
            self.assertAlmostEqual(record["avg_ts"], statistics.mean(rates), delta=1e-6 * rates[0])
            self.assertAlmostEqual(record["stddev_ts"], statistics.stdev(rates), delta=1e-3 * rates[0])
            self.assertAlmostEqual(record["avg_ns"], statistics.mean(record["samples_ns"]), delta=1)

    def test_the_share_of_the_bound_is_of_this_run(self):
        prompt, decode = self.bench("-p", "8", "-n", "3", "-r", "1")
        self.assertIsNone(prompt["share_of_bound"])  # no product is measured on the CPU
        self.assertAlmostEqual(decode["share_of_bound"],
                               decode["gb_per_s"] / decode["bound_gb_per_s"], places=6)
        inspect = self.answered_json("tensors", MODEL)
        self.assertEqual(decode["model_size"], inspect["total_bytes"])
        bytes_per_token = decode["gb_per_s"] * 1e9 / decode["avg_ts"]
        self.assertLess(bytes_per_token, decode["model_size"] * 1.5)
        self.assertGreater(bytes_per_token, decode["model_size"] * 0.5)

    def test_the_model_is_named_as_llama_bench_names_it(self):
        def weights_of(model):
            record, = self.answered_json("bench", model, "--no-gpu", "-p", "2", "-n", "0", "-r", "1")
            return record["model_type"].split(" ", 2)[2]
        self.assertEqual(weights_of(MODEL), "Q4_K - Medium")
        self.assertEqual(weights_of("demo"), "Q4_K - Medium")
        types = self.answered_json("inspect", MODEL)["quantisation"]
        most = max(types, key=lambda name: types[name]["bytes"])
        key = b"general.file_type"
        for change in (lambda b: b.replace(key, b"general.file_tYpe"), lambda b: self.with_u32_after(b, key, 4321)):
            self.assertEqual(weights_of(self.patched(change)), most)

    @staticmethod
    def with_u32_after(content, key, value):
        at = content.index(key) + len(key) + 4  # a type, then the value
        content[at:at + 4] = value.to_bytes(4, "little")
        return content

    def test_text_and_lines(self):
        text = self.answered("bench", MODEL, "--no-gpu", "-p", "4", "-n", "2", "-r", "1").decode()
        self.assertIn("pp4", text)
        self.assertIn("tg2", text)
        self.assertIn("measured in this run", text)
        lines = self.answered("bench", MODEL, "--no-gpu", "-p", "4", "-n", "2", "-r", "1",
                              "--format", "ndjson").decode().splitlines()
        self.assertEqual([json.loads(line)["n_gen"] for line in lines], [0, 2])

    def test_bad_values(self):
        for flag, values in {"-p": ["", "x", "1,", "-1", "1.5", "1,,2"], "-n": ["x", "-1"],
                             "-d": ["x", "-5"], "-r": ["0", "-1", "x", ""]}.items():
            for value in values:
                error = self.refused(2, "bench", MODEL, flag, value)
                self.assertRegex(error, r'--[a-z-]+ is ".*"; it must be a whole number from')
        self.assertIn("nothing to measure", self.refused(2, "bench", MODEL, "-p", "0", "-n", "0"))
        self.assertIn("positions", self.refused(2, "bench", MODEL, "--no-gpu", "-p", "999999"))
        self.assertIn("positions", self.refused(2, "bench", MODEL, "--no-gpu", "--context", "16"))
        self.refused(3, "bench", "/no/such.gguf", "--no-gpu")

    def test_a_gpu_that_is_not_there(self):
        cuda = self.answered_json("doctor")["cuda"]
        if cuda["ready"]:
            self.skipTest("SKIPPED: this machine has a GPU that apr can use")
        self.refused(14 if cuda["compiled"] else 9, "bench", MODEL, "--gpu")
        process = run("bench", MODEL, "-p", "2", "-n", "0", "-r", "1", "--json")
        self.check(process, 0)
        self.assertIn(b"runs on the CPU", process.stderr)


if __name__ == "__main__":
    main()
