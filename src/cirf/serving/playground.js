"use strict";

// Everything that comes from a model or a person is put on the page as text, never as HTML.

const find = (id) => document.getElementById(id);
const make = (tag, text = "", style = "") => {
  const made = document.createElement(tag);
  made.textContent = text;
  if (style) made.className = style;
  return made;
};
const seconds = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(2)} s`);

let models = [];
let key = "";
let running = null;

class Column {
  constructor(model) {
    this.model = model;
    this.root = find("column").content.firstElementChild.cloneNode(true);
    this.root.querySelector("h2").textContent = model.id;
    this.reasoning = this.content = "";
    this.drawn = 0;
    find("columns").append(this.root);
  }

  part(selector) {
    return this.root.querySelector(selector);
  }

  shown(selector) {
    const part = this.part(selector);
    part.hidden = false;
    return part;
  }

  fact(text) {
    this.part(".facts").textContent = text;
  }

  fail(text) {
    this.shown(".fault").textContent = text;
    this.fact("");
  }

  add(delta) {
    this.reasoning += delta.reasoning ?? "";
    this.content += delta.content ?? "";
    if (delta.reasoning) this.trace();
    if (!delta.content) return;
    if (this.model.cirf.functional) this.shown(".final").querySelector("output").textContent = this.content;
    else this.shown(".prose").textContent = this.content;
  }

  trace() {
    // A trace reads <cirf_016>48<cirf_023>72: each functional token with its result; text before the first has no token.
    const pieces = this.reasoning.split(/<cirf_(\d{3,})>/);
    const steps = pieces[0] ? [[null, pieces[0]]] : [];
    for (let place = 1; place < pieces.length; place += 2) steps.push([pieces[place], pieces[place + 1]]);
    const box = this.shown(".trace");
    steps.forEach(([code, result], place) => {
      const step = box.children[place] ?? box.appendChild(make("span", "", "step"));
      step.replaceChildren();
      if (code !== null) step.append(this.chip(Number(code)));
      if (result) step.append(make("span", result, "result"));
    });
  }

  chip(code) {
    const chip = make("span", "", "chip");
    chip.style.setProperty("--h", String(Math.round(code * 137.508) % 360));
    chip.append(make("b", String(code)));
    const label = this.model.cirf.labels[code];
    if (label) chip.append(` ${label}`);
    return chip;
  }

  finish(choice, own) {
    const { answer } = choice.cirf;
    const cut = choice.finish_reason === "length";
    const apart = this.model.cirf.functional || answer !== this.content; // prose without a mark is all answer, and shown already
    if (apart && (answer || !cut)) this.shown(".final").querySelector("output").textContent = answer || "no answer was written";
    this.cut = cut;
    this.own = own;
  }

  total(usage) {
    const speed = `${usage.completion_tokens} tokens in ${seconds(this.own.seconds)}`;
    const waited = this.own.waited_seconds > 0.1 ? `, after waiting ${seconds(this.own.waited_seconds)}` : "";
    this.fact(speed + waited + (this.cut ? "; truncated at the cap" : ""));
  }
}

const headers = () => ({ "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) });

async function fault(response) {
  const body = await response.json().catch(() => null);
  const after = response.headers.get("Retry-After");
  return (body?.error?.message ?? `the server answered ${response.status}`) + (after ? ` (in ${after} s)` : "");
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    for (const part of parts) if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
  }
}

function asked(model) {
  const options = find("options").value.split("\n").map((line) => line.trim()).filter(Boolean);
  const lettered = options.map((text, place) => `${String.fromCharCode(65 + place)}. ${text}`);
  const body = {
    model: model.id,
    messages: [{ role: "user", content: [find("question").value.trim(), ...lettered].join("\n") }],
    stream: true,
    stream_options: { include_usage: true },
    cirf: { calculator: find("calculator").checked },
  };
  if (model.cirf.functional) {
    const budget = find("budget").valueAsNumber;
    if (!Number.isNaN(budget)) body.cirf.budget = Math.max(0, Math.trunc(budget));
    body.cirf.results = find("results").checked;
  }
  return body;
}

async function one(column, signal) {
  const started = performance.now();
  column.root.classList.add("busy");
  const clock = setInterval(() => column.fact(seconds((performance.now() - started) / 1000)), 100);
  try {
    const body = JSON.stringify(asked(column.model));
    const response = await fetch("/v1/chat/completions", { method: "POST", headers: headers(), body, signal });
    if (!response.ok) {
      clearInterval(clock);
      column.fail(await fault(response));
      return;
    }
    for await (const chunk of events(response)) {
      if (chunk.error) {
        clearInterval(clock);
        column.fail(chunk.error.message);
        return;
      }
      const choice = chunk.choices[0];
      if (choice?.delta) column.add(choice.delta);
      if (choice?.finish_reason) column.finish(choice, chunk.cirf);
      if (chunk.usage) {
        clearInterval(clock);
        column.total(chunk.usage);
      }
    }
  } catch (error) {
    clearInterval(clock);
    if (error.name === "AbortError") column.fact("stopped");
    else column.fail("the server does not answer");
  } finally {
    clearInterval(clock);
    column.root.classList.remove("busy");
  }
}

async function ask() {
  if (running || !models.length || !find("form").reportValidity()) return;
  running = new AbortController();
  find("ask").disabled = true;
  find("stop").hidden = false;
  find("columns").replaceChildren();
  find("status").textContent = "Answering…";
  const columns = models.map((model) => new Column(model));
  await Promise.all(columns.map((column) => one(column, running.signal)));
  const stopped = running.signal.aborted;
  running = null;
  find("ask").disabled = false;
  find("stop").hidden = true;
  find("status").textContent = stopped ? "Stopped." : "Answered.";
}

async function load() {
  const response = await fetch("/v1/models", { headers: headers() });
  find("key-row").hidden = response.status !== 401 && !key;
  if (!response.ok) {
    find("who").textContent = await fault(response);
    return;
  }
  models = (await response.json()).data;
  find("who").textContent = models.map((model) => model.id).join(" and ");
  for (const part of document.querySelectorAll(".functional")) part.hidden = !models.some((model) => model.cirf.functional);
  find("ask").disabled = false;
}

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
find("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    ask();
  }
});
find("stop").addEventListener("click", () => running?.abort());
find("use-key").addEventListener("click", () => {
  key = find("key").value.trim();
  load();
});
find("key").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  find("use-key").click();
});
load();
