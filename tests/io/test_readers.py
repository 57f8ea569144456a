"""The files that people have: their parts, titles and places; what cannot be read ends in a reason."""

import gzip
import json
import os
import zipfile
from email.message import EmailMessage

import pytest

from rankhouse.core.errors import BadData
from rankhouse.io.corpora import read_documents
from rankhouse.io.files import Skips
from rankhouse.io.readers import process
from rankhouse.io.readers.kinds import kind_at
from rankhouse.io.readers.process import ReadAhead, ReaderProcess, read_parts
from rankhouse.io.readers.web import html_part

WORDS = "the harbour master writes a report about ships and their grain for every day of the week "


def kind(path):
    stat = path.stat()
    return kind_at(path, stat.st_size, stat.st_mtime_ns)


def parts(path):
    return [part for part in read_parts(path, kind(path).reader) if part.text]


def shown(path):
    return [(part.title, part.place, part.key) for part in parts(path)]


def test_tables_are_cut_at_rows_and_keep_the_names_of_their_columns(tmp_path):
    path = tmp_path / "crew.csv"
    path.write_text("name;task\n" + "".join(f'"Anna; {row}";"{WORDS}\nmore"\n' for row in range(30)))
    found = parts(path)
    assert [part.place for part in found[:2]] == ["rows 2–9", "rows 10–17"]
    assert found[1].key == "row=10"
    assert all(part.text.startswith("name | task\nAnna; ") for part in found)
    (tmp_path / "numbers.tsv").write_text("1\t2\t3\n4\t5\t6\n")
    assert [(part.text, part.place) for part in parts(tmp_path / "numbers.tsv")] == [
        ("1 | 2 | 3\n4 | 5 | 6", "rows 1–2")
    ]


@pytest.mark.parametrize(
    ("name", "sign"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t"), ("a.csv.gz", ",")]
)
def test_tables_of_documents_have_a_document_a_row(tmp_path, name, sign):
    rows = [
        ("docid", "Title", "year", "text"),
        ("d1", "Locks", "1901", "A lock."),
        ("d2", "", "", "It lifts."),
    ]
    raw = "\n".join(sign.join(row) for row in rows).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    assert kind(path).name == "corpus"
    first, second = read_documents(path)
    assert (first.id, first.title, first.text, first.extra) == ("d1", "Locks", "A lock.", {"year": "1901"})
    assert (second.id, second.title, second.text) == ("d2", "", "It lifts.")


def test_faulty_rows_are_named_with_their_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,text\nd1,"two\nlines"\nd2,a,b\nd 3,x\nd4,y\n')
    skips = Skips(2)
    assert [document.id for document in read_documents(path, skips)] == ["d1", "d4"]
    assert [fault.line for fault in skips.seen] == [4, 5]
    path.write_text("name,age\nAnna,3\n")
    with pytest.raises(BadData, match="its first line has to name the columns"):
        list(read_documents(path))


def test_notebooks_have_cells(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Tides *of* the sea\n", "text"]},
        {"cell_type": "code", "source": "print(1)", "outputs": [{"text": "never"}]},
        {"cell_type": "markdown", "source": WORDS * 6},
        {"cell_type": "code", "source": ""},
        {"cell_type": "markdown", "source": "the end"},
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}))
    assert shown(path) == [
        ("Tides of the sea", "cells 1–3", "cell=1"),
        ("Tides of the sea", "cell 5", "cell=5"),
    ]
    assert "never" not in parts(path)[0].text
    path.write_text(json.dumps({"worksheets": [{"cells": [{"cell_type": "code", "input": "x = 1"}]}]}))
    assert parts(path)[0].text == "x = 1"
    path.write_text("{")
    with pytest.raises(BadData, match="not a notebook"):
        parts(path)


PAGE = r""".\" t
.ie n \{\
.ds Aq \(aq
.\}
.TH GRPCK 8
.SH "BEZEICHNUNG"
.IX Header "BEZEICHNUNG"
grpck \- pr\(:uft l\*(Aqordre
.SH "SYNOPSIS"
.HP \w'\fBgrpck\fR\ 'u
\fBgrpck\fR [opts]
.RS 4
.ie n \{\
\h'-04'\(bu\h'+03'\c
.\}
.el \{\
.sp -1
.IP \(bu 2.3
.\}
eins
.RE
.TP 8
.B \-h
Hilfe, gro\(ss
"""


