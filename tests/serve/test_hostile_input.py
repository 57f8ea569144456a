"""What an enemy sends to the page and to its forms: refused or harmless, never a failure."""

import csv
import io
from urllib.parse import quote, urlencode

import pytest

import rankhouse as rh
from rankhouse.serve.host.service import open_service
from rankhouse.serve.host.settings import ServeOptions

FORMULAS = ("=cmd|'/C_calc'!A0", "+1+1", "-2+3", "@SUM(1)")


@pytest.fixture
def client(running, tmp_path):
    rows = [{"id": one, "title": one, "text": f"{one} ships"} for one in (*FORMULAS, "plain")]
    rh.Index.build([*rows, {"id": "tab", "title": "\t=1+1", "text": "ships"}], str(tmp_path / "index"))
    options = ServeOptions({"ships": tmp_path / "index"}, port=0, judgements=tmp_path / "judged.txt")
    with running(open_service(options)) as asked:
        asked.wait(200)
        yield asked


def test_a_spreadsheet_computes_nothing_of_an_export(client):
    client.post("/api/judgements", {"query": '=HYPERLINK("ships")', "document": "plain", "grade": 1})
    for path in ("/?query=ships&system=bm25&export=csv", "/queries?export=csv"):
        rows = list(csv.reader(io.StringIO(client.get(path).body.decode())))
        texts = [cell for row in rows[1:] for cell in row if not cell.replace(".", "").isdigit()]
        assert texts
        assert [cell for cell in texts if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []


@pytest.mark.parametrize("mark", ["² 1 plain", "1 ² plain", "٣ 1 plain", "-1 1 plain", "1 1", "1 1 nothing"])
def test_what_is_no_mark_is_refused(client, mark):
    form = urlencode({"query": "ships", "judge": "ann", "mark": mark})
    answer = client.ask("POST", "/judge", form.encode())
    assert answer.status == 422
    assert client.get(f"/api/judgements?query={quote('ships')}").json["grades"] == {}
