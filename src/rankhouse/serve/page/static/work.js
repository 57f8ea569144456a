// What the other pages do: judging without a reload, charts that show their values, a training that grows.
// Without this file everything still works.

import { all, one, say, showKeys, typing, walker } from "./page.js";

// --- judging -------------------------------------------------------------------------------------------

function judging(list) {
  const cards = all(".card", list);
  const walk = walker(cards, "current", (card) => card);
  const undo = one("button[name=undo]");
  const end = one("#end");
  let last = Promise.resolve();

  const grade = (card) => one('[aria-pressed="true"]', card)?.dataset.grade;
  const isOpen = (card) => grade(card) === undefined;
  const show = (card, value) => {
    all("[data-grade]", card).forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.grade === String(value))));
    const open = cards.filter(isOpen).length;
    one("[data-done]").textContent = cards.length - open;
    one(".progress progress").value = cards.length - open;
    for (const count of all("[data-count]", end)) {
      count.textContent = cards.filter((c) => grade(c) === count.dataset.count).length;
    }
    const title = one("h2", end);
    title.textContent = open ? `${open} of ${cards.length} ${title.dataset.open}` : title.dataset.all;
  };
  // What comes into sight is in the middle of the window; of a long document the beginning is.
  const look = (item) => {
    const isLong = item.offsetHeight > window.innerHeight * 0.7;
    item.scrollIntoView({ block: isLong ? "start" : "center" });
  };
  const go = (at) => {
    walk.go(at);
    look(cards[Math.max(0, Math.min(cards.length - 1, at))]);
  };
  const finish = () => {
    walk.leave(); // a further key must not grade the last document again
    end.focus({ preventScroll: true });
    look(end);
  };
  // The next one without a grade, from the end on those that were left out above; nothing but the end after all.
  const goOn = (card, left) => {
    const at = cards.indexOf(card);
    const next = cards.findIndex((c, i) => i > at && left(c));
    const open = next < 0 ? cards.findIndex(left) : next;
    if (open >= 0) go(open);
    else finish();
  };

  // Of each document that was judged here, the version that this page knows; of others, the one it came with.
  const versions = new Map();
  const twins = window.BroadcastChannel ? new BroadcastChannel("rankhouse-judging") : null;
  const told = (kind, more) => twins?.postMessage({ ...more, kind, judge: list.dataset.judge, query: list.dataset.query });

  async function send(button) {
    const form = button.form;
    const body = new URLSearchParams(new FormData(form, button));
    const doc = button.closest(".card")?.dataset.doc;
    if (versions.has(doc)) body.set("version", versions.get(doc));
    const answer = await fetch(form.action, { method: "POST", body, headers: { accept: "application/json" } });
    const content = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(content.message || `the service answered ${answer.status}`);
    if (content.doc) {
      versions.set(content.doc, content.version);
      told("said", content);
    }
    return content;
  }

  // One after another: what is written must be in the order in which it was said.
  const submit = (button, then, otherwise) => {
    last = last.then(async () => {
      try {
        then(await send(button));
      } catch (error) {
        otherwise?.();
        say(`Not saved: ${error.message}`, 30000);
      }
    });
  };

  const sent = new Set(); // cards whose grade is under way

  const judge = (card, button) => {
    sent.add(card);
    submit(
      button,
      (content) => {
        sent.delete(card);
        show(card, content.grade);
        undo.disabled = false;
        if (!cards.some(isOpen)) say("All documents are judged.");
      },
      () => sent.delete(card),
    );
    goOn(card, (c) => !sent.has(c) && isOpen(c));
  };

  const comment = (card, text) => {
    one("input[name=comment]", card).value = text;
    one("details.comment", card).open ||= text !== "";
  };

  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (!button?.closest(".task")) return;
    event.preventDefault();
    if (button.disabled) return;
    const card = button.closest(".card");
    if (button.name === "undo") {
      submit(button, (content) => {
        undo.disabled = !content.can_undo;
        const at = cards.findIndex((c) => c.dataset.doc === content.doc);
        if (at < 0) return say(content.doc ? `Undone for “${content.query}”.` : "There is nothing to undo.");
        show(cards[at], content.grade);
        comment(cards[at], content.comment);
        go(at);
        say("Undone.");
      });
    } else if (button.name === "on") {
      submit(button, () => {
        undo.disabled = false;
        say("Comment saved.");
      });
      card.focus();
    } else {
      judge(card, button);
    }
  });

  list.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target.name === "comment") event.target.closest(".card").focus();
  });
  list.addEventListener("click", (event) => {
    if (!event.target.matches(".skip-it")) return;
    event.preventDefault();
    skip(event.target.closest(".card"));
  });
  const skip = (card) => {
    const next = cards.findIndex((c, i) => i > cards.indexOf(card) && isOpen(c));
    if (next >= 0) go(next);
    else finish();
  };

  document.addEventListener("keydown", (event) => {
    if (typing(event)) return;
    const card = walk.item;
    if (event.repeat && /^\d$/.test(event.key)) return; // a key that is held down grades one document
    const act = {
      j: () => (walk.by(1), look(walk.item)),
      k: () => (walk.by(-1), look(walk.item)),
      s: () => card && skip(card),
      c: () => {
        if (!card) return;
        one("details.comment", card).open = true;
        one("input[name=comment]", card).focus();
      },
      u: () => undo.click(),
      o: () => card && one(".whole summary", card)?.click(),
      n: () => one("a[data-next]")?.click(),
      "?": showKeys,
    }[event.key];
    const button = card && !act && /^\d$/.test(event.key) ? one(`[data-grade="${event.key}"]`, card) : null;
    if (act || button) event.preventDefault();
    if (act) act();
    else if (button && !button.disabled) judge(card, button);
  });

  // Another window of the same judge and question: said in both, and each shows what was graded in the other.
  if (twins) {
    twins.onmessage = ({ data }) => {
      if (data.judge !== list.dataset.judge || data.query !== list.dataset.query) return;
      one(".twin").hidden = data.kind === "closed";
      if (data.kind === "opened") told("also");
      if (data.kind === "closed") told("opened"); // a third window answers
      const card = data.kind === "said" ? cards.find((c) => c.dataset.doc === data.doc) : null;
      if (!card) return;
      versions.set(data.doc, data.version);
      show(card, data.grade);
      comment(card, data.comment);
    };
    told("opened");
    window.addEventListener("pagehide", () => told("closed"));
    window.addEventListener("pageshow", (event) => event.persisted && told("opened"));
  }
  all(".whole", list).forEach((whole) =>
    whole.addEventListener("toggle", () => whole.open && one(".here", whole)?.scrollIntoView({ block: "center" })),
  );

  if (window.matchMedia("(max-width: 63.99rem)").matches) one(".keys").open = false;
  const first = cards.findIndex(isOpen);
  if (location.hash) return;
  if (first >= 0) go(first);
  else if (cards.length) finish();
}

