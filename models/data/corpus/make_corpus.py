#!/usr/bin/env python3
"""Builds shakespeare.txt.gz from the unpacked source package `shakespeare` 0.6:  make_corpus.py SHAKESPEARE_FOLDER

The same input gives the same bytes. README.md gives the source of the package and the changes of the text.
"""
import gzip
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Words of Project Gutenberg heads and tails; the text must not contain them.
FORBIDDEN = re.compile(r"gutenberg|copyright|\be-?text\b|https?:|www\.|public domain|small print", re.IGNORECASE)


def clean(text):
    """One work: plain line ends, no head or tail, no marks of the transcription, at most two blank lines in a row."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    text = re.sub(r"\A.*?\*\*\* ?START OF[^\n]*\n", "", text, flags=re.DOTALL)
    text = re.sub(r"\*\*\* ?END OF.*\Z", "", text, flags=re.DOTALL)
    text = text.replace("&egrave;", "e").replace("\t", "    ")
    lines = [line.rstrip() for line in text.split("\n")]
    lines = [line for line in lines if not re.fullmatch(r"@+|_{10,}", line)]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip("\n") + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    # Modern spelling only: the *_gut_f.txt files are the First Folio's versions of the same plays.
    files = sorted(pathlib.Path(sys.argv[1], "shksprdata", "texts").glob("*_gut.txt"))
    if len(files) != 42:
        sys.exit(f"make_corpus: found {len(files)} works below {sys.argv[1]}; need the 42 of shakespeare 0.6")
    text = "\n\n\n".join(clean(f.read_text(encoding="ascii")) for f in files)
    for number, line in enumerate(text.split("\n"), 1):
        if FORBIDDEN.search(line):
            sys.exit(f"make_corpus: line {number} looks like a licence notice: {line}")
    out = HERE / "shakespeare.txt.gz"
    with open(out, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as f:
        f.write(text.encode("ascii"))
    print(f"{out.name}: {len(files)} works, {len(text)} bytes of text, {out.stat().st_size} bytes compressed")


if __name__ == "__main__":
    main()
