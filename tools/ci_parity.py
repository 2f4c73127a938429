#!/usr/bin/env python3
"""The cells of tools/ci_parity.sh, which says what they are for; APR names the program.

What a cell of a model must show, beyond exit 0:
  run      the backend asked for ran, and a greedy answer came of it; on the GPU the CPU's tokens. Where they part,
           `apr parity`, fed the same tokens, decides: it knows margins and the rule for experts.
  chat     an answer to a question from stdin (only where apr has the verb)
  parity   logits by apr's own bounds: the GPU against the CPU at many lengths, the CPU against its plain loops
  dequant  every tensor bit for bit, on the GPU in both layouts
The CPU has one mode, in which all sums are f32; the GPU's are default, exact, and default with each prefill product.
"""
import argparse, datetime, glob, hashlib, json, os, pathlib, re, signal, stat, subprocess, sys, tempfile, time

PROMPT = ("The lighthouse keeper counted 17 ships before noon, wrote the number down and asked: if each carries 25 "
          "barrels, how many barrels is that? The answer, he thought, must be more than four hundred, because 16 times "
          "25 is exactly 400, and one more ship brings 25 more. He looked up at the grey sky, where the first drops of "
          "rain were falling, then at his notes again. def total(ships, barrels): return ships * barrels. He went down "
          "the stairs, lit the lamp, fed the cat and began to tell a story. Once upon a time there was a")
SHORT_PROMPT = "Ships carry barrels over the sea:"  # the plain loops are slow
N_ANSWER = 32
QUESTION = "What is 17 + 25?\n/quit\n"
GEMM = "APR_QWEN35_PREFILL_GEMM"
# What would change a cell unasked.
VARIABLES = {GEMM, "APR_QWEN35_PREFILL_ATTENTION", "APR_QWEN35_SESSION_PREFILL", "BATCHED_PREFILL", "FP8_PREFILL",
             "SKIP_PARITY_GATE"}
PASS, FAIL, SKIP = "PASS", "FAIL", "SKIP"


class Failed(Exception):
    """Why a cell did not pass."""


class Cell:
    def __init__(self, model, verb, backend, mode="default"):
        self.model, self.verb, self.backend, self.mode = model, verb, backend, mode
        self.commands, self.answers, self.stderr = [], [], ""

    @property
    def name(self):
        return f"{self.verb} {self.backend} {self.mode}"

    def flags(self):
        return ["--gpu" if self.backend == "gpu" else "--no-gpu", *(["--exact"] if self.mode == "exact" else [])]

    def environment(self):
        gemm = {"default": "f16", "f32": "f32", "dp4a": "dp4a"}.get(self.mode)
        return {GEMM: gemm} if self.backend == "gpu" and gemm else {}