// --- training ------------------------------------------------------------------------------------------

function follow(place) {
  const look = async () => {
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      const fresh = one("#live", new DOMParser().parseFromString(await answer.text(), "text/html"));
      if (answer.ok && !fresh?.dataset.live) return location.reload(); // it is there: show all of it
      if (!answer.ok || !fresh) throw new Error();
      const open = all("details", place).map((d) => d.open);
      place.replaceChildren(...fresh.childNodes);
      all("[data-chart]", place).forEach(chart);
      all("details", place).forEach((d, i) => (d.open = open[i] ?? false));
    } catch {
      say("The service is not responding; trying again.");
    }
    setTimeout(look, 2000);
  };
  setTimeout(look, 1500);
}

// --- charts: what the lines say where the pointer is, or the arrow keys ------------------------------------

function chart(figure) {
  const { x, at, lines } = JSON.parse(figure.dataset.chart);
  const svg = one("svg", figure);
  const caption = one("figcaption", figure);
  const before = caption.textContent;
  const cursor = document.createElementNS(svg.namespaceURI, "line");
  for (const [name, value] of Object.entries({ class: "cursor", y1: 14, y2: 214, visibility: "hidden" })) {
    cursor.setAttribute(name, value);
  }
  svg.append(cursor);
  let place = -1;
  const show = (to) => {
    place = Math.max(0, Math.min(x.length - 1, to));
    cursor.setAttribute("x1", x[place]);
    cursor.setAttribute("x2", x[place]);
    cursor.setAttribute("visibility", "visible");
    const values = lines.filter(([, texts]) => texts[place] !== null).map(([name, texts]) => `${name} ${texts[place]}`);
    caption.textContent = [at[place], ...values].join(" · ");
  };
  const hide = () => {
    place = -1;
    cursor.setAttribute("visibility", "hidden");
    caption.textContent = before;
  };
  if (!x.length) return;
  caption.setAttribute("aria-live", "polite");
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const wanted = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    show(x.reduce((best, one, i) => (Math.abs(one - wanted) < Math.abs(x[best] - wanted) ? i : best), 0));
  });
  svg.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(place + step);
  });
}

// --- lists: a choice filters at once ------------------------------------------------------------------------

function filter(form) {
  all("select", form).forEach((select) => select.addEventListener("change", () => form.requestSubmit()));
}

all("[data-chart]").forEach(chart);
all("form.filter").forEach(filter);
const pool = one("#judging");
if (pool) judging(pool);
const live = one("#live[data-live]");
if (live) follow(live);