def test_manual_pages_show_what_a_terminal_shows(tmp_path):
    """Measures, bullets twice and escapes were text; accents were lost; only English pages had a title."""
    (tmp_path / "grpck.8").write_text(PAGE)
    [part] = parts(tmp_path / "grpck.8")
    assert part.title == "grpck - prüft l'ordre"
    assert part.text == "SYNOPSIS\ngrpck [opts]\n• eins\n-h\nHilfe, groß"
    (tmp_path / "rules.5").write_text(".TH RULES 5\n.SH Rules\nKeep to the left.\n.SH More\nStop.\n")
    assert parts(tmp_path / "rules.5")[0].text == "Rules\nKeep to the left.\n\nMore\nStop."
    (tmp_path / "rules.6").write_text("Before.\n.SH Rules\nKeep to the left.\n")  # "Before." was lost
    assert parts(tmp_path / "rules.6")[0].text == "Rules\nKeep to the left.\nBefore."


FILLED = r""".TH TAR 1
.de URL
\\fI\\\\$2\\fP
..
.if \n[.g] \{\
.  mso www.tmac
.  am URL
.    ad l
.  .
.\}
.SH NAME
tar \- an archiving
utility
.SH OPTIONS
Use
.B \-\-list
or ask
.BR emacs (1),
at any time.
.br
Then this.
.TP
.BI \-f\ FILE
The
.I archive
 with a line of its own
.nf
a   b
c
.fi
.ft R
The end
here.
"""


def test_lines_of_manual_pages_are_filled(tmp_path):
    """Every word in another font was a line of its own; pages of Asciidoctor had no text at all."""
    (tmp_path / "tar.1").write_text(FILLED)
    [part] = parts(tmp_path / "tar.1")
    assert part.title == "tar - an archiving utility"
    assert part.text.split("\n") == [
        "OPTIONS", "Use --list or ask emacs(1), at any time.", "Then this.", "-f FILE", "The archive",
        "with a line of its own", "", "a   b", "c", "", "The end here.",
    ]  # fmt: skip


def test_manual_pages_keep_long_names_and_what_follows_macros(tmp_path):
    """Names beyond 400 characters were nowhere, nor what followed ".ig END"; "\\f[" took n²."""
    names = [f"name{number}" for number in range(100)]
    head = f".TH X 1\n.SH NAME\n{', '.join(names)} \\- many\n.SH D\n"
    macros = '.ig END\nhidden\n.END\n.de XX YY \\" why\nhidden\n.YY\n.de Z \\" why\nhidden\n..\nshown\n'
    (tmp_path / "x.1").write_text(head + macros)
    [part] = parts(tmp_path / "x.1")
    assert part.title.startswith("name0, name1")
    assert len(part.title) <= 400
    assert part.text == f"{', '.join(names)} - many\n\nD\nshown"
    for escape in ("\\f[", "\\m[", "\\[", "\\h'"):
        (tmp_path / "y.1").write_text(f".TH Y 1\n.SH NAME\n{escape * 100_000}\nword\n")
        assert parts(tmp_path / "y.1")[0].text.endswith("word")


MDOC = r""".Dd May 1
.Dt KEYS 1
.Sh NAME
.Nm keys
.Nd makes keys
.Sh SYNOPSIS
.Nm keys
.Op Fl a Ar rounds
.It Fl O Cm start-line Ns = Ns Ar line
See
.Xr ssh 1
for No and Do, set x\d1\u, C:\\dir and setup\.py.
"""


def test_macros_that_mdoc_calls_in_a_line_are_no_text(tmp_path):
    """ "Op Fl a Ar rounds" was text, and so were the moves up and down around an index."""
    (tmp_path / "keys.1ssl").write_text(MDOC)
    [part] = parts(tmp_path / "keys.1ssl")
    assert part.title == "keys - makes keys"
    lines = ("SYNOPSIS", "keys -a rounds", "-O start-line = line")
    assert part.text.split("\n") == [*lines, "See ssh(1) for No and Do, set x1, C:\\dir and setup.py."]
    for name in ("packed.7z", "film.3gp"):
        (tmp_path / name).write_bytes(b"7z\xbc\xaf no manual page")
        assert kind_at(tmp_path / name, 1, 1) is None


