#!/usr/bin/env python3
"""The toolbar of the page fits on one line, and its legend too, in the widest of the fonts that page.css names."""
import html.parser
import os
import re

FOLDER = os.path.join("tools", "graph")
SCREEN = 1280
ARROW = 24  # the width of a select's arrow, at most

# Advance widths of ' ' to '~' in thousandths of the font size: DejaVu Sans, and its bold.
PLAIN = [int(n) for n in """
318 401 460 838 636 950 780 275 390 390 500 838 318 361 318 337 636 636 636 636 636 636 636 636 636 636 337 337 838 838
838 531 1000 684 686 698 770 632 575 775 752 295 295 656 557 863 748 787 603 787 695 635 611 732 684 989 685 611 685 390
337 390 838 500 500 613 635 550 635 615 352 635 634 278 278 579 278 974 634 612 635 635 411 521 392 634 592 818 592 592
525 636 337 636 838""".split()]
BOLD = 1.3  # a bold letter is wider than the plain one by at most this factor


def width(text, size):
    """The width of a text in pixels. A character outside of ASCII is as wide as the widest one."""
    return sum(PLAIN[ord(c) - 32] if 32 <= ord(c) < 127 else max(PLAIN) for c in text) * size / 1000


def rules(css):
    """The declarations of each selector, in the order of the file, with the declarations in @media."""
    found = {}
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.S)
    css = re.sub(r"@media[^{]*\{(.*?\})\s*\}", r"\1", css, flags=re.S)
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        for selector in selectors.split(","):
            pairs = (d.split(":", 1) for d in body.split(";") if ":" in d)
            found.setdefault(selector.strip(), {}).update({k.strip(): v.strip() for k, v in pairs})
    return found


class Header(html.parser.HTMLParser):
    """The texts of labels, options and buttons of the header, and the tags of its children."""

    def __init__(self, text):
        super().__init__()
        self.path, self.children, self.labels, self.buttons, self.selects = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if self.path == ["header"]:
            self.children.append(dict(attrs).get("id") or dict(attrs).get("class") or tag)
        if tag == "select":
            self.selects.append([])
        elif tag == "button":
            self.buttons.append("")
        if tag != "input" and (tag == "header" or self.path):
            self.path.append(tag)

    def handle_endtag(self, tag):
        if self.path and self.path[-1] == tag:
            self.path.pop()

    def handle_data(self, data):
        inside, text = self.path[-1] if self.path else "", data.strip()
        if inside == "label" and text:
            self.labels.append(text + " ")
        elif inside == "option":
            self.selects[-1].append(text)
        elif inside == "button":
            self.buttons[-1] += text


def pixels(rule, name, at=0):
    return float(re.findall(r"[\d.]+(?=px)|\b0\b", rule[name])[at])


def names(js, constant):
    """The texts of a list of page's constants."""
    return re.findall(r"'([^']*)'", re.search(rf"const {constant} = \[(.*?)\]", js, re.S)[1])


def read(name):
    with open(os.path.join(FOLDER, name)) as file:
        return file.read()


def toolbar(page, css):
    """The least width of the toolbar on one line."""
    header, row = Header(page), css["header"]
    control = css["button"]  # and of select and input
    size, frame = pixels(control, "font-size"), 2 * (pixels(control, "padding", 1) + pixels(control, "border"))
    assert len(header.selects) == len(header.labels) == 2, header.selects
    total = 2 * pixels(row, "padding", 1) + pixels(row, "gap", 1) * (len(header.children) - 1)
    for label, options in zip(header.labels, header.selects):
        widest = max((width(o, size) for o in options), default=pixels(css["#graph"], "max-width"))
        total += width(label, pixels(css["header label"], "font-size")) + widest + frame + ARROW
    total += sum(BOLD * width(b, size) + frame for b in header.buttons)
    total += pixels(css[".buttons"], "gap") * (len(header.buttons) - 1)
    # These shrink down to their least width.
    shrinking = {"title": "h1", "note": "#note", "search-form": "#search-form"}
    for name, selector in shrinking.items():
        assert name in header.children, header.children
        total += pixels(css[selector], "min-width")
    assert len(header.children) == len(shrinking) + len(header.labels) + 1, header.children
    return total


def legend(head, entries, css):
    """The width of a legend on one line."""
    size, item, lists = pixels(css["#legend"], "font-size"), css["#legend i"], css["#legend ul"]
    swatch = pixels(item, "width") + pixels(item, "margin-right")
    return (2 * pixels(css["#legend"], "padding", 1) + width(head, size) + pixels(css["#legend"], "gap", 1)
            + sum(swatch + width(e, size) for e in entries) + pixels(lists, "gap", 1) * (len(entries) - 1))


def main():
    style = read("page.css")
    css = rules(style)
    one_line = float(re.search(r"@media \(min-width: (\d+)px\) \{\s*header \{ flex-wrap: nowrap", style)[1])
    assert one_line <= SCREEN, one_line
    got = toolbar(read("page.html"), css)
    assert got <= one_line, f"the toolbar needs {got:.0f} pixels; need {one_line:.0f} or less, its width on one line"
    data, colors = read("layout_data.js"), read("page_colors.js")
    heads = re.findall(r"head = '([^']*)'", colors)
    assert len(heads) >= 2, heads
    for constant in ("CLASSES", "PHASES"):
        got = legend(max(heads, key=len), names(data, constant), css)
        assert got <= SCREEN, f"the legend of {constant} needs {got:.0f} pixels; need {SCREEN} or less"
    # Other legends are longer on some graphs; they may have several lines.
    assert css["#legend"]["flex-wrap"] == css["#legend ul"]["flex-wrap"] == "wrap"


main()
