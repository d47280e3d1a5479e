"""Finds runs of lines that occur twice in the source: equal lines, or lines equal up to names and numbers."""
import collections
import re

RUN = 6  # lines, without comments, includes and lines of braces
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\d[\w.\']*|\S')
SKIPPED = re.compile(r"(//|#|\*|using |namespace |import |from |load\(|\"\"\")")
KEYWORDS = frozenset(
    "auto bool break case char class const constexpr continue def do double elif else enum explicit extern float for "
    "if in inline int int64_t not operator private public return sizeof static std string struct switch template this "
    "throw typename using virtual void while".split())


def lines_of(text):
    """The lines of code, as (number, tokens)."""
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if SKIPPED.match(line):
            continue
        tokens = TOKEN.findall(re.sub(r"\s//.*", "", line))
        if any(t[0].isalnum() or t[0] in "_\"'" for t in tokens):
            out.append((number, tokens))
    return out


def shape_of(tokens):
    """The tokens without names and literals."""
    return tuple(t if t in KEYWORDS or not (t[0].isalnum() or t[0] in "_\"'") else "." for t in tokens)


def renamed(window):
    """The window without literals, its names numbered by first use: equal for windows that differ by a renaming."""
    names, out = {}, []
    for tokens in window:
        out.append(tuple(
            t if t in KEYWORDS else
            "0" if t[0].isdigit() or t[0] in "\"'" else
            names.setdefault(t, len(names)) if t[0].isalpha() or t[0] == "_" else t for t in tokens))
    return tuple(out)


def find(files):
    """`files`: {path: text}. Returns [(exact, lines, (path, first line), (path, first line))], the longest first.

    A run of a table, most of whose rows have one shape, is no duplicate.
    """
    counted = {path: lines_of(text) for path, text in files.items()}
    windows = collections.defaultdict(list)
    for path in sorted(counted):
        lines = counted[path]
        shapes = [shape_of(tokens) for _, tokens in lines]
        for i in range(len(lines) - RUN + 1):
            if len(set(shapes[i:i + RUN])) >= RUN - 1:
                windows[hash(renamed([tokens for _, tokens in lines[i:i + RUN]]))].append((path, i))
    matches = set()
    for places in windows.values():
        for n, a in enumerate(places):
            matches.update((a, b) for b in places[n + 1:] if a[0] != b[0] or b[1] - a[1] >= RUN)

    def after(match, by):
        return tuple((path, i + by) for path, i in match)

    found = []
    for match in matches:
        if after(match, -1) in matches:
            continue
        count = 0
        while after(match, count) in matches:
            count += 1
        (path_a, a), (path_b, b) = match
        same = best = 0
        for n in range(count + RUN - 1):
            same = same + 1 if counted[path_a][a + n][1] == counted[path_b][b + n][1] else 0
            best = max(best, same)
        found.append((best >= RUN, count + RUN - 1, (path_a, counted[path_a][a][0]), (path_b, counted[path_b][b][0])))
    return sorted(found, key=lambda d: (-d[1], d[2], d[3]))