def test_overstruck_text_is_text(tmp_path):
    """Fortunes with one underlined word were left out as if they were no text."""
    (tmp_path / "sayings").write_text("You _\bm_\ba_\by do ___\b\b\bnot g\bgo.\n" + WORDS * 30)
    [part] = parts(tmp_path / "sayings")
    assert part.text.startswith("You may do not go.")
    ruled = "_" * 1_000_000  # from each of them on the rest was looked through: hours
    (tmp_path / "form.txt").write_text(f"Name: {ruled}\n" + WORDS * 30)
    assert ruled in parts(tmp_path / "form.txt")[0].text


def test_a_field_at_the_head_of_a_text_is_its_title(tmp_path):
    """Python's proposals were called "pep 0645"."""
    (tmp_path / "pep-0645.rst").write_text(
        "PEP: 645\nTitle: Writing optional\n       types\nPost-History:\n\nAbstract\n========\n\nSome text.\n"
    )
    [part] = parts(tmp_path / "pep-0645.rst")
    assert part.title == "Writing optional types"
    assert "PEP: 645" in part.text
    (tmp_path / "list.txt").write_text("Colour: red\nTitle: no\nand then prose that goes on.\n")
    assert parts(tmp_path / "list.txt")[0].title != "no"


@pytest.mark.parametrize(
    ("table", "lines"),
    [
        (  # what only lays out is left out
            (
                "tab(:) allbox;\nc s\nl lx.\nPort:Event\n_\nBergen:T{\nA pilot has come.\nT}\nOslo:none\n"
                ".TE\nMore: text.\n"
            ),
            ["Port | Event", "Bergen", "A pilot has come.", "Oslo | none", "More: text."],
        ),
        (  # the sign between cells is text in a block, as are rules; "see http | //a" was shown
            (
                'tab(:);\nl l. \\" two\nBergen:T{ \nSee http://a: now.\nT}\nT{\nb: c\nT}:T{\nd: e\nT}\n'
                "Oslo:none\n.TE\n"
            ),
            ["Bergen", "See http://a: now.", "b: c", "d: e", "Oslo | none"],
        ),
    ],
)
def test_a_table_of_a_manual_page_is_its_rows(table, lines, tmp_path):
    head = ".TH PORTS 7\n.SH NAME\nports \\- where ships land\n.SH EVENTS\n.TS\n"
    (tmp_path / "ports.7").write_text(head + table)
    [part] = parts(tmp_path / "ports.7")
    assert [line for line in part.text.split("\n") if line] == ["EVENTS", *lines]


def test_wrapped_prose_is_no_title(tmp_path):
    (tmp_path / "old_options.txt").write_text(
        "The following is a list of options that are deprecated. All\nof them will go away, some of them "
        "soon, others late.\n"
    )
    assert parts(tmp_path / "old_options.txt")[0].title == ""
    (tmp_path / "plan.txt").write_text("Where to go next year\nwe have not decided, but it will be warm.\n")
    assert parts(tmp_path / "plan.txt")[0].title == "Where to go next year"


MAIL = b"""From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>
To: anna@example.org
Subject: The
 harbour
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: text/plain; charset=nonsense

Dear Anna, caf\xe9
--x
Content-Type: application/pdf
Content-Disposition: attachment; filename="plan.pdf"

JVBERi0=
--x--
"""


