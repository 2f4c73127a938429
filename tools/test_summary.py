#!/usr/bin/env python3
"""Prints what tools/test.sh ran, skipped and failed; the last line counts it. Exit 1 if anything failed.

    test_summary.py DIR     DIR: checks.tsv (name, status, seconds, reason) and one JUnit file of ctest a run
"""
import pathlib, re, sys
import xml.etree.ElementTree as ElementTree

N_SLOWEST = 5


def judge(case):
    """Answers (status, reason) of a test case. Only a test's own word makes a skip: ctest also calls a missing
    program "notrun", and a program that skipped but then crashed or leaked "skipped"."""
    output = case.findtext("system-out") or ""
    skipped = case.find("skipped")
    message = skipped.get("message", "") if skipped is not None else ""
    status = case.get("status")
    if status == "run":
        return "passed", ""
    if status == "disabled":
        return "skipped", "disabled in the source"
    if status != "notrun" or not message.startswith("SKIP_"):
        return "failed", message
    if "[  PASSED  ]" not in output or "Sanitizer:" in output:
        return "failed", "skipped, but did not end well"
    text = re.search(r": Skipped\n(.*?)\n?\[  SKIPPED \]", output, re.DOTALL)
    return "skipped", (" ".join(text.group(1).split()) if text else "") or "no reason given"


def ctest_results(path):
    """Lists (run, name, status, seconds, reason) of one JUnit file; a run without tests has failed."""
    cases = list(ElementTree.parse(path).iter("testcase"))
    if not cases:
        return [(path.stem, "(no test found)", "failed", 0.0, "the selection matches no test")]
    judged = [(case, *judge(case)) for case in cases]
    return [(path.stem, case.get("name"), status, float(case.get("time", 0)), reason) for case, status, reason in judged]


def main():
    folder = pathlib.Path(sys.argv[1])
    rows = []
    for line in (folder / "checks.tsv").read_text().splitlines():
        name, status, seconds, reason = line.split("\t")
        rows.append(("check", name, status, float(seconds), reason))
    for path in sorted(folder.glob("*.xml")):
        rows += ctest_results(path)

    print("What ran:")
    for _, name, status, seconds, reason in (row for row in rows if row[0] == "check"):
        print(f"  {status:8}{seconds:6.0f} s  {name}{f' ({reason})' if reason else ''}")
    for run in sorted({row[0] for row in rows} - {"check"}):
        tests = [row for row in rows if row[0] == run]
        counts = ", ".join(f"{sum(row[2] == s for row in tests)} {s}" for s in ("passed", "failed", "skipped"))
        print(f"  ctest {run}: {counts}; {sum(row[3] for row in tests):.0f} s of tests; slowest: "
              + ", ".join(f"{row[1]} {row[3]:.1f} s" for row in sorted(tests, key=lambda r: -r[3])[:N_SLOWEST]))
    for status, heading in (("skipped", "SKIPPED, so nothing is known about these:"), ("failed", "FAILED:")):
        chosen = [row for row in rows if row[2] == status]
        if chosen:
            print(heading)
        for run, name, _, _, reason in chosen:
            print(f"  {status.upper()}  [{run}] {name}{f': {reason}' if reason else ''}")
    counts = {s: sum(row[2] == s for row in rows) for s in ("passed", "failed", "skipped")}
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
