"""Line breaks in "why": where the document has them, whatever of it a ranker reads."""

import pytest

import rankhouse as rh
from rankhouse.explanation.report import content_of
from rankhouse.serve.page.why import with_lines

HEADED = "8. DRD: a thread error detector"
TEXT = f"{HEADED}\nTo use this tool, say so.\n\n8.1. Overview\nDRD is a tool\nfor threads."


@pytest.mark.parametrize("title", [HEADED, "Manual", ""])
@pytest.mark.parametrize("text", [TEXT, TEXT.removeprefix(f"{HEADED}\n")])
def test_words_begin_new_lines_where_the_document_does(tmp_path, title, text):
    index = rh.Index.build([{"id": "drd", "title": title, "text": text}], tmp_path / "index")
    answer = rh.system("bm25").explain("which thread detector?", "drd", index=index)
    documents = {one.id: one for one in index.documents.fetch(["drd"])}
    [(_, view), *_] = content_of(answer.answer)["sections"]
    [side] = with_lines(view, documents).sides
    read = " ".join(word.text for word in side.texts[0].words)
    assert read.replace(" \n", "\n") == "\n\n".join(filter(None, [title, text]))


def test_a_long_text_opens_where_it_matters_and_is_there_to_its_end(tmp_path):
    """It was thousands of lines, and after 5,000 words it was cut off."""
    words = [f"weather{number}" for number in range(9_000)]
    words[700], words[8_000] = "lantern", "Lantern."
    index = rh.Index.build([{"id": "log", "title": "", "text": " ".join(words)}], tmp_path / "index")
    answer = rh.system("bm25").explain("who hung the lantern?", "log", index=index)
    [(_, view), *_] = content_of(answer.answer)["sections"]
    [text] = view.sides[0].texts
    stretches = text.stretches()
    assert [word.text for _, stretch in stretches for word in stretch] == words
    assert text.more == 0
    shown = [word.text for is_folded, stretch in stretches if not is_folded for word in stretch]
    assert {"lantern", "Lantern."} <= {*shown}
    assert len(shown) < 500
    assert [is_folded for is_folded, _ in stretches] == [True, False, True, False, True]
    assert not text._replace(words=text.words[:400]).stretches()[0][0]
    nowhere = text._replace(words=text.words[1_000:7_000]).stretches()
    assert [is_folded for is_folded, _ in nowhere] == [False, True]  # its beginning, where nothing matters
