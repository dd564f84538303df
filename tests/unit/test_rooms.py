"""The picture and the page of the rooms are true to the code."""

import rooms


def test_the_picture_is_what_the_code_is() -> None:
    assert rooms.PICTURE.read_text("utf-8") == rooms.draw(), "python3 docs/hooks/rooms.py draws it again"


def test_every_room_has_a_sentence_and_its_place_on_the_page() -> None:
    page = (rooms.ROOT / "docs/source/design/rooms.md").read_text("utf-8")
    there = {path.parent.name for path in rooms.PACKAGE.glob("*/__init__.py")}
    assert there == set(rooms.rooms())
    assert [room for room in rooms.rooms() if not rooms.sentence(room) or f"`{room}`" not in page] == []
