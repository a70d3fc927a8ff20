"use strict";
// What every page can do beyond being read: sort and filter tables, points that tell of themselves, contents that say where
// one is. Without this script a page is whole.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const spoken = (text) => text.toLowerCase();

  // Tables ------------------------------------------------------------------------------------------------------------
  const valueOf = (cell) => {
    const text = (cell.dataset.value ?? cell.textContent).trim();
    const digits = cell.matches("td.num") && text.replace(/,/g, "").match(/[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?/i);
    return { text, number: digits ? Number(digits[0]) : null, empty: text === "" || text === "–" };
  };
  const collator = new Intl.Collator("en", { numeric: true });
  const compare = (one, other, sign) => {
    if (one.empty || other.empty) return Number(one.empty) - Number(other.empty); // what is not known comes last, either way
    const order = one.number !== null && other.number !== null ? one.number - other.number : collator.compare(one.text, other.text);
    return sign * order;
  };
  for (const table of all(".scroll > table:not(.fixed)")) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 2) continue;
    const first = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      if (!button.textContent.trim()) button.setAttribute("aria-label", head.dataset.label ?? `Column ${column + 1}`);
      button.addEventListener("click", () => {
        const turn = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort") ?? "none"];
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        if (turn !== "none") head.setAttribute("aria-sort", turn);
        const sign = turn === "descending" ? -1 : 1;
        const keyed = first.map((row) => [valueOf(row.cells[column]), row]);
        if (turn !== "none") keyed.sort((one, other) => compare(one[0], other[0], sign));
        body.append(...keyed.map(([, row]) => row));
      });
      head.append(button);
    });
  }
  for (const input of all("input[data-filter]")) {
    const kind = input.dataset.filter;
    const rows = all(input.dataset.rows ?? `table[data-table="${kind}"] > tbody > tr`);
    const status = document.querySelector(`[data-count="${kind}"]`);
    const names = rows.map((row, place) => row.dataset.search ?? String(place)); // a method may have a row in several tables
    const total = new Set(names).size;
    const number = (value) => value.toLocaleString("en");
    input.addEventListener("input", () => {
      const parts = spoken(input.value).split(",").map((part) => part.trim()).filter(Boolean);
      const shows = (text) => !parts.length || parts.some((part) => spoken(text).includes(part));
      for (const row of rows) row.hidden = !shows(row.dataset.search ?? row.textContent);
      const folds = parts.length ? rows.filter((row) => !row.hidden).map((row) => row.closest("details")) : [];
      for (const fold of new Set(folds)) if (fold) fold.open = true;
      if (!status) return;
      const kept = new Set(names.filter((_, place) => !rows[place].hidden)).size;
      status.textContent = parts.length ? `${number(kept)} of ${number(total)} ${status.dataset.word}${total === 1 ? "" : "s"}` : "";
    });
  }

  // Plots -------------------------------------------------------------------------------------------------------------
  const tip = document.getElementById("tip");
  let shown = null;
  const showTip = (mark) => {
    shown = mark;
    tip.textContent = mark.dataset.description;
    tip.hidden = false;
    const box = mark.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - tip.offsetWidth / 2), document.documentElement.clientWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 8;
    tip.style.setProperty("left", `${left}px`);
    tip.style.setProperty("top", `${above > 0 ? above : box.bottom + 8}px`);
  };
  const hideTip = () => { tip.hidden = true; shown = null; };
  for (const mark of all("svg .mark")) {
    all("title", mark).forEach((title) => title.remove()); // the tooltip tells it
    mark.addEventListener("pointerenter", () => showTip(mark));
    mark.addEventListener("pointerleave", hideTip);
    mark.addEventListener("focus", () => showTip(mark));
    mark.addEventListener("blur", hideTip);
  }
  document.addEventListener("scroll", () => { if (shown) showTip(shown); }, { passive: true }); // to reach a point is to scroll
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  // What needs the script shows itself, and the contents say where one is ------------------------------------------------
  for (const element of all(".live")) element.hidden = false;
  const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      for (const [id, link] of links) {
        if (id === target.id) {
          link.setAttribute("aria-current", "true");
          link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.offsetLeft - 12;
        } else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-70px 0px -75% 0px" });
  for (const id of links.keys()) seen.observe(document.getElementById(id));
})();
