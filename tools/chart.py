"""Line and bar charts as SVG text, without any library."""
import html
import math

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT, LEGEND = 760, 300, 70, 40, 44, 20, 190
COLOURS = ["#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac"]


def linear_ticks(lo, hi, count=6):
    """About `count` multiples of 1, 2 or 5 times a power of ten."""
    raw = max(hi - lo, 1e-12) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    return [i * step for i in range(math.ceil(lo / step - 1e-9), math.floor(hi / step + 1e-9) + 1)]


def log_ticks(lo, hi, base):
    """Powers of `base` from lo to hi. If there are few of them, also 2 and 5 times powers of ten."""
    first, last = math.floor(math.log(lo, base)), math.ceil(math.log(hi, base))
    steps = (1, 2, 5) if base == 10 and last - first <= 4 else (1,)
    ticks = [float(base) ** i * step for i in range(first, last + 1) for step in steps]
    return [t for t in ticks if lo * (1 - 1e-9) <= t <= hi * (1 + 1e-9)]


class Axis:
    """Maps values to positions between two ends of the drawing. base: of a logarithmic scale, or None."""

    def __init__(self, lo, hi, begin, end, base=None):
        self.lo, self.hi, self.begin, self.end, self.base = lo, hi, begin, end, base
        if base and lo <= 0:
            raise ValueError("a logarithmic axis starts above 0")

    def __call__(self, v):
        at = (lambda t: math.log(t)) if self.base else (lambda t: t)
        share = (at(v) - at(self.lo)) / max(at(self.hi) - at(self.lo), 1e-12)
        return self.begin + (self.end - self.begin) * share

    def ticks(self):
        return log_ticks(self.lo, self.hi, self.base) if self.base else linear_ticks(self.lo, self.hi)


class Chart:
    """One panel: lines or dots over numbers, or groups of stacked bars over names.

    x, y: (lowest, highest) of the axis, or (lowest, highest, base of its logarithm).
    """

    def __init__(self, title, x, y, x_label, y_label="", top=0, legend=LEGEND, names=None):
        self.top, self.right = top, WIDTH - RIGHT - legend
        low, high = top + HEIGHT - BOTTOM, top + TOP
        self.x, self.y = Axis(*x[:2], LEFT, self.right, *x[2:]), Axis(*y[:2], low, high, *y[2:])
        self.rows = 0
        self.parts = [self.text(LEFT, top + 24, title, "font-weight=\"bold\"")]
        for t in self.y.ticks():
            at = self.y(t)
            self.parts.append(f'<line x1="{LEFT}" x2="{self.right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
            self.parts.append(self.text(LEFT - 8, at + 4, f"{t:g}", 'text-anchor="end"'))
        ticks = enumerate(names) if names else ((t, f"{t:g}") for t in self.x.ticks())
        for t, name in ticks:
            self.parts.append(self.text(self.x(t), low + 18, name, 'text-anchor="middle"'))
        self.parts.append(f'<line x1="{LEFT}" x2="{self.right}" y1="{low}" y2="{low}" stroke="#444"/>'
                          f'<line x1="{LEFT}" x2="{LEFT}" y1="{low}" y2="{high}" stroke="#444"/>')
        self.parts.append(self.text((LEFT + self.right) / 2, low + 36, x_label, 'text-anchor="middle"'))
        if y_label:
            self.parts.append(self.text(14, (low + high) / 2, y_label, f'text-anchor="middle" transform="rotate(-90 14 '
                                        f'{(low + high) / 2})"'))

    @staticmethod
    def text(x, y, text, attributes=""):
        return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{html.escape(str(text))}</text>'

    def legend(self, mark, label):
        """`mark(x, y)` is the SVG of the mark to the left of the label."""
        x, y = self.right + 12, self.top + TOP + 6 + 16 * self.rows
        self.rows += 1
        self.parts.append(mark(x, y) + self.text(x + 24, y + 4, label))

    def line(self, points, label, colour, dashed=False):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
        self.legend(lambda x, y: f'<line x1="{x}" x2="{x + 18}" y1="{y}" y2="{y}" stroke="{colour}" '
                                 f'stroke-width="3"{dash}/>', label)

    def dots(self, points, label, colour):
        for x, y in points:
            self.parts.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4" fill="{colour}"/>')
        self.legend(lambda x, y: f'<circle cx="{x + 9}" cy="{y}" r="4" fill="{colour}"/>', label)

    def bars(self, at, parts, width):
        """A stacked bar centred at x = at; each part is (value, colour)."""
        base = 0
        for value, colour in parts:
            y0, y1 = self.y(base), self.y(base + value)
            x0, x1 = self.x(at - width / 2), self.x(at + width / 2)
            self.parts.append(f'<rect x="{x0:.1f}" y="{y1:.1f}" width="{x1 - x0:.1f}" height="{y0 - y1:.1f}" '
                              f'fill="{colour}"/>')
            base += value

    def swatch(self, label, colour):
        self.legend(lambda x, y: f'<rect x="{x + 2}" y="{y - 6}" width="14" height="12" fill="{colour}"/>', label)


def write_svg(path, charts):
    """Writes panels one below the other; each has its own `top`, a multiple of HEIGHT."""
    height = HEIGHT * len(charts)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
                f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
                '<rect width="100%" height="100%" fill="white"/>'
                + "".join("".join(c.parts) for c in charts) + "</svg>\n")
