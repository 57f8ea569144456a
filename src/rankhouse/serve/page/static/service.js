// What the page does beyond links and forms: keys, judging without a reload, picks, a curve that grows.
// Without this file everything still works.

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const one = (selector, within = document) => within.querySelector(selector);

function say(text, milliseconds = 4000) {
  const place = one(".said");
  if (!place) return;
  place.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (place.textContent = ""), milliseconds);
}

const store = (() => {
  try {
    return window.localStorage;
  } catch {
    return { getItem: () => null, setItem: () => {} }; // a browser that keeps nothing
  }
})();
const areKeysOff = () => store.getItem("rankhouse-keys") === "off";

const typing = (event) =>
  areKeysOff() || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), textarea, select");

/** Move a mark among items, and the focus with it. */
function walker(items, mark, target) {
  let at = -1;
  let has = false; // after leave() no item is marked, and the next step goes on from where that was
  const go = (to) => {
    if (!items.length) return;
    items[at]?.classList.remove(mark);
    has = true;
    at = Math.max(0, Math.min(items.length - 1, to));
    items[at].classList.add(mark);
    target(items[at])?.focus({ preventScroll: true });
    items[at].scrollIntoView({ block: "nearest" });
  };
  items.forEach((item, i) =>
    item.addEventListener("focusin", () => {
      items[at]?.classList.remove(mark);
      at = i;
      has = true;
      item.classList.add(mark);
    }),
  );
  const leave = () => {
    items[at]?.classList.remove(mark);
    has = false;
  };
  return { go, leave, by: (step) => go(at < 0 ? 0 : at + step), get item() { return has ? items[at] : undefined; } };
}

// --- keys ----------------------------------------------------------------------------------------------

function showKeys() {
  const keys = one(".keys");
  keys.open = !keys.open;
  if (keys.open) one("summary", keys).focus();
}

function keySwitch(button) {
  const tell = () => (button.textContent = areKeysOff() ? "Turn keys on" : "Turn keys off");
  button.hidden = false;
  button.addEventListener("click", () => {
    store.setItem("rankhouse-keys", areKeysOff() ? "on" : "off");
    tell();
  });
  tell();
}

// --- search --------------------------------------------------------------------------------------------

