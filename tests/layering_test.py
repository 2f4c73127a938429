#!/usr/bin/env python3
"""Keeps the layout true: includes follow the flow, architecture names stay in one file, files stay short, every row of
the table of CUDA's functions is used, every kernel says what it reads and writes.

    layering_test.py [ROOT]         prints each violation in the tree at ROOT; exit 1 if there is one
    layering_test.py --self-test    plants one violation of each kind in a copy of the tree and expects each found
"""
import os, pathlib, re, shutil, sys, tempfile

# An include may point to its own layer or to one of a lower rank; equal ranks are siblings.
RANK = {"base": 0, "gguf": 1, "kernels": 2, "quant": 3, "tokenizer": 3, "model": 4, "plan": 5, "lower": 6, "fit": 7,
        "backend": 8, "cpu": 9, "cuda": 9, "generate": 10, "cli": 11}  # backend: the interface of cpu and cuda
# The layer of each public header; one named after its layer needs no row.
PUBLIC = {"error": "base", "chat_template": "tokenizer", "sampling": "backend"}
PROGRAMS = {"main.cpp": "cli"}  # files directly in src/
GENERATED = {"apr_quant_files.h": "kernels"}  # written by cmake/generate.cmake
SOURCE_DIRS = ("include", "src", "kernels")
CODE = {".h", ".cpp", ".cuh", ".cu", ".inc"}

ARCH_NAME = re.compile(r"qwen[0-9]|k?Qwen[0-9]+[A-Za-z_]")  # "Qwen3.5" in prose is no architecture name
ARCH_FILES = {
    "src/model/arch.cpp": "the one file with the descriptions",
    # GGUF names pre-tokenizers after the architecture that brought them:
    "src/tokenizer/preset.cpp": "the preset of a file that names none",
    "src/tokenizer/preset.h": "says which preset that is",
    "src/tokenizer/pretokenize.cpp": "the patterns by name",
    "src/tokenizer/pretokenize.h": "says which names exist",
    "include/apr/tokenizer.h": "says which names exist",
}

API_TABLE = "src/cuda/api_functions.inc"
API_ROW = re.compile(r"^APR_API\(\w+, (\w+)\)", re.MULTILINE)
API_USE = re.compile(r"\.(cu\w+|nvrtc\w+)")  # a member of the table

KERNEL_FACTS = ("Reads", "Writes")  # what the comment at the head of each kernels/*.cu says

MAX_LINES = 400
# In line 1, or in line 2 after "#!".
LONG_REASON = re.compile(r"^\s*(//|#|/\*).*\b(long|lines|generated|because)\b", re.IGNORECASE)
LONG_SUFFIXES = CODE | {".py", ".sh"}


def layer_of(path):
    """Answers the layer of a path relative to the root, or None where no row says so."""
    parts = path.parts
    if parts[0] == "kernels":
        return "kernels"
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else PROGRAMS.get(parts[1])
    return PUBLIC.get(path.stem, path.stem if path.stem in RANK else None)


def resolve(root, includer, name):
    """Answers the file in the tree that an include names, as the compiler would search for it, or None."""
    for folder in (includer.parent, *(pathlib.Path(d) for d in SOURCE_DIRS)):
        candidate = pathlib.Path(os.path.normpath(folder / name))
        if (root / candidate).is_file() and candidate.parts[0] in SOURCE_DIRS:
            return candidate
    return None


def include_violations(root, path, lines):
    here = layer_of(path)
    if here not in RANK:
        return [f"{path}: belongs to no layer; add it to the map in tests/layering_test.py"]
    found = []
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        quote, name = match.groups()
        target = resolve(root, path, name)
        layer = GENERATED.get(name) or (layer_of(target) if target else None)
        where = f"{path}:{number}: {here} includes {name}"
        if target is None and name not in GENERATED:
            if quote == '"':
                found.append(f"{where}, which is no file of the tree")
            continue
        if layer in RANK and layer != here and RANK[layer] >= RANK[here]:
            found.append(f"{where} of {layer}: against the flow")
    return found


def cuda_violations(root, texts):
    """What the table of CUDA's functions has and no file uses, and what the heads of kernels lack."""
    found, used = [], set()
    for path, text in texts.items():
        used.update(API_USE.findall(text) if path.suffix in (".h", ".cpp") else ())
    for name in API_ROW.findall((root / API_TABLE).read_text(encoding="utf-8")):
        if name not in used:
            found.append(f"{API_TABLE}: nothing uses {name}; remove the row")
    for path, text in texts.items():
        head = re.match(r"(//.*\n)*", text)[0]
        found += [f"{path}: the comment at its head does not say what the kernel {fact.lower()} ({fact})"
                  for fact in KERNEL_FACTS if path.suffix == ".cu" and not re.search(rf"\b{fact} ", head)]
    return found