class Checker:
    def __init__(self, apr, limit_s, lengths):
        self.apr, self.limit_s, self.lengths = apr, limit_s, lengths
        self.cpu_answers = {}  # model -> the CPU's answer, or None where it has none
        self.deadline = 0.0

    def run(self, cell, *arguments, stdin=""):
        """Runs apr for a cell; (exit code, stdout). What it leaves running when the time is up is killed."""
        command = [self.apr, *arguments]
        cell.commands.append(command)
        environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", env=environment | cell.environment(), start_new_session=True) as process:
            try:
                out, err = process.communicate(stdin, timeout=max(self.deadline - time.monotonic(), 0.01))
            except BaseException as error:  # Ctrl-C too, which a session of its own does not get
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise Failed(f"not done after {self.limit_s:g} s (APR_CELL_SECONDS)") from None
                raise
        cell.stderr = err[-4000:]
        return process.returncode, out

    def run_json(self, cell, *arguments):
        """The JSON of a verb that must end with 0; the receipt has it even where it does not."""
        code, out = self.run(cell, *arguments, "--json")
        try:
            answer = json.loads(out)
        except json.JSONDecodeError:
            answer = None
        cell.answers.append(answer)
        if code != 0:
            said = answer or {}
            errors = re.findall(r"^error: (.*)", cell.stderr, re.MULTILINE)
            raise Failed(f"exit {code}: " + (said.get("reason") or said.get("error", {}).get("message")
                                             or (errors[-1] if errors else "no word about why")))
        if not isinstance(answer, dict):
            raise Failed("exit 0, but no JSON object on stdout")
        ran = answer.get("backend", {}).get("ran")
        if ran is not None and ran != cell.backend:
            raise Failed(f"the {cell.backend} was asked for, {ran} ran: {answer['backend'].get('reason')}")
        return answer

    def check_run(self, cell):
        answer = self.run_json(cell, "run", cell.model, *cell.flags(), "-p", PROMPT, "-n", str(N_ANSWER),
                               "--temperature", "0")
        tokens = answer.get("tokens")
        if answer.get("backend", {}).get("ran") != cell.backend:
            raise Failed("the answer does not say what ran")
        if answer.get("finish_reason") not in ("stop", "length", "context") or not tokens:
            raise Failed(f"{len(tokens or [])} tokens, finish_reason {answer.get('finish_reason')}")
        if len(tokens) > N_ANSWER or answer["finish_reason"] == "length" and len(tokens) != N_ANSWER:
            raise Failed(f"{len(tokens)} tokens where at most {N_ANSWER} were asked for")
        if cell.backend == "cpu":
            self.cpu_answers[cell.model] = tokens
            return f"{len(tokens)} tokens"
        expected = self.cpu_answers.get(cell.model)
        if expected is None:
            raise Failed("the CPU has no answer to compare with")
        words = f"{len(tokens)} tokens, " + self.compare_tokens(cell, tokens, expected)
        return words + self.gemm_words(cell, answer)

    def compare_tokens(self, cell, tokens, expected):
        if tokens == expected:
            return "the CPU's"
        n_equal = next((i for i, (a, b) in enumerate(zip(tokens, expected)) if a != b), min(len(tokens), len(expected)))
        if n_equal in (len(tokens), len(expected)):
            raise Failed(f"{len(tokens)} tokens, the CPU has {len(expected)}, the first {n_equal} being equal")
        prompt = json.loads(self.run(cell, "tokenize", cell.model, "--json", PROMPT)[1])["ids"]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(prompt + tokens[:n_equal], file)
            file.flush()
            report = self.run_json(cell, "parity", cell.model, *cell.flags(), "--ids", file.name, "--lengths",
                                   str(len(prompt)), "-n", str(n_equal))
        last = report["positions"][-1]
        if last["id"] == last["oracle_id"]:
            raise Failed(f"token {n_equal} is {tokens[n_equal]}, the CPU's {expected[n_equal]}, but fed one by one "
                         f"both choose {last['id']}")
        return f"the CPU's up to token {n_equal}, a near tie (margin {last['margin']:.3g})"

    @staticmethod
    def gemm_words(cell, answer):
        """What the products of the prefill were, where something else was asked for."""
        gemm = answer.get("prefill_gemm") or {}
        if cell.backend != "gpu" or cell.mode not in ("f32", "dp4a") or gemm.get("ran") == cell.mode:
            return ""
        return f"; {cell.mode} products asked for, {gemm.get('ran')} ran: {gemm.get('reason')}"

    def check_chat(self, cell):
        code, out = self.run(cell, "chat", cell.model, *cell.flags(), "--temperature", "0", stdin=QUESTION)
        cell.answers.append({"text": out})
        if code != 0 or not out.strip():
            raise Failed(f"exit {code}, {len(out.strip())} characters answered")
        return f"{len(out.strip())} characters"

    def check_parity(self, cell):
        what = ["--lengths", self.lengths] if cell.backend == "gpu" else ["-p", SHORT_PROMPT, "-n", "4"]
        report = self.run_json(cell, "parity", cell.model, *cell.flags(), *what)
        if report.get("passed") is not True or not report.get("judged"):
            raise Failed(f"exit 0, but passed is {report.get('passed')} and judged {report.get('judged')}")
        words = f"{report['judged']} positions, cosine >= {report['min_cosine']:.8f}"
        if report.get("routes"):
            words += f", {report['routes']['rerouted_positions']} positions re-routed"
        return words + self.gemm_words(cell, report)

    def check_dequant(self, cell):
        report = self.run_json(cell, "parity", cell.model, *cell.flags(), "--tensors")
        n_tensors = len(json.loads(self.run(cell, "tensors", cell.model, "--json")[1])["tensors"])
        if report.get("passed") is not True or report.get("tensors") != n_tensors:
            raise Failed(f"passed is {report.get('passed')}; {report.get('tensors')} of {n_tensors} tensors compared")
        types = sorted({row["type"] for row in report["types"]})
        return f"{n_tensors} tensors ({', '.join(types)}), {report['values']} values"

    def check(self, cell):
        """(status, reason, seconds) of a cell."""
        start = time.monotonic()
        self.deadline = start + self.limit_s
        try:
            status, reason = PASS, getattr(self, "check_" + cell.verb)(cell)
        except Failed as failure:
            status, reason = FAIL, str(failure)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            status, reason = FAIL, f"an answer that is not understood: {error!r}"
        return status, reason, time.monotonic() - start


def find_models(arguments):
    """The GGUF files named, and those of folders; of a split one its first part."""
    models = []
    for argument in arguments:
        found = sorted(glob.glob(os.path.join(glob.escape(argument), "*.gguf"))) if os.path.isdir(argument) else [argument]
        models += [path for path in found if not re.search(r"-(?!0*1-)\d+-of-\d+\.gguf$", path) or path == argument]
    return models


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def facts_of(model):
    """Which file this was: all parts' names, sizes, times of change and hashes; nothing of the program's own model."""
    part = re.search(r"-\d+(-of-\d+\.gguf)$", model)
    paths = [model] if not part else sorted(glob.glob(glob.escape(model[:part.start()]) + "-*" + part[1]))
    files = []
    for path in paths:
        try:
            info = os.stat(path)
            if not stat.S_ISREG(info.st_mode):
                raise OSError(f"{path} is not a regular file")  # a pipe would be waited for
            files.append({"path": path, "bytes": info.st_size, "mtime": info.st_mtime, "sha256": sha256_of(path)})
        except OSError as error:
            files.append({"path": path, "error": str(error)})
    return files


