"""What the handbook's pictures are drawn with: scripts/pictures and scripts/table_pictures.py."""

from xml.sax.saxutils import escape

STYLE = """<style>
:root{--paper:#fff;--ink:#1b1f24;--soft:#59636e;--line:#c3cad2;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--on:#fff}
@media (prefers-color-scheme:dark){:root{--paper:#14171a;--ink:#e8ebee;--soft:#a0a9b3;--line:#46505a;--c0:#4ea9e3;--c1:#f08a45;--c2:#35c49b;--on:#14171a}}
svg{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
text{fill:var(--ink)} .soft{fill:var(--soft)} .strong{font-weight:600} .paper{fill:var(--paper)} .on{fill:var(--on);font-weight:600}
.c0{fill:var(--c0);stroke:var(--c0)} .c1{fill:var(--c1);stroke:var(--c1)} .c2{fill:var(--c2);stroke:var(--c2)}
.queued{fill-opacity:.14;stroke-width:1.2} .done{fill:var(--line)} .rule{stroke:var(--line)}
</style>"""


class Drawing:
    """The parts of a picture, and how far down they go."""

    def __init__(self, width, label):
        self.width, self.label, self.parts, self.y = width, label, [], 12

    def text(self, x, y, words, kind="", anchor="start"):
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>')

    def box(self, x, y, width, height, kind):
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"/>')

    def dot(self, x, y, kind):
        self.parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:g}" r="4"/>')

    def line(self, x, y, to_x, to_y, kind="rule"):
        self.parts.append(f'<path class="{kind}" d="M{x:.1f} {y:g}L{to_x:.1f} {to_y:g}"/>')

    def svg(self):
        size = f'viewBox="0 0 {self.width} {self.y + 8}" width="{self.width}" height="{self.y + 8}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(self.label)}">'
        paper = f'<rect class="paper" width="{self.width}" height="{self.y + 8}" rx="10"/>'
        return "\n".join([head, STYLE, paper, *self.parts, "</svg>"]) + "\n"
