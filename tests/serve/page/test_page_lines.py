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