def test_mail_has_subject_sender_text_and_the_names_of_attachments(tmp_path):
    (tmp_path / "a.eml").write_bytes(MAIL)
    [part] = parts(tmp_path / "a.eml")
    assert part.title == "The harbour"
    assert part.text.startswith("From: Jürgen <j@example.org>\nTo: anna@example.org\n\nDear Anna, caf")
    assert part.text.endswith("Attached: plan.pdf")
    box = b"From a@b Mon\n" + MAIL + b"\nFrom a@b Tue\nSubject: \n\n>From here on\nno From there\n"
    (tmp_path / "inbox.mbox").write_bytes(box)
    (tmp_path / "Inbox").write_bytes(gzip.compress(box))  # as mail programs name them
    assert kind(tmp_path / "Inbox").name == "mailbox"
    for name in ("inbox.mbox", "Inbox"):
        assert shown(tmp_path / name) == [
            ("The harbour", "message 1", "message=1"),
            ("Message 2", "message 2", "message=2"),
        ]
    assert parts(tmp_path / "Inbox")[1].text == "From here on\nno From there"


def test_mail_whose_plain_text_is_a_line_in_place_of_its_html_shows_that(tmp_path):
    for plain, shown_text in (
        ("Your program shows no HTML.", "Counter 6"),
        ("I come at nine. " * 30, "I come"),
    ):
        message = EmailMessage()
        message["Subject"] = "Visa"
        message.set_content(plain)
        page = "<p>Counter 6, and bring two photographs that are not older than half a year.</p>" * 3
        message.add_alternative(page, subtype="html")
        (tmp_path / "a.eml").write_bytes(bytes(message))
        assert parts(tmp_path / "a.eml")[0].text.startswith(shown_text)


def test_ligatures_of_pdf_are_letters(tmp_path, monkeypatch):
    pypdf = pytest.importorskip("pypdf")
    make_pdf(tmp_path / "a.pdf", [["x"]])
    monkeypatch.setattr(
        pypdf.PageObject, "extract_text", lambda _: "The \ufb02ame of an e\ufb03cient lamp, 10 m²"
    )
    assert parts(tmp_path / "a.pdf")[0].text == "The flame of an efficient lamp, 10 m²"


def test_files_without_an_ending_are_told_by_their_content(tmp_path):
    contents = {
        "README": (b"Read me\n", "text"), "notes": ("Käse".encode("cp1252") + b" and bread", "text"),
        "run": (b"#!/bin/sh\n", "code"), "page": (b"<!DOCTYPE html><p>x", "HTML"), "letter": (MAIL, "mail"),
        "paper": (b"%PDF-1.4", "PDF"), "core": (b"\x7fELF\0\0", None), "noise": (os.urandom(500), None),
        "README.Debian": (b"x", "text"), "photo.jpg": (b"x", None), "log.1": (b"one\ntwo", "text"),
        "MPL-2.0": (b"one\ntwo", "text"), "backup.001": (b"\0\1", None), "lib.so.1": (b"\x7fELF\0\0", None),
        "a.json": (b'{"id": 1, "text": "x"}\n', "corpus"), "b.json": (b"[1]", "code"),
        "a.xml": (b"<?xml?><DOC>", "corpus"), "b.xml": (b"<feed>", "XML"), "x.tsv": (b"d1\ttext", "corpus"),
    }  # fmt: skip
    for name, (content, _) in contents.items():
        (tmp_path / name).write_bytes(content)
    found = {name: getattr(kind(tmp_path / name), "name", None) for name in contents}
    assert found == {name: expected for name, (_, expected) in contents.items()}


SITE = """<html><head><title>Tides — The Sea Site</title></head><body>
<header><h1>The Sea Site</h1></header><nav>Home <a>About</a></nav>
<div class="sidebar x">Related</div>
<main><h1>Tides<a class="headerlink">¶</a></h1><p>The <b>mo</b>on pulls.</p><script>no</script>
<table><tr><td>1</td><td>2</td></tr></table></main><footer>© nobody</footer></body></html>"""


