"""What every HTML page of this project has to be, and contents that try to break it."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = (
    "</td></table><script>alert(1)</script><img src=x onerror=alert(2)>"
    "&amp;'\"{{ 7 * 7 }}{% raw %}\x00\x1b[31m"
)
VOID = {"meta", "br", "hr", "img", "link", "input"}
LOADS = {"script", "link", "img", "iframe", "object", "embed", "video", "audio", "source", "form", "base"}


class Page(HTMLParser):
    """A strict reader: every tag is closed in order, nothing is loaded, no id stands twice."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        self.wrong += [f"<{tag}> is not closed" for tag in self.open]
        self.wrong += [
            f"no {link}" for link in self.links if link.startswith("#") and link[1:] not in self.ids
        ]
        self.wrong += [f"id {one} twice" for one in set(self.ids) if self.ids.count(one) > 1]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.wrong += [f"<{tag}> loads something"] if tag in LOADS else []
        self.wrong += [
            f"{name} on <{tag}>" for name in names if name.startswith("on") or name in ("src", "srcset")
        ]
        self.ids += [names["id"] or ""] if "id" in names else []
        if tag == "a":
            self.links.append(names.get("href") or "")
            self.wrong += (
                [] if (names.get("href") or "").startswith("#") else [f"a link to {names.get('href')}"]
            )
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
