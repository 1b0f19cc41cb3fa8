"""Checks a page that `--emit=html` wrote: python check_page.py PAGE [TEXT...]

It must be well formed and complete in itself, name every place it links to,
have colours that can be read in light and dark, and show each TEXT.
"""

import html.parser
import re
import sys

VOID = {"meta"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.words = [], [], [], []
        self.labelled, self.style, self.headings = [], "", []

    def handle_decl(self, declaration):
        assert declaration.lower() == "doctype html", declaration

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), f"{tag}: repeated attribute"
        assert tag not in ("script", "link", "img", "iframe", "base"), tag
        values = dict(attributes)
        for name, value in attributes:
            assert value is not None, f"{tag} {name}: no value"
            assert not name.startswith("on") and name not in ("src", "style")
        if "id" in values:
            self.ids.append(values["id"])
        if "href" in values:
            assert values["href"].startswith("#"), values["href"]
            self.links.append(values["href"][1:])
        if "aria-labelledby" in values:
            self.labelled.append(values["aria-labelledby"])
        if "tabindex" in values:
            assert "aria-labelledby" in values and values["role"] == "region"
        if tag == "html":
            assert values.get("lang") == "en"
        if tag == "th":
            assert values["scope"] in ("row", "col")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.words.append(data)


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
             for c in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def check_colours(style):
    light, dark = style.split("@media (prefers-color-scheme: dark)", 1)
    for theme in (light, dark):
        colour = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", theme))
        fills = [f"s{i}" for i in range(6)] + ["page"]
        pairs = [(text, fill) for fill in fills for text in ("text", "quiet")]
        pairs += [("link", "page"), ("break", "break-fill")]
        for text, fill in pairs:
            found = contrast(colour[text], colour[fill])
            assert found >= 4.5, f"{text} on {fill}: {found:.2f}"


with open(sys.argv[1], encoding="utf-8") as file:
    text = file.read()
page = Page()
page.feed(text)
page.close()
assert not page.open, page.open
assert len(page.ids) == len(set(page.ids)), "an id stands twice"
for target in page.links + page.labelled:
    assert target in page.ids, f"nothing has the id {target}"
assert page.headings[0] == 1 and page.headings.count(1) == 1
assert all(b <= a + 1 for a, b in zip(page.headings, page.headings[1:]))
assert not re.search(r"https?:|url\(|@import", text), "a reference to outside"
check_colours(page.style)
shown = "".join(page.words)
for expected in sys.argv[2:]:
    assert expected in shown, f"'{expected}' is not shown"
print("the page is good")
