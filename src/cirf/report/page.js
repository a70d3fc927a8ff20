// What a report can do beyond what every page can (common.js): the explorers of tokens and questions. All text comes
// from models and users: it becomes text nodes, never HTML. Without this script the page is whole.
(() => {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const find = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const codes = new Map((data.book ? data.book.codes : []).map((row) => [row.code, row]));

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") for (const [key, set] of Object.entries(value)) element.style.setProperty(key, set);
      else if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };
  const number = (value) => value.toLocaleString("en");
  const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
  const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
  const spoken = (text) => text.toLowerCase();

  const chip = (code) => {
    const known = codes.has(code);
    const label = data.labels[code] ?? "?";
    const attributes = { class: "chip", style: { "--h": String(Math.round(code * 137.508) % 360) } };
    attributes.title = `functional token ${code}: ${data.labels[code] ?? "not in the codebook"}`;
    if (known) attributes.href = `#code-${code}`;
    return make(known ? "a" : "span", attributes, make("b", {}, String(code)), ` ${label}`);
  };
  const bar = (share) => make("span", { class: "bar", "aria-hidden": "true" }, make("i", { style: { width: `${100 * share}%` } }));
  const method = (name) =>
    make("span", { class: "method" }, make("i", { "aria-hidden": "true", style: { background: data.colours[name] } }), data.methods[name]);

  // The token explorer ------------------------------------------------------------------------------------------------
  const dialog = find("code-dialog");
  const visited = [];
  let current = null; // the code that the dialog shows
  let opener = null;
  let before = "";
  let openTraces = () => {};

  const ranked = (title, rows, sum, end) => {
    const items = rows.slice(0, 10).map(([code, count]) =>
      make("li", {}, code === null ? make("span", { class: "soft" }, end) : chip(code), make("span", { class: "count" }, bar(count / sum), make("span", {}, `${number(count)} (${percent(count / sum)})`))));
    const rest = rows.slice(10).reduce((total, [, count]) => total + count, 0);
    if (rest) items.push(make("li", { class: "soft" }, `${plural(rows.length - 10, "other token")}: ${number(rest)} (${percent(rest / sum)})`));
    return make("section", {}, make("h3", {}, title), rows.length ? make("ol", { class: "ranked" }, ...items) : make("p", { class: "soft" }, "Nothing in training."));
  };
  const following = (code, here, there, ends) => {
    const rows = data.book.transitions.pairs.filter((pair) => pair[here] === code).map((pair) => [pair[there], pair[2]]);
    rows.push(...ends.filter(([end]) => end === code).map(([, count]) => [null, count]));
    return rows.sort((one, other) => other[1] - one[1]);
  };
  const segments = (row) => {
    const list = make("ul", { class: "segments" });
    const said = make("p", { class: "note", role: "status" });
    const task = make("select", { "aria-label": "Task of the steps" }, make("option", { value: "" }, "all tasks"), ...Object.keys(row.tasks).map((name) => make("option", {}, name)));
    const text = make("input", { type: "search", "aria-label": "Text in the steps", placeholder: "text in the steps" });
    const fill = () => {
      const kept = row.segments.filter(([name, step]) => (!task.value || name === task.value) && spoken(step).includes(spoken(text.value.trim())));
      list.replaceChildren(...kept.map(([name, step]) => make("li", {}, make("span", { class: "tag" }, name), " ", step)));
      said.textContent = `${kept.length} of ${plural(row.segments.length, "step")} shown here; ${plural(row.distinct, "different one")} in training.`;
    };
    task.addEventListener("change", fill);
    text.addEventListener("input", fill);
    fill();
    return make("section", {}, make("h3", {}, "Its steps"), make("div", { class: "filters" }, task, text), said, list);
  };
  const fillDialog = (code) => {
    current = code;
    const row = codes.get(code);
    const { transitions, segments: steps, written } = data.book;
    find("code-title").replaceChildren("Functional token ", make("b", {}, String(code)), ` ${row.label}`);
    const facts = [
      ["In training", `${plural(row.count, "step")}, ${percent(steps ? row.count / steps : 0)} of all`],
      ["In answers", written ? `${plural(row.written, "time")}, ${percent(row.written_share)} of all functional tokens written` : "none read"],
      ["Answers with it", row.answers ? `${percent(row.answers.right)} right (95 % interval ${(100 * row.answers.interval[0]).toFixed(1)} to ${percent(row.answers.interval[1])}, ${plural(row.answers.questions, "question")})${data.accuracy === null ? "" : `; all answers: ${percent(data.accuracy)}`}` : "none"],
      ["Tasks", Object.entries(row.tasks).map(([name, count]) => `${name} ${number(count)}`).join(", ") || "none"],
    ];
    find("code-body").replaceChildren(
      make("dl", { class: "facts" }, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))),
      make("p", { class: "note" }, "Answers with it are those of the functional method. The share is not an effect of the token: harder questions need other steps."),
      row.written ? make("button", { type: "button", id: "code-traces", on: { click: () => { dialog.close(); openTraces(code); } } }, "Show the questions answered with it") : null,
      make("div", { class: "columns" },
        ranked("After it", following(code, 0, 1, transitions.last), row.count, "end of the trace"),
        ranked("Before it", following(code, 1, 0, transitions.first), row.count, "start of the trace")),
      segments(row));
    find("code-back").hidden = !visited.length;
    dialog.scrollTop = 0;
  };
  const openCode = (code, from) => {
    if (dialog.open) visited.push(current);
    else {
      opener = from;
      before = location.hash.startsWith("#code-") ? "" : location.hash;
      visited.length = 0;
      dialog.showModal();
    }
    history.replaceState(null, "", `#code-${code}`);
    fillDialog(code);
    find("code-title").focus();
  };
  const fromAddress = () => {
    const found = location.hash.match(/^#code-(\d+)$/);
    if (dialog && found && codes.has(Number(found[1]))) openCode(Number(found[1]), document.querySelector(`tr${location.hash} a.chip`));
  };
  if (dialog) {
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a.chip");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      openCode(Number(link.hash.slice(6)), link);
    });
    find("code-close").addEventListener("click", () => dialog.close());
    find("code-back").addEventListener("click", () => {
      const code = visited.pop();
      history.replaceState(null, "", `#code-${code}`);
      fillDialog(code);
      find("code-title").focus();
    });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("close", () => {
      history.replaceState(null, "", before || location.pathname + location.search);
      if (opener && opener.isConnected) opener.focus();
    });
  }

  // The question explorer ---------------------------------------------------------------------------------------------
  const PAGE = 60;
  const verdict = (answer) => (answer.correct ? "right" : answer.parsed === null ? "unread" : "wrong");
  const MARKS = { right: ["yes", "✓", "right"], wrong: ["no", "✗", "wrong"], unread: ["none", "?", "unparsed"] };
  const mark = (answer) => {
    const [look, sign, word] = MARKS[verdict(answer)];
    return make("span", { class: `mark ${look}` }, make("span", { "aria-hidden": "true" }, sign), ` ${word}${answer.truncated ? ", truncated" : ""}`);
  };
  const cutNote = (length, shown) => make("small", { class: "soft" }, `The first ${number(shown)} of ${number(length)} characters.`);
  const prose = (text, length, name) => [
    make("div", { class: "text", tabindex: "0", role: "region", "aria-label": name }, text),
    length ? cutNote(length, text.length) : null,
  ].filter(Boolean);
  const shownAnswer = ([name, answer]) => {
    const runs = answer.runs ? `, ${answer.runs[0]} of ${answer.runs[1]} runs right` : "";
    const who = make("p", { class: "who" }, method(name), mark(answer), make("small", { class: "soft" }, `${plural(answer.tokens, "token")}${runs}`));
    const box = make("div", { class: "answer" }, who);
    if (answer.codes) {
      const steps = answer.codes.map(([code, result]) => make("span", { class: "step" }, code === null ? null : chip(code), result ? make("span", { class: "result" }, result) : null));
      const end = make("span", { class: "step" }, make("span", { class: "final" }, "answer"), make("span", { class: "result" }, answer.answer.trim() || "(none)"));
      box.append(make("p", { class: "trace" }, ...[...steps, end].flatMap((step) => [step, " "])));
      if (answer.codes_length) box.append(make("small", { class: "soft" }, `The first ${answer.codes.length} of ${plural(answer.codes_length, "step")}.`));
    } else if (answer.output.length > 80 || answer.output.includes("\n")) {
      box.append(...prose(answer.output, answer.output_length, `Output of ${data.methods[name]}`));
      if (!answer.correct && answer.parsed !== null) box.append(make("p", { class: "soft" }, make("small", {}, `parsed as: ${answer.parsed}`)));
    } else box.append(make("p", { class: "trace" }, make("span", { class: "result" }, answer.output || "(nothing)")));
    return box;
  };
  const searched = (row) => {
    const texts = Object.values(row.answers).map((answer) => (answer.codes ? `${answer.codes.map(([, result]) => result).join(" ")} ${answer.answer}` : answer.output));
    return spoken([row.id, row.question, row.gold, ...(row.choices ?? []), ...texts].join("\n"));
  };
  const explorer = find("explorer");
  if (explorer && data.questions.length) {
    const [text, task, name, wanted, code, differ] = ["text", "task", "method", "verdict", "code", "differ"].map((part) => find(`filter-${part}`));
    const list = find("question-list");
    const pane = find("question");
    const haystacks = data.questions.map(searched);
    let kept = [];
    let place = 0;
    let listed = 0;
    const holds = (answer) => {
      const verdicts = { right: answer.correct, wrong: verdict(answer) === "wrong", unread: answer.parsed === null, cut: answer.truncated };
      return (!wanted.value || verdicts[wanted.value]) && (!code.value || (answer.codes ?? []).some(([one]) => String(one) === code.value));
    };
    const matches = (row, index) => {
      const answers = Object.entries(row.answers).filter(([one]) => !name.value || one === name.value);
      const marks = new Set(Object.values(row.answers).map((answer) => answer.correct));
      return (!task.value || row.task === task.value) && (!differ.checked || marks.size > 1)
        && haystacks[index].includes(spoken(text.value.trim())) && answers.some(([, answer]) => holds(answer));
    };
    const entry = (index) => {
      const row = data.questions[kept[index]];
      const marks = Object.entries(row.answers).map(([one, answer]) => {
        const [look, sign, word] = MARKS[verdict(answer)];
        return make("span", { class: look, title: `${data.methods[one]}: ${word}` }, sign);
      });
      const right = Object.values(row.answers).filter((answer) => answer.correct).length;
      const line = make("span", { class: "line" }, row.question);
      const signs = make("span", { class: "signs" }, make("span", { "aria-hidden": "true" }, ...marks), make("span", { class: "away" }, ` ${right} of ${marks.length} right`));
      return make("li", {}, make("button", { type: "button", "data-place": String(index) }, line, signs));
    };
    const extend = (until) => {
      list.querySelector(".more")?.remove();
      for (; listed < Math.min(until, kept.length); listed += 1) list.append(entry(listed));
      if (listed < kept.length) list.append(make("li", { class: "more" }, make("button", { type: "button" }, `Show more (${number(kept.length - listed)})`)));
    };
    const step = (by, label, sign) => make("button", { type: "button", "data-step": String(by), disabled: place + by < 0 || place + by >= kept.length }, by < 0 ? `${sign} ${label}` : `${label} ${sign}`);
    const show = (index, held = null) => {
      place = index;
      if (!kept.length) {
        pane.replaceChildren(make("p", { class: "soft" }, "No question matches: change or clear the filters."));
        return;
      }
      extend(index + 1);
      const row = data.questions[kept[index]];
      const head = make("div", { class: "walk" }, step(-1, "Previous", "←"), make("span", { class: "soft" }, `${number(index + 1)} of ${number(kept.length)}`), step(1, "Next", "→"));
      const parts = [head, make("p", { class: "question" }, make("span", { class: "tag" }, row.task), " ", row.question)];
      if (row.question_length) parts.push(cutNote(row.question_length, row.question.length));
      if (row.choices) parts.push(make("ol", { class: "choices", type: "A" }, ...row.choices.map((choice) => make("li", {}, choice))));
      parts.push(make("p", { class: "soft" }, "Right answer: ", make("b", {}, row.gold), make("small", {}, ` (${row.id})`)));
      if (row.rationale) parts.push(make("details", { open: true }, make("summary", {}, "Chain-of-thought that comes with the question"), ...prose(row.rationale, row.rationale_length, "Chain-of-thought that comes with the question")));
      parts.push(make("div", { class: "answers" }, ...Object.entries(row.answers).map(shownAnswer)));
      pane.replaceChildren(...parts);
      for (const button of all("[aria-current]", list)) button.removeAttribute("aria-current");
      const chosen = list.querySelector(`[data-place="${index}"]`);
      chosen.setAttribute("aria-current", "true");
      list.scrollTop = Math.max(0, Math.min(list.scrollTop, chosen.offsetTop - list.offsetTop), chosen.offsetTop - list.offsetTop + chosen.offsetHeight - list.clientHeight);
      if (held === "list") chosen.focus();
      else if (held) (pane.querySelector(`[data-step="${held}"]:enabled`) ?? pane).focus();
    };
    const filter = () => {
      kept = data.questions.map((row, index) => index).filter((index) => matches(data.questions[index], index));
      find("found").textContent = `${number(kept.length)} of ${plural(data.questions.length, "question")} shown`;
      list.replaceChildren();
      list.scrollTop = 0;
      listed = 0;
      extend(PAGE);
      show(0);
    };
    const form = explorer.querySelector("form");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", filter);
    form.addEventListener("reset", () => setTimeout(filter));
    list.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.place) show(Number(button.dataset.place));
      else {
        const first = listed;
        extend(listed + PAGE);
        list.querySelector(`[data-place="${first}"]`).focus();
      }
    });
    pane.addEventListener("click", (event) => {
      const button = event.target.closest("[data-step]");
      if (button) show(place + Number(button.dataset.step), button.dataset.step);
    });
    explorer.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select")) return;
      const inList = list.contains(event.target);
      const by = { ArrowRight: 1, ArrowLeft: -1, ...(inList ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[event.key];
      if (!by || !kept[place + by] && kept[place + by] !== 0) return;
      event.preventDefault();
      show(place + by, inList ? "list" : String(by));
    });
    openTraces = (one) => {
      form.reset();
      code.value = String(one);
      setTimeout(() => {
        filter();
        find("explore").scrollIntoView();
        code.focus({ preventScroll: true });
      });
    };
    explorer.hidden = false;
    const fold = document.querySelector("#traces .fold");
    if (fold) {
      fold.open = false; // all questions are above it; not in print
      addEventListener("beforeprint", () => { fold.open = true; });
      addEventListener("afterprint", () => { fold.open = false; });
    }
    filter();
  }

  // A token's own address -----------------------------------------------------------------------------------------------
  addEventListener("hashchange", fromAddress);
  if (document.readyState === "complete") fromAddress();
  else addEventListener("load", fromAddress); // later than the browser's own way to the fragment, which takes the focus
})();
