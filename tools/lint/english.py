#!/usr/bin/env python3
"""english.py [--list] [PATH...]: counts phrases that CONTRIBUTING.md replaces, in comments, messages and documents.

Only the rules that a pattern can find are counted; the numbers are those of CONTRIBUTING.md, "Language".
"""
import io
import re
import subprocess
import sys
import tokenize

RULES = {
    "1 those of, that of, the one that": r"\b(?:those|that) of\b|\b(?:those|the ones?) (?:that|which)\b",
    "4 what as a noun": r"(?<![\w.`'\"/])what(?= [a-z/]|$)(?! if\b)",
    "5 so many, as many": r"\b(?:so|as) many\b",
    "2 begins with Of, By, With, In which": r"(?:^|[.:;!?] )(?:Of|By|With|In which) ",
    "2 a comment begins with of, by, with, in which": r"^(?:of|by|with|in which) ",
}
COLONS = "9 two colons in a sentence"
TWO = re.compile(r"[^\s:]: .*[^\s:]:(?= |$)")
# Quotations, labels of cases and names before errors: "0: all; 1: none", "matmul: ...".
LABEL = re.compile(r"^[^*`]*\.\*\*|`[^`]*`|\"[^\"]*\"|\*\*.*?\*\*|"
                   r"(?:^|(?<=[;,] )|(?<=\())\S+: |(?<=; )(?:\S+ ){1,2}\S+: ")
QUESTION = re.compile(r"\bwhat [^.]*\?", re.I)
C = (".h", ".cc", ".inc", ".js", ".cu")
HASH = (".py", ".sh", ".bzl", "BUILD", "WORKSPACE", "bazelw", ".bazelrc", "run")
TEXTS = C + HASH + (".md",)
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def pieces(path, text):
    """Yields (line number, text, kind, start) of each comment line, text literal and line of a document."""
    if path.endswith(".md"):
        fence = False
        for n, line in enumerate(text.splitlines(), 1):
            fence ^= line.lstrip().startswith("```")
            if not fence and not line.startswith("    "):
                for cell in line.strip("| ").split(" | ") if line[:1] == "|" else [line]:
                    yield n, cell.lstrip("#*->| "), "text", re.match(r" *(?:[-*#|>]|\d+\. )", line)
    elif path.endswith(C):
        for match in TOKEN.finditer(text):
            token, first = match.group(), text.count("\n", 0, match.start()) + 1
            if token[0] == "'" or (token[0] in '"R' and " " not in token):
                continue
            start = text[text.rfind("\n", 0, match.start()) + 1:match.start()].strip()
            for n, line in enumerate(token.splitlines(), first):
                start = start or re.match(r"/+(?:  | *- )", line)
                words = line.strip().lstrip("/*< ")
                # A quotation at the end of a comment keeps its mark.
                yield (n, words, token[:3], start) if token[0] == "/" else (n, words.strip('"'), token[0], start)
                start = ""
    elif path.endswith(".py"):
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
                    for n, line in enumerate(token.string.splitlines(), token.start[0]):
                        kind = "/" if token.type == tokenize.COMMENT else '"'
                        yield n, line.strip().lstrip("#\"' "), kind, kind == "/" and token.line.lstrip()[0] != "#"
        except (tokenize.TokenError, IndentationError):
            return
    elif path.endswith(HASH):
        for n, line in enumerate(text.splitlines(), 1):
            if "#" in line:
                code, line = line.split("#", 1)
                yield n, line.lstrip("# "), "/", code.strip()


def find(sources):
    """{rule: ["path:line: text"]} for {path: text}."""
    found = {rule: [] for rule in (*RULES, COLONS)}
    for path, text in sorted(sources.items()):
        # The rules themselves quote the phrases.
        if path.endswith(("lint/english.py", "CONTRIBUTING.md")):
            continue
        last, before, sentence = (0, ""), "", ""
        for n, line, kind, start in pieces(path, text):
            # A line that goes on a sentence of the line before does not begin one.
            first = start or last != (n - 1, kind)
            begins = first or not before or before[-1] in ".:;!?|"
            last, before = (n, kind), line.rstrip()
            for rule, pattern in RULES.items():
                for match in re.finditer(pattern, line, 0 if rule[0] == "2" else re.I):
                    if rule[0] == "4" and QUESTION.search(line):
                        continue
                    lower = match[0][0].islower()
                    if rule[0] == "2" and not match.start() and not (kind[0] == "/" and first if lower else begins):
                        continue
                    found[rule].append(f"{path}:{n}: {line.strip()[:140]}")
            # A sentence goes over lines. It is counted at its second colon; literals of tests and raw literals are not.
            old = "" if first or not before else sentence
            for part in re.split(r"(?<=[.!?]) ", f"{old} {before}".strip()):
                counts = TWO.search(LABEL.sub("", part)) and not TWO.search(LABEL.sub("", old))
                if counts and kind != "R" and not (kind == '"' and "test" in path):
                    found[COLONS].append(f"{path}:{n}: {part[:200]}")
                sentence = old = "" if part[-1:] in ".!?" else part
    return found


def report(sources, listed):
    for rule, places in find(sources).items():
        print(f"rule {rule}: {len(places)}")
        if listed:
            print("".join(f"  {place}\n" for place in places), end="")


def main():
    args = [a for a in sys.argv[1:] if a != "--list"]
    listed = subprocess.run(["git", "ls-files", "--", *args], check=True, stdout=subprocess.PIPE, text=True)
    sources = {}
    for path in listed.stdout.split("\n"):
        if path.endswith(TEXTS):
            with open(path, encoding="utf-8", errors="replace") as file:
                sources[path] = file.read()
    report(sources, "--list" in sys.argv)


if __name__ == "__main__":
    main()