def test_what_stands_around_a_page_is_no_text(tmp_path):
    (tmp_path / "a.html").write_text(SITE)
    [part] = parts(tmp_path / "a.html")
    assert (part.title, part.text) == ("Tides", "Tides\nThe moon pulls.\n1 | 2")
    layout = "<table><tr><td><p>Menu</p><p>Home</p><td><table><tr><td>deep<td>er</table></table>"
    (tmp_path / "e.html").write_text(layout)
    assert parts(tmp_path / "e.html")[0].text == "Menu\nHome\ndeep | er"
    (tmp_path / "f.html").write_text("<table><tr><td>a<td>" * 3_000 + "deepest")
    assert parts(tmp_path / "f.html")[0].text.endswith("deepest")
    code = "<h1>Run</h1><p>Type</p><pre><code>if tide:\n    <b>sail</b>()\n</code></pre><p>and wait.</p>"
    (tmp_path / "d.html").write_text(f"{code}<pre> </pre>")  # the lines of code ran into each other
    assert parts(tmp_path / "d.html")[0].text == "Run\nType\n\n    if tide:\n        sail()\n\nand wait."
    lines = "<pre>a<br>b <script>c()</script><i hidden>d</i><div>e</div>\n<div>  f</div></pre>"
    rows = "<table><tr><td><td></tr><tr><td>g<td><td>h</tr></table>"
    (tmp_path / "g.html").write_text(f"<div><h1>Top</h1></div><main>{lines}{rows}</main>")
    [part] = parts(tmp_path / "g.html")  # was "ab c()de...", a line of "|" alone, and without a title
    assert (part.title, part.text) == ("Top", "    a\n    b\n    e\n      f\n\ng | | h")
    named = SITE.replace("<nav>", "<div><h1>The Sea Site</h1></div><nav>")
    (tmp_path / "c.html").write_text(named)  # a heading beside the text is the site's, not the page's
    assert parts(tmp_path / "c.html")[0].title == "Tides"
    (tmp_path / "b.html").write_text("<title>A &amp; B: c</title>" + "<div>" * 5_000 + "deep")
    assert parts(tmp_path / "b.html")[0].text == "deep"


