// What pages do beyond links and forms: keys, and comparing on the search page.
// Without this file everything still works.

export const all = (selector, within = document) => [...within.querySelectorAll(selector)];
export const one = (selector, within = document) => within.querySelector(selector);

export function say(text, milliseconds = 6000) {
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

export const typing = (event) =>
  areKeysOff() || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), textarea, select");

/** Move a mark among items, and the focus with it. */
export function walker(items, mark, target) {
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

export function showKeys() {
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
  const form = one(".ask");
  const box = one("input[type=search]", form);
  let hits = listed();
  all("input[name=system]", form).forEach((chip) =>
    chip.addEventListener("change", () => {
      if (all("input[name=system]:checked", form).length > 4) {
        chip.checked = false;
        say("You can compare at most four systems.");
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
  if ("live" in form.dataset) live(form, box, () => (hits = listed()));
}

/** The hits of the page as it is now, with their boxes to tick. */
function listed() {
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
  return walker(all(".hit"), "here", (hit) => one("h3 a", hit));
}

/** Results while one types: the page of what stands in the box takes the place of what is shown. */
function live(form, box, shown) {
  let timer, request;
  let last = box.value.trim();
  const choosing = () => one("details[open]", form); // the form would move under the pointer
  const look = async () => {
    const query = box.value.trim();
    const others = all("input[name=system]:checked", form).some((chip) => !chip.defaultChecked); // may be slow
    if (query === last || query.length < 3 || others || choosing()) return;
    request = new AbortController();
    const there = `${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`;
    try {
      const answer = await fetch(there, { signal: request.signal, headers: { accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!answer.ok || !one(".hit[data-doc]", page)) return; // half a word finds nothing, and the list stays
      if (choosing() || one(".results").contains(document.activeElement)) return; // nothing is taken from under the reader
      all(".nowhere", page).forEach((note) => note.remove());
      for (const part of ["main h1", ".results", ".foot"]) one(part).replaceWith(one(part, page));
      last = query;
      document.title = page.title;
      history.replaceState(null, "", there);
      one("[role=status]", form).textContent = one(".columns header p").textContent.split(" · ")[0];
      all(".foot [data-keys]").forEach(keySwitch);
      shown();
    } catch {
      // another letter was typed, or the service is busy: Enter asks again
    }
  };
  const stop = () => (clearTimeout(timer), request?.abort());
  form.addEventListener("submit", stop);
  box.addEventListener("input", () => {
    stop();
    timer = setTimeout(look, 250);
  });
}

// --- a folder that is still being read -----------------------------------------------------------------

function watch(strip) {
  const look = async () => {
    try {
      const told = await (await fetch("/work", { headers: { accept: "application/json" } })).json();
      if (!told.sentence) {
        strip.replaceChildren("All files have been read. ", Object.assign(document.createElement("a"), { href: location.href, textContent: "Reload" }));
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
