"""The plots of tests/bench/bench_waiting.py and bench_shared.py, as SVG: readable on light and on dark, and without a library."""

import math
from html import escape

WIDTH = 860
LEFT, RIGHT = 230, 150
STEP = 26
LINES_HEIGHT = 190

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .page { fill: #ffffff } .head { font-weight: 600 } .small { font-size: 11px; fill: #57606a }
  .grid { stroke: #d0d7de; stroke-width: 1 } .whisker { stroke: #24292f; stroke-width: 1.5; fill: none }
  .ours { fill: #0969da } .other { fill: #8c959f } .budget { stroke: #cf222e; stroke-dasharray: 5 4; fill: none }
  .line0 { stroke: #0969da; fill: none; stroke-width: 2 } .line1 { stroke: #bc4c00; fill: none; stroke-width: 2 }
  .dot0 { fill: #0969da } .dot1 { fill: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .page { fill: #0d1117 } .small { fill: #8d96a0 }
    .grid { stroke: #30363d } .whisker { stroke: #e6edf3 }
    .ours { fill: #4493f8 } .other { fill: #6e7681 } .budget { stroke: #f85149 }
    .line0 { stroke: #4493f8 } .line1 { stroke: #f0883e } .dot0 { fill: #4493f8 } .dot1 { fill: #f0883e }
  }
"""


def text(at_x, at_y, words, style="", anchor="start"):
    return '<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>' % (
        at_x, at_y, style, anchor, escape(words))


def line(from_x, from_y, to_x, to_y, style):
    return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>' % (from_x, from_y, to_x, to_y, style)


def milliseconds(value):
    return "%.3g ms" % value if value < 1000 else "%.3g s" % (value / 1000)


def dots(top, rows):
    """Hand-off by peer: a dot at p50, a whisker to p95, milliseconds on a log axis. rows: label, p50, p95, ours."""
    low = 10 ** math.floor(math.log10(min(row[1] for row in rows)))
    high = 10 ** math.ceil(math.log10(max(row[2] for row in rows)))
    scale = (WIDTH - LEFT - RIGHT) / math.log10(high / low)

    def place(value):
        return LEFT + scale * math.log10(max(value, low) / low)

    foot = top + 34 + STEP * len(rows)
    out = [text(16, top + 6, "Hand-off, end of one command to start of the next: dot at p50, whisker to p95, log axis", "head")]
    decade = low
    while decade <= high * 1.001:
        out += [line(place(decade), top + 18, place(decade), foot - 8, "grid"),
                text(place(decade), foot + 8, milliseconds(decade), "small", "middle")]
        decade *= 10
    for number, (label, middle, tail, ours) in enumerate(rows):
        centre = top + 31 + STEP * number
        out += [text(LEFT - 10, centre + 4, label, "", "end"),
                line(place(middle), centre, place(tail), centre, "whisker"),
                line(place(tail), centre - 5, place(tail), centre + 5, "whisker"),
                '<circle cx="%.1f" cy="%.1f" r="5" class="%s"/>' % (place(middle), centre, "ours" if ours else "other"),
                text(place(tail) + 8, centre + 4, "%s, p95 %s" % (milliseconds(middle), milliseconds(tail)), "small")]
    return out, foot + 24


def curves(top, series, budget):
    """Redis calls for one hand-off by waiters. series: label -> [(waiters, calls)]."""
    points = [point for line_points in series.values() for point in line_points]
    few, many = min(point[0] for point in points), max(point[0] for point in points)
    most = max(max(point[1] for point in points), budget) * 1.2
    foot = top + LINES_HEIGHT

    def place(waiters, calls):
        share = math.log10(waiters / few) / math.log10(many / few) if many > few else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT), foot - 20 - max(calls, 0) / most * (LINES_HEIGHT - 44)

    out = [text(16, top + 6, "Redis calls for one hand-off, by the number of waiters (less those at rest)", "head")]
    for value in (0, budget):
        height = place(few, value)[1]
        out += [line(LEFT, height, WIDTH - RIGHT, height, "budget" if value else "grid"),
                text(WIDTH - RIGHT + 10, height + 4, "budget %d" % value if value else "0", "small")]
    for waiters in sorted({point[0] for point in points}):
        out.append(text(place(waiters, 0)[0], foot, "{:,} waiters".format(waiters), "small", "middle"))
    for number, (label, line_points) in enumerate(series.items()):
        spots = [place(*point) for point in line_points]
        out.append('<polyline points="%s" class="line%d"/>' % (
            " ".join("%.1f,%.1f" % spot for spot in spots), number % 2))
        out += ['<circle cx="%.1f" cy="%.1f" r="3.5" class="dot%d"/>' % (*spot, number % 2) for spot in spots]
        out += ['<rect x="16" y="%d" width="12" height="12" class="dot%d"/>' % (top + 36 + 22 * number, number % 2),
                text(34, top + 47 + 22 * number, label)]
    return out, foot + 20


def sizes(top, title, series):
    """Times by size, both on log axes. series: label -> [(size, values)], the time first."""
    points = [(max(size, 1), max(values[0], 1)) for one in series.values() for size, values in one]
    most_size, (low, high) = max(size for size, _ in points), (
        10 ** edge(math.log10(pick(time for _, time in points))) for edge, pick in ((math.floor, min), (math.ceil, max)))
    height = 240
    foot = top + height

    def place(size, time):
        return (LEFT + math.log10(max(size, 1)) / math.log10(max(most_size, 10)) * (WIDTH - LEFT - RIGHT),
                foot - 20 - math.log10(max(time, 1) / low) / math.log10(max(high / low, 10)) * (height - 44))

    out = [text(16, top + 6, title + ", by the number of holders, waiters or names; log axes", "head")]
    decade = low
    while decade <= high:
        level = place(1, decade)[1]
        out += [line(LEFT, level, WIDTH - RIGHT, level, "grid"), text(LEFT - 8, level + 4, "%g" % decade, "small", "end")]
        decade *= 10
    for size in sorted({size for size, _ in points}):
        out.append(text(place(size, 1)[0], foot, "{:,}".format(size), "small", "middle"))
    for number, (label, one) in enumerate(series.items()):
        spots = [place(size, values[0]) for size, values in one]
        colour = "hsl(%d 65%% 48%%)" % (number * 360 // len(series))
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>' % (
            " ".join("%.1f,%.1f" % spot for spot in spots), colour))
        out += ['<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>' % (*spot, colour) for spot in spots]
        out += ['<circle cx="16" cy="%.1f" r="5" fill="%s"/>' % (top + 36 + 20 * number, colour),
                text(28, top + 40 + 20 * number, label)]
    return out, foot + 20


def framed(title, summary, out, height):
    frame = '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" ' \
            'aria-labelledby="title desc">' % (WIDTH, height, WIDTH, height)
    return "\n".join([
        frame, '<title id="title">%s</title>' % escape(title), '<desc id="desc">%s</desc>' % escape(summary),
        "<style>%s</style>" % STYLE, '<rect class="page" width="100%" height="100%" rx="6"/>',
    ] + out + ["</svg>", ""])


def draw_sizes(plots):
    """plots: title and series of sizes()."""
    out, top, summary = [], 28, []
    for title, series in plots:
        more, top = sizes(top, title, series)
        out, top = out + more, top + 30
        summary += ["%s: %s: %s." % (title, label, ", ".join("%.0f with %d" % (values[0], size) for size, values in one))
                    for label, one in series.items()]
    return framed("What sharers, slots and waiters cost", " ".join(summary), out, top - 20)


def draw(handoff, calls, budget, summary):
    """The picture of the data; summary is its text for readers who cannot see it."""
    out, top = [], 28
    if handoff:
        more, top = dots(top, handoff)
        out, top = out + more, top + 22
    if calls:
        more, top = curves(top, calls, budget)
        out += more
    return framed("What waiting costs: hand-off times and Redis calls", summary, out, top)