def make_pdf(path, pages, title="", password=""):
    """Write a PDF by hand: a font, and a line of text at a height each."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    font = DictionaryObject({
        NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1"),
        NameObject("/BaseFont"): NameObject("/Helvetica"),
    })  # fmt: skip
    for lines in pages:
        page, content = writer.add_blank_page(600, 800), DecodedStreamObject()
        shown = " ".join(f"1 0 0 1 50 {700 - 20 * at} Tm ({line}) Tj" for at, line in enumerate(lines))
        content.set_data(f"BT /F1 12 Tf {shown} ET".encode())
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        page[NameObject("/Contents")] = content
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    writer.write(path)


def test_pdf_has_pages_without_their_running_lines(tmp_path):
    pages = [["ACME 2020", f"{WORDS} {'abcde'[page]}", f"- {page + 1} -"] for page in range(5)]
    make_pdf(tmp_path / "a.pdf", pages, "Harbour report")
    assert shown(tmp_path / "a.pdf")[1] == ("Harbour report", "page 2", "page=2")
    assert [part.text.split()[-1] for part in parts(tmp_path / "a.pdf")] == list("abcde")
    assert "ACME" not in parts(tmp_path / "a.pdf")[0].text
    for made in ("Microsoft Word - x.doc", "(anonymous)"):
        make_pdf(tmp_path / "hand_book.pdf", pages[:1], made)
        assert shown(tmp_path / "hand_book.pdf") == [("hand book", "page 1", "page=1")]
    make_pdf(tmp_path / "2104.08663v2.pdf", [["Ships and grain", WORDS]])
    assert parts(tmp_path / "2104.08663v2.pdf")[0].title == "Ships and grain"


def test_pdf_that_cannot_be_read_says_why(tmp_path):
    make_pdf(tmp_path / "locked.pdf", [["x"]], password="secret")
    make_pdf(tmp_path / "scan.pdf", [[]])
    (tmp_path / "cut.pdf").write_bytes((tmp_path / "scan.pdf").read_bytes()[:200])
    for name, reason in (("locked", "encrypted"), ("scan", "holds no text"), ("cut", "damaged")):
        with pytest.raises(BadData, match=reason):
            parts(tmp_path / f"{name}.pdf")


@pytest.mark.slow  # three libraries are imported
def test_office_files_have_sections_slides_and_sheets(tmp_path):
    import docx
    import openpyxl
    import pptx

    word = docx.Document()
    word.add_heading("Harbour plan", 0)
    word.add_paragraph("Money is short.")
    table = word.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b"
    word.save(tmp_path / "a.docx")
    [part] = parts(tmp_path / "a.docx")
    assert (part.title, part.text, part.place) == ("Harbour plan", "Harbour plan\nMoney is short.\na | b", "")
    for number in range(3):
        word.add_heading(f"Chapter {number}", 1)
        word.add_paragraph(WORDS * 30)
    word.save(tmp_path / "a.docx")
    assert [place for _, place, _ in shown(tmp_path / "a.docx")] == ["sections 1–2", "section 3", "section 4"]

    talk = pptx.Presentation()
    for number in range(2):
        slide = talk.slides.add_slide(talk.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = f"Topic {number}", WORDS
    slide.notes_slide.notes_text_frame.text = "say it slowly"
    talk.save(tmp_path / "a.pptx")
    assert shown(tmp_path / "a.pptx") == [
        ("Topic 0", "slide 1", "slide=1"),
        ("Topic 0: Topic 1", "slide 2", "slide=2"),
    ]
    assert parts(tmp_path / "a.pptx")[1].text.endswith("say it slowly")

    book = openpyxl.Workbook()
    book.active.title = "Costs"
    book.active.append(["name", "cost"])
    book.active.append(["Anna", 12.5])
    book.create_sheet("Empty")
    book.save(tmp_path / "cost_plan.xlsx")
    [part] = parts(tmp_path / "cost_plan.xlsx")
    assert (part.title, part.text) == ("cost plan: Costs", "name | cost\nAnna | 12.5")
    assert (part.place, part.key) == ('sheet "Costs", row 2', "sheet=1&row=2")


def make_epub(path, chapters, more=()):
    items = "".join(f'<item id="c{n}" href="text/c%20{n}.xhtml"/>' for n in range(len(chapters)))
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
        )
        archive.writestr(
            "OPS/book.opf",
            '<package xmlns="http://www.idpf.org/2007/opf"><metadata>'
            f'<dc:title xmlns:dc="http://purl.org/dc/elements/1.1/">The Sea</dc:title></metadata>'
            f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
        )
        for number, chapter in enumerate(chapters):
            archive.writestr(f"OPS/text/c {number}.xhtml", chapter)
        for name, content in more:
            archive.writestr(name, content)


def test_books_have_chapters(tmp_path):
    path = tmp_path / "a.epub"
    make_epub(path, ["<h1>Tides</h1><p>high</p>", "<p></p>", "<p>low</p>"])
    assert shown(path) == [
        ("The Sea: Tides", "chapter 1", "chapter=1"),
        ("The Sea", "chapter 2", "chapter=2"),
    ]
    locked = "".join(
        f'<e:CipherReference xmlns:e="http://www.w3.org/2001/04/xmlenc#" URI="OPS/text/c%20{n}.xhtml"/>'
        for n in range(1)
    )
    make_epub(path, ["<p>x"], [("META-INF/encryption.xml", f"<encryption>{locked}</encryption>")])
    with pytest.raises(BadData, match="protected against copying"):
        parts(path)


@pytest.mark.parametrize("ending", ["docx", "pptx", "xlsx", "epub"])
def test_archives_that_are_none_or_bombs_are_refused(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"\0" * (20 << 20))
    with pytest.raises(BadData, match="decompression bomb"):
        parts(path)
    path.write_bytes(b"PK\x03\x04nonsense")
    with pytest.raises(BadData, match="is damaged"):
        parts(path)
    path.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(600))
    with pytest.raises(BadData, match="is encrypted, or of the format before 2007"):
        parts(path)


def test_a_reader_that_hangs_dies_or_fills_the_memory_ends_alone(tmp_path, monkeypatch):
    """Bad readers stand under the name of a module; the process and what watches it are the real ones."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\n"
        "bad = types.ModuleType('rankhouse.io.readers.bad')\n"
        "def hang(path):\n    while True: pass\n"
        "def die(path):\n    import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n"
        "def fill(path):\n    held = [bytes(1 << 28) for _ in range(100)]\n"
        "def deep(path):\n    deep(path)\n"
        "def chat(path):\n    print('x' * 10000); raise OSError('odd')\n"
        "bad.hang, bad.die, bad.fill, bad.deep, bad.chat = hang, die, fill, deep, chat\n"
        "sys.modules['rankhouse.io.readers.bad'] = bad\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    (tmp_path / "good.txt").write_text("One\nand the rest")
    with ReaderProcess(seconds=1.5) as apart:
        for reader, reason, count in (
            ("hang", r"takes longer than 1\.5 s", 1),
            ("die", "ends the program that reads it", 2),
            ("fill", "takes more than 1,536 MB of memory", 3),
            ("deep", "nested too deep", 4),
            ("chat", r"is damaged.*OSError odd", 4),
        ):
            with pytest.raises(BadData, match=reason):
                list(apart.parts(tmp_path / "x", f"bad:{reader}"))
            assert apart.started == count
            apart.seconds = 120  # the start of a process counts, too
        assert next(apart.parts(tmp_path / "good.txt", "text:plain")).title == "One"
        assert apart.started == 4
    assert process.MEMORY < 2 << 30


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("pre-commit.sample", "#!/bin/sh\nexit 0\n", "code"),
        ("env.sample", "NAME=value\n", "text"),
        ("junk.sample", "\0\1\2", None),
        ("test.perl", "print 1;\n", "code"),
        ("rule.cocci", "@@ @@\n", "code"),
        ("ports.tab", "port\tcountry\nHull\tUK\n", "table"),
    ],
)
def test_more_endings_of_source_and_tables(tmp_path, name, content, kind):
    path = tmp_path / name
    path.write_text(content)
    found = kind_at(path, len(content), 7)
    assert (found and found.name) == kind


