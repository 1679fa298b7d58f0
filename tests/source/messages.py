#!/usr/bin/env python3
"""messages.py FILE.c...: prints each text in these sources that a person may read, as FILE:LINE: TEXT.

Adjacent string literals are one text. What has no blank or no word of three letters is a key, a format or a command."""

import re
import sys

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\\n])*"|\#\s*include[^\n]*""", re.S)

for path in sys.argv[1:]:
    source = open(path, encoding="utf-8").read()
    texts, end = [], None
    for token in TOKEN.finditer(source):
        text = token.group()
        if not text.startswith('"'):
            continue
        between = source[end:token.start()] if end is not None else "no literal before"
        if re.fullmatch(r"\s*(PRI\w+)?\s*", between):
            texts[-1][1] += between.strip() + text[1:-1]
        else:
            texts.append([source.count("\n", 0, token.start()) + 1, text[1:-1]])
        end = token.end()
    for line, text in texts:
        if " " in text and re.search("[a-z]{3}", text):
            print(f"{path}:{line}: {text}")