def violations(root):
    """Lists every violation in the tree at root, one message each."""
    found, named, texts = [], set(), {}
    files = sorted(p.relative_to(root) for d in (*SOURCE_DIRS, "tests", "tools") for p in (root / d).rglob("*")
                   if p.is_file() and p.suffix in LONG_SUFFIXES)
    for path in files:
        texts[path] = (root / path).read_text(encoding="utf-8")
        lines = texts[path].splitlines()
        first = lines[1:2] if lines[:1] and lines[0].startswith("#!") else lines[:1]
        if len(lines) > MAX_LINES and not LONG_REASON.match(first[0]):
            found.append(f"{path}: {len(lines)} lines, over {MAX_LINES}; split it, or let line 1 say why it is long")
        if path.parts[0] not in SOURCE_DIRS or path.suffix not in CODE:
            continue
        found += include_violations(root, path, lines)
        for number, line in enumerate(lines, 1):
            if ARCH_NAME.search(line):
                named.add(str(path))
                if str(path) not in ARCH_FILES:
                    found.append(f"{path}:{number}: architecture name outside src/model/arch.cpp: {line.strip()}")
    found += [f"{path}: in ARCH_FILES, but names no architecture any more; remove the row"
              for path in sorted(ARCH_FILES) if (root / path).exists() and path not in named]
    found += cuda_violations(root, texts)
    if not files:
        found.append(f"{root}: no source file found")
    return found


PLANTED = (  # file, text, what the message must say
    ("src/gguf/planted.cpp", '#include "apr/model.h"\n', "src/gguf/planted.cpp:1: gguf includes apr/model.h of model"),
    ("src/quant/planted.cpp", '#include "tokenizer/planted.h"\n', "quant includes tokenizer/planted.h of tokenizer"),
    ("src/base/planted.h", '\n#  include <apr/cli.h>\n', "src/base/planted.h:2: base includes apr/cli.h of cli"),
    ("src/gguf/relative.cpp", '#include "../cli/planted.h"\n', "gguf includes ../cli/planted.h of cli"),
    ("include/apr/gguf.h", '#include "apr/quant.h"\n', "include/apr/gguf.h:1: gguf includes apr/quant.h of quant"),
    ("kernels/planted.cuh", '#include "base/planted.h"\n#include "cuda/planted.h"\n', "kernels includes cuda/planted.h"),
    ("src/cpu/planted.cpp", '#include "cuda/planted.h"\n', "cpu includes cuda/planted.h of cuda: against the flow"),
    ("src/cli/planted.cpp", '#include "plan/nowhere.h"\n', "includes plan/nowhere.h, which is no file of the tree"),
    ("include/apr/planted.h", "", "include/apr/planted.h: belongs to no layer"),
    ("src/plan/planted.cpp", 'bool is_moe = name == "qwen3moe";\n', "src/plan/planted.cpp:1: architecture name"),
    ("src/plan/planted.h", "struct Qwen35Mixer;\n", "src/plan/planted.h:1: architecture name"),
    ("src/model/planted.cpp", "// A file of many rows.\n" * 401, "src/model/planted.cpp: 401 lines"),
    ("tests/planted_test.cpp", "\n" * 401, "tests/planted_test.cpp: 401 lines"),
    ("src/cuda/api_functions.inc", "APR_API(kRuntime, cudaUncalled)\n", "nothing uses cudaUncalled; remove the row"),
    ("kernels/planted.cu", "// Computes  y\n// Reads     x\n\n// Writes   y\n", "what the kernel writes"),
)
HARMLESS = (  # file, text: must add no violation
    ("src/cli/fine.cpp", '#include "apr/gguf.h"\n#include <vector>\n#include "planted.h"\n// For Qwen3.5 and Qwen2.5.\n'),
    ("src/quant/fine.cpp", '#include "apr_quant_files.h"\n'),
    ("src/model/fine.cpp", "// Long: generated table.\n" * 401),
    ("src/model/arch.cpp", 'row("qwen2");\n'),
    ("src/cli/planted.h", ""), ("src/cuda/planted.h", ""), ("src/tokenizer/planted.h", ""),
    ("include/apr/model.h", ""), ("include/apr/cli.h", ""),
)


def self_test(root):
    """Answers what went wrong: planted violations that were not found, harmless files that were."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for name in (*SOURCE_DIRS, "tests", "tools"):
            shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("data"))
        before = set(violations(copy))

        def new_after(rows):
            for path, text, *_ in rows:
                (copy / path).parent.mkdir(parents=True, exist_ok=True)
                (copy / path).write_text(text)
            return set(violations(copy)) - before

        wrong = [f"harmless, yet reported: {message}" for message in sorted(new_after(HARMLESS))]
        added = new_after(PLANTED)
        wrong += [f"planted, yet not found: {path}: {expected}" for path, _, expected in PLANTED
                  if not any(expected in message for message in added)]
    return wrong


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    if sys.argv[1:] == ["--self-test"]:
        wrong, good = self_test(root), f"all {len(PLANTED)} planted violations found"
    else:
        wrong, good = violations(pathlib.Path(sys.argv[1]) if sys.argv[1:] else root), "no violation"
    print("\n".join(wrong) if wrong else good)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