function search() {
  const box = one(".ask input[type=search]");
  const hits = walker(all(".hit"), "here", (hit) => one("h3 a", hit));
  const picks = all(".hit input[name=doc]");
  const compare = one(".picks button");
  const count = () => {
    const docs = new Set(picks.filter((box) => box.checked).map((box) => box.value));
    if (compare) compare.textContent = docs.size > 1 ? `Compare ${docs.size}` : "Compare";
  };
  picks.forEach((pick) =>
    pick.addEventListener("change", () => {
      const system = one("h2", pick.closest("section"));
      const choice = one(".picks select");
      if (pick.checked && system && choice) choice.value = system.textContent;
      count();
    }),
  );
  count();
  all(".ask input[name=system]").forEach((chip) =>
    chip.addEventListener("change", () => {
      if (all(".ask input[name=system]:checked").length > 4) {
        chip.checked = false;
        say("Four systems stand side by side at most.");
      }
    }),
  );
  const same = (event, on) => {
    const hit = event.target.closest?.(".hit");
    if (hit) all(".hit").filter((h) => h.dataset.doc === hit.dataset.doc).forEach((h) => h.classList.toggle("same", on));
  };
  for (const name of ["pointerover", "focusin"]) document.addEventListener(name, (event) => same(event, true));
  for (const name of ["pointerout", "focusout"]) document.addEventListener(name, (event) => same(event, false));
  document.addEventListener("keydown", (event) => {
    if (typing(event)) return;
    const act = {
      "/": () => (box.focus(), box.select()),
      j: () => hits.by(1),
      k: () => hits.by(-1),
      w: () => hits.item && one("a.why", hits.item)?.click(),
      x: () => hits.item && one("input[name=doc]", hits.item)?.click(),
      "?": showKeys,
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
}

// --- judging -------------------------------------------------------------------------------------------

function judging(form) {
  const cards = all(".card", form);
  const walk = walker(cards, "current", (card) => card);
  const undo = one("button[name=undo]", form);
  let last = Promise.resolve();

  const grade = (card) => one('[aria-pressed="true"]', card)?.dataset.grade;
  const show = (card, value) => {
    all("[data-grade]", card).forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.grade === String(value))));
    const done = cards.filter((c) => grade(c) !== undefined).length;
    one("[data-done]", form).textContent = done;
    one("progress", form).value = done;
  };

  // Of each document that was judged here, the version that this page knows; of others, the one it came with.
  const versions = new Map();

  async function send(button) {
    const body = new URLSearchParams(new FormData(form, button));
    const doc = button.closest(".card")?.dataset.doc;
    if (versions.has(doc)) body.set("version", versions.get(doc));
    const answer = await fetch(form.action, { method: "POST", body, headers: { accept: "application/json" } });
    const told = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(told.message || `the service answered ${answer.status}`);
    if (told.doc) versions.set(told.doc, told.version);
    return told;
  }

  // One after another: what is written must be in the order in which it was said.
  const submit = (button, then, otherwise) => {
    last = last.then(async () => {
      try {
        then(await send(button));
      } catch (error) {
        otherwise?.();
        say(`Not kept: ${error.message}`, 30000);
      }
    });
  };

  const sent = new Set(); // cards whose grade is under way

  const judge = (card, button) => {
    sent.add(card);
    submit(
      button,
      (told) => {
        sent.delete(card);
        show(card, told.grade);
        undo.disabled = false;
        if (!cards.some((c) => grade(c) === undefined)) say("All are judged.");
      },
      () => sent.delete(card),
    );
    const isOpen = (c) => !sent.has(c) && grade(c) === undefined;
    const at = cards.indexOf(card);
    const next = cards.findIndex((c, i) => i > at && isOpen(c));
    const open = next < 0 ? cards.findIndex(isOpen) : next; // what was left out above
    if (open >= 0) walk.go(open);
    else walk.leave(); // a further key must not grade the last document again
  };

  form.addEventListener("submit", (event) => {
    const button = event.submitter;
    event.preventDefault();
    if (!button || button.disabled) return;
    if (button.name === "undo") {
      submit(button, (told) => {
        undo.disabled = !told.can_undo;
        const at = cards.findIndex((c) => c.dataset.doc === told.doc);
        if (at < 0) return say(told.doc ? `Undone in “${told.query}”.` : "There is nothing to undo.");
        show(cards[at], told.grade);
        walk.go(at);
        say("Undone.");
      });
    } else {
      judge(button.closest(".card"), button);
    }
  });

  document.addEventListener("keydown", (event) => {
    if (typing(event)) return;
    const card = walk.item;
    if (event.repeat && /^\d$/.test(event.key)) return; // a key that is held down grades one document
    const act = {
      j: () => walk.by(1),
      k: () => walk.by(-1),
      u: () => undo.click(),
      o: () => card && one("details summary", card)?.click(),
      n: () => one("a[data-next]")?.click(),
      "?": showKeys,
    }[event.key];
    const button = card && !act && /^\d$/.test(event.key) ? one(`[data-grade="${event.key}"]`, card) : null;
    if (act || button) event.preventDefault();
    if (act) act();
    else if (button && !button.disabled) judge(card, button);
  });

  const first = cards.findIndex((c) => grade(c) === undefined);
  if (first >= 0 && !location.hash) walk.go(first);
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
      all("details", place).forEach((d, i) => (d.open = open[i] ?? false));
    } catch {
      say("The service does not answer; trying again.");
    }
    setTimeout(look, 2000);
  };
  setTimeout(look, 1500);
}

// --- a folder that is still being read -----------------------------------------------------------------

function watch(strip) {
  const look = async () => {
    try {
      const told = await (await fetch("/work", { headers: { accept: "application/json" } })).json();
      if (!told.sentence) {
        strip.replaceChildren("All files are read. ", Object.assign(document.createElement("a"), { href: location.href, textContent: "Show what there is now" }));
        return;
      }
      one("span", strip).textContent = told.sentence;
      one("progress", strip).value = told.share;
    } catch {
      // the service ended, or is busy: the next look tells
    }
    setTimeout(look, 2000);
  };
  setTimeout(look, 2000);
}

all("[data-keys]").forEach(keySwitch);
all(".work").forEach(watch);
if (one(".ask")) search();
const form = one("#judging");
if (form) judging(form);
const live = one("#live[data-live]");
if (live) follow(live);
