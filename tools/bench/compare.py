#!/usr/bin/env python3
"""Runs `apr bench` and llama.cpp's `llama-bench` on the same models, one after the other, and writes the table.

    compare.py [--apr build/apr] [--out tools/bench/results.md] [-p 512] [-n 128] [-d 0] [-r 5] MODEL...

LLAMA_BENCH names llama-bench (its libraries beside it); without it the column says "not run". llama-bench runs with
flash attention, all layers on the GPU, at -ub 512 and 2048; of each test the better one counts. APR_COMMIT stands in
for the commit where there is no git. The results file is written by this tool alone, and only with what a GPU did;
--out names another file, which takes what a CPU did, too.
"""
import argparse, datetime, json, os, shlex, subprocess, sys

UBATCHES = (512, 2048)
RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results.md")


def output_of(command, env=None):
    """Runs a command; its stdout. Its stderr goes to ours."""
    print("+", shlex.join(command), file=sys.stderr, flush=True)
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, env=env).stdout.decode()


def first_line_of(*command):
    """The first line a command prints, or nothing where it cannot run."""
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout.decode().strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ""


def refuse(why):
    """Ends the program with why results.md is not written."""
    sys.exit(f"compare.py: {why}; {RESULTS} holds what a GPU did and stays as it is: run this on a machine with a GPU, or "
             "name another file with --out FILE")


def require_gpu(apr):
    """Ends the program where apr has no GPU to run on, before anything is measured."""
    cuda = json.loads(output_of([apr, "doctor", "--json"]))["cuda"]
    if not cuda["ready"]:
        refuse(f"no GPU: {cuda['reason']}; {cuda['remedy']}")


def key_of(record):
    """(n_prompt, n_gen, n_depth): one test."""
    return record["n_prompt"], record["n_gen"], record["n_depth"]


def name_of(key):
    n_prompt, n_gen, n_depth = key
    return (f"pp{n_prompt}" if n_prompt else f"tg{n_gen}") + (f" @ d{n_depth}" if n_depth else "")


def run_apr(args, model):
    command = [args.apr, "bench", model, "-p", args.p, "-n", args.n, "-d", args.d, "-r", args.r, "--json", *args.apr_flags]
    return command, json.loads(output_of(command))


def run_llama(args, model):
    """The commands and the better record of each test."""
    program = os.environ["LLAMA_BENCH"]
    folder = os.path.dirname(os.path.abspath(program))
    env = dict(os.environ, LD_LIBRARY_PATH=folder + ":" + os.environ.get("LD_LIBRARY_PATH", ""))
    commands, best = [], {}
    for ubatch in UBATCHES:
        command = [program, "-m", model, "-p", args.p, "-n", args.n, "-d", args.d, "-r", args.r, "-fa", "1", "-ngl", "99",
                   "-ub", str(ubatch), "-b", str(max(UBATCHES)), "-o", "json"]
        commands.append(command)
        for record in json.loads(output_of(command, env)):
            key = key_of(record)
            if key not in best or record["avg_ts"] > best[key]["avg_ts"]:
                best[key] = record
    return commands, best


def rows_of(apr_records, llama_best, without):
    """The table's rows of one model; `without`: what stands in for tests that llama.cpp has not run."""
    for record in apr_records:
        key = key_of(record)
        other = llama_best.get(key)
        share = record["share_of_bound"]
        yield [record["model_type"], name_of(key), f"{record['avg_ts']:,.1f} ± {record['stddev_ts']:,.1f}",
               f"{other['avg_ts']:,.1f} ± {other['stddev_ts']:,.1f}" if other else without,
               f"{record['avg_ts'] / other['avg_ts']:.2f}" if other else "-",
               f"{record['gb_per_s']:,.0f}", f"{record['tflop_per_s']:,.1f}",
               f"{100 * share:.1f} %" if share else "-"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--apr", default="build/apr")
    parser.add_argument("--out", help="the file to write, also where no GPU ran; default: results.md beside this tool")
    parser.add_argument("--apr-flags", type=shlex.split, default=[], help="more flags of apr bench, as one text")
    for flag, default in (("-p", "512"), ("-n", "128"), ("-d", "0"), ("-r", "5")):
        parser.add_argument(flag, default=default)
    args = parser.parse_args()
    if args.out is None:
        require_gpu(args.apr)
    out = RESULTS if args.out is None else args.out
    commands, rows, failures, device, bound = [], [], [], "", ""
    for model in args.models:
        command, records = run_apr(args, model)
        commands.append(command)
        device, bound = records[0]["devices"], records[0]["bound_is"]
        if args.out is None and records[0]["backends"] != "CUDA":  # --apr-flags, or the model did not fit
            refuse(f"{model} ran on the CPU ({records[0]['backend']['reason']})")
        best, without = {}, "not run"
        if os.environ.get("LLAMA_BENCH"):
            try:
                more, best = run_llama(args, model)
                commands += more
            except subprocess.CalledProcessError as error:  # what the others gave counts
                without = "failed"
                failures.append(f"{shlex.join(error.cmd)}: exit {error.returncode}")
        rows += rows_of(records, best, without)
    here = os.path.dirname(os.path.abspath(__file__))
    commit = os.environ.get("APR_COMMIT") or first_line_of("git", "-C", here, "rev-parse", "HEAD") or "unknown"
    driver = first_line_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "unknown"
    version = first_line_of(os.environ["LLAMA_BENCH"], "--version") if os.environ.get("LLAMA_BENCH") else ""
    head = ["model", "test", "apr t/s", "llama.cpp t/s", "ratio", "GB/s", "TFLOP/s", "of bound"]
    lines = ["# Speed, as tools/bench/compare.py wrote it", "",
             f"- date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
             f"- device: {device}; driver {driver}", f"- commit: {commit}", f"- bound: {bound}",
             f"- llama.cpp: {version or ('version unknown' if os.environ.get('LLAMA_BENCH') else 'not run (LLAMA_BENCH is not set)')};"
             f" flash attention, the better of -ub {' and '.join(map(str, UBATCHES))}",
             "- apr's decode includes the sampler and the text; llama-bench's has neither", "",
             "| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += ["", *(f"- failed: {failure}" for failure in failures)] if failures else []
    lines += ["", "```", *(shlex.join(command) for command in commands), "```"]
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print(out)
    if failures:
        sys.exit("compare.py: llama-bench failed, its column says so: " + "; ".join(failures))


if __name__ == "__main__":
    main()