def test_several_processes_read_ahead_and_parts_come_in_the_order_of_the_files(tmp_path, monkeypatch):
    files = []
    for number in range(30):
        path = tmp_path / f"{number:02}.txt"
        path.write_text(f"Number {number}\n" + "word " * 50 if number != 7 else "ELF\0")
        files.append((path, "text:plain"))
    with ReaderProcess() as apart:
        alone = [parts_or_fault(apart.parts(*one)) for one in files]
    monkeypatch.setattr(process, "AHEAD", 300)  # a file and a part of another
    with ReadAhead(files, processes=3) as ahead:
        assert [parts_or_fault(ahead.parts(number)) for number in range(30)] == alone
        assert ahead._held == 0
    assert "zero bytes" in alone[7]
    assert sum(isinstance(one, list) for one in alone) == 29


def test_files_that_are_passed_over_do_not_hold_up_the_others_and_closing_ends_readers_at_work(tmp_path):
    table = tmp_path / "many.mbox"
    table.write_text("".join(f"From a\nSubject: {n}\n\nText {n}\n\n" for n in range(400)))
    (tmp_path / "last.txt").write_text("The last one")
    os.mkfifo(tmp_path / "pipe.txt")  # whose reader waits for ever
    files = [(table, "web:mailbox")] * 3
    files += [(tmp_path / "last.txt", "text:plain"), (tmp_path / "pipe.txt", "text:plain")]
    with ReadAhead(files, processes=2) as ahead:
        assert next(ahead.parts(0)).title == "0"
        assert [one.text for one in ahead.parts(3)] == ["The last one"]
        threads = ahead._threads
    assert not any(thread.is_alive() for thread in threads)


def parts_or_fault(parts):
    try:
        return list(parts)
    except BadData as error:
        return str(error)


@pytest.mark.parametrize(
    "around",
    ["<div>{}</div>", "<pre>{}</pre>", "<table><tr><td>1</td><td>{}</td></tr></table>", "<nav>{}</nav>"],
)
def test_the_main_part_of_a_page_is_read_the_same_wherever_it_stands(around):
    main = "<main><h1>Ships</h1><p>Pilots steer <b>ships</b>.</p><pre>a\n  b</pre></main>"
    alone = html_part(f"<body>{main}</body>").text
    assert alone == "Ships\nPilots steer ships.\n\n    a\n      b"
    text = html_part(f"<body><p>Around it.</p>{around.format(main)}</body>").text
    assert text == alone