def one_line(text):
    """A path as a line of any terminal can hold it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def cells_of(model, has_chat, with_gpu):
    verbs = ["run", *(["chat"] if has_chat else []), "parity", "dequant"]
    cells = [Cell(model, verb, "cpu") for verb in verbs]
    if with_gpu:
        for verb in verbs:
            modes = {"run": ["default", "exact", "f32", "dp4a"], "parity": ["default", "exact", "f32", "dp4a"],
                     "chat": ["default", "exact"], "dequant": ["default"]}[verb]
            cells += [Cell(model, verb, "gpu", mode) for mode in modes]
    return cells


def commit():
    root = pathlib.Path(__file__).resolve().parent.parent
    found = subprocess.run(["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=40"], capture_output=True,
                           text=True, check=False) if (root / ".git").exists() else None
    return os.environ.get("APR_COMMIT") or (found.stdout.strip() if found and found.returncode == 0 else "unknown")


def main():
    parser = argparse.ArgumentParser(prog="ci_parity.sh", description="see the head of tools/ci_parity.sh")
    parser.add_argument("--cpu-only", action="store_true")
    parser.add_argument("models", nargs="+", metavar="DIR|MODEL")
    arguments = parser.parse_args()
    apr = os.path.abspath(os.environ["APR"])
    sys.stdout.reconfigure(errors="backslashreplace")
    seconds_text = os.environ.get("APR_CELL_SECONDS", "600")
    if not re.fullmatch(r"\d{1,7}(\.\d+)?", seconds_text, re.ASCII):
        sys.exit(f"error: APR_CELL_SECONDS is {seconds_text!a}; it must be a number of seconds")
    limit_s = float(seconds_text)
    now = datetime.datetime.now(datetime.timezone.utc)
    results = pathlib.Path(os.environ.get("APR_PARITY_RESULTS") or f"build/ci-parity/{now:%Y%m%dT%H%M%SZ}")
    models = find_models(arguments.models)
    if not models:
        sys.exit("error: no .gguf file there: " + one_line(" ".join(arguments.models)))
    doctor = json.loads(subprocess.run([apr, "doctor", "--json"], capture_output=True, check=True).stdout)
    usage = subprocess.run([apr, "--help"], capture_output=True, text=True, check=True).stdout
    has_chat = re.search(r"^  +chat\b", usage, re.MULTILINE) is not None
    if not has_chat:
        print("note: this apr has no verb chat, so there are no cells of it")
    cuda = doctor["cuda"]
    devices = {"cpu": doctor["cpu"]["backend"],
               "gpu": "; ".join(f"{d['name']} ({d['architecture']})" for d in cuda["devices"]) or "none"}
    apr_facts = {**doctor["build"], "commit": commit(), "sha256": sha256_of(apr)}
    checker = Checker(apr, limit_s, os.environ.get("APR_LENGTHS", "1..64,127,255,511"))
    cells = [cell for model in models for cell in cells_of(model, has_chat, not arguments.cpu_only)]
    try:
        results.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=results).close()
    except OSError as error:
        sys.exit(f"error: no receipt can be written (APR_PARITY_RESULTS): {one_line(str(error))}")
    counts = {PASS: 0, FAIL: 0, SKIP: 0}
    files = {}
    for number, cell in enumerate(cells, 1):
        if cell.model not in files:
            files[cell.model] = facts_of(cell.model) if cell.model != "demo" else []
        if cell.backend == "gpu" and not cuda["ready"]:
            status, reason, seconds = SKIP, f"no GPU (--cpu-only leaves it out): {cuda['reason']}", 0.0
        else:
            status, reason, seconds = checker.check(cell)
        counts[status] += 1
        receipt = {"schema": 1, "model": cell.model, "files": files[cell.model], "verb": cell.verb,
                   "backend": cell.backend, "mode": cell.mode, "device": devices[cell.backend], "status": status,
                   "reason": reason, "seconds": round(seconds, 3), "limit_seconds": limit_s,
                   "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                   "apr": apr_facts,
                   "commands": cell.commands, "environment": cell.environment(), "stderr": cell.stderr,
                   "answers": cell.answers}
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{pathlib.Path(cell.model).stem[:120]}-{cell.name}")
        (results / f"{number:03d}-{stem}.json").write_text(json.dumps(receipt, indent=1) + "\n", encoding="utf-8")
        print(f"[{number}/{len(cells)}] {status} {cell.name} {one_line(cell.model)} ({seconds:.0f} s): "
              + one_line(" ".join(reason.split()))[:200], flush=True)
    print(f"{counts[PASS]} passed, {counts[FAIL]} failed, {counts[SKIP]} skipped, of {len(cells)} cells; receipts in "
          f"{one_line(str(results))}")
    sys.exit(counts[PASS] != len(cells))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
