// The live view: a list of runs, or one run as its log grows, with the questions that wait. Drawn by the parts in pages.js.
let facts = { agents: {}, steps: [], goals: [], files: [] };

const view = document.getElementById("view");
const run = location.pathname.startsWith("/runs/") ? decodeURIComponent(location.pathname.slice(6)) : "";
const told = make("p", { class: "told", role: "status" });
const line = make("span", { class: "soft" }, "connecting …");
const questions = make("section", { class: "questions", "aria-label": "Open questions" });
const SILENCE = 45_000; // ms, three times what the server lets pass without a word
const NEAR = 100; // steps in a part of the page, drawn when it comes near

function tell(text, bad) {
  told.textContent = text;
  told.classList.toggle("bad", Boolean(bad));
}

async function act(fields) {
  tell("…");
  try {
    const answer = await fetch("/act", { method: "POST", body: JSON.stringify(fields) });
    const type = answer.headers.get("content-type") || "";
    const text = type.includes("json") ? (await answer.json()).text : await answer.text();
    tell(text, !answer.ok);
    return answer.ok;
  } catch (error) {
    tell("The server does not answer. Start `autoagent view` again.", true);
    return false;
  }
}

function button(text, act, kind = "") {
  const made = make("button", { type: "button", class: kind }, text);
  made.addEventListener("click", async () => {
    made.disabled = true;
    try {
      await act();
    } finally {
      made.disabled = false;
    }
  });
  return made;
}

// A text that is asked for in a dialog; null if the dialog is left.
function asked(title, label, text = "") {
  const field = make("textarea", { rows: "4", "aria-label": label });
  field.value = text;
  const form = make("form", { method: "dialog" }, make("h2", {}, title), make("p", { class: "label" }, label), field,
    make("div", { class: "row" }, make("button", { value: "ok", class: "main" }, "OK"), make("button", { value: "" }, "Cancel")));
  const dialog = make("dialog", { "aria-label": title }, form);
  document.body.append(dialog);
  dialog.showModal();
  field.focus();
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(dialog.returnValue === "ok" ? field.value : null);
    });
  });
}

// Questions --------------------------------------------------------------------------------------------------------

const drafts = new Map(); // what is being typed, by question

function shownQuestion(question) {
  const answer = (text) => act({ action: "answer", question: question.id, text });
  const card = make("article", { class: "question", id: `question-${question.id}` });
  const where = run ? question.agent : `${question.run} in ${question.workspace}`;
  card.append(make("p", { class: "soft" }, `${where ? `${where}, ` : ""}asked ${new Date(question.asked * 1000).toLocaleTimeString()}`));
  const command = question.command || {};
  if (command.name) {
    card.append(make("header", {}, make("code", {}, command.name), make("span", { class: "soft" }, ` risk: ${command.risk}`)));
    if (command.warning) card.append(make("p", { class: "warn" }, command.warning));
    for (const note of command.notes) card.append(make("p", { class: "warn" }, note));
    card.append(...shownCall(command.arguments || {}, command.preview, command.preview?.startsWith("--- ")));
  }
  if (question.text) card.append(block(question.text));
  card.append(make("p", {}, question.question));
  const field = make("input", { type: "text", "aria-label": "Feedback or answer", placeholder: "Feedback, or any answer" });
  field.value = drafts.get(question.id) || "";
  field.addEventListener("input", () => drafts.set(question.id, field.value));
  const send = async () => {
    if (await answer(field.value)) drafts.delete(question.id);
  };
  const form = make("form", { class: "row" }, field, make("button", { class: "main" }, "Send"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  const row = make("div", { class: "row" });
  if (question.kind !== "text") {
    row.append(button(`${question.yes} · yes`, () => answer(question.yes), "main"));
    row.append(button(`${question.no} · stop`, () => answer(question.no)));
  }
  if (question.kind === "decision" && command.name) {
    row.append(button(`${question.yes} -5 · this and 4 more`, () => answer(`${question.yes} -5`)));
    row.append(button("Edit …", async () => {
      const edited = await asked(`Edit ${command.name}`, "Arguments, as JSON", command.edit);
      if (edited === null) return;
      try {
        await answer(`e ${JSON.stringify(JSON.parse(edited))}`);
      } catch (error) {
        tell(`That is not valid JSON: ${error.message}. The question stays open.`, true);
      }
    }));
    row.append(button("Budget …", async () => {
      const most = await asked("Budget", "Limit for the whole run, in USD");
      if (most !== null) await answer(`/budget ${most.trim()}`);
    }));
    row.append(button("Undo the last change", () => answer("/undo")));
  }
  card.append(row, form);
  return card;
}

const shownIds = new Map(); // what each question card shows

function showQuestions(open) {
  const gone = new Set(shownIds.keys());
  for (const question of open) {
    gone.delete(question.id);
    const text = JSON.stringify(question);
    if (shownIds.get(question.id) === text) continue;
    const before = document.getElementById(`question-${question.id}`);
    const after = shownQuestion(question);
    if (before) before.replaceWith(after);
    else questions.append(after);
    shownIds.set(question.id, text);
  }
  for (const id of gone) {
    document.getElementById(`question-${id}`)?.remove();
    shownIds.delete(id);
  }
}

// The list of runs -------------------------------------------------------------------------------------------------

function showList() {
  document.title = "Runs · autoagent";
  const [list, show] = listOfRuns(["Run", "Result", "Steps", "Cost", "Updated", "Goals"], (row) => [
    make("td", {}, make("a", { href: `/runs/${encodeURIComponent(row.id)}` }, row.id)),
    make("td", {}, make("span", { class: `badge ${row.status === "finished" ? "good" : row.status === "damaged" ? "bad" : "warn"}` }, row.status)),
    make("td", { class: "figure" }, number(row.steps)),
    make("td", { class: "figure" }, row.cost === null ? "$?" : dollars(row.cost)),
    make("td", {}, row.updated ? new Date(row.updated * 1000).toLocaleString() : ""),
    make("td", { class: "name" }, row.problem || row.name, row.parent ? ` (a fork of ${row.parent})` : ""),
  ]);
  view.append(make("header", {}, make("h1", {}, "Runs"), line), told, questions, make("section", {}, ...list));
  follow("/events", {
    message(data) {
      if (data.problem) return tell(data.problem, true);
      showQuestions(data.questions);
      show(data.runs);
    },
  });
}

// Hear a stream: what to do with the data of each kind of message. It is opened anew after the last message if it falls
// silent, as a connection that died while the machine slept does without an error.
function follow(path, heard) {
  let stream, timer, last = "";
  const close = () => {
    clearTimeout(timer);
    stream?.close();
  };
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(open, SILENCE);
  };
  function open() {
    close();
    stream = new EventSource(last ? `${path}?after=${last}` : path);
    stream.onopen = () => (line.textContent = "live");
    stream.onerror = () => (line.textContent = stream.readyState === EventSource.CLOSED ? "ended; reload the page" : "reconnecting …");
    for (const kind of ["alive", ...Object.keys(heard)]) {
      stream.addEventListener(kind, (event) => {
        last = event.lastEventId || last;
        alive();
        if (heard[kind]) heard[kind](JSON.parse(event.data), close);
      });
    }
    alive();
  }
  open();
}

// One run ----------------------------------------------------------------------------------------------------------

function showRun() {
  document.title = `${run} · autoagent`;
  const sections = { head: make("div"), goals: make("div"), lanes: make("div"), timeline: make("div"), charts: make("div"), files: make("div") };
  const lookUp = async (what) => {
    const answer = await fetch(`/runs/${encodeURIComponent(run)}/${what}`);
    return answer.ok ? answer.json() : null;
  };
  source = { prompt: (step) => lookUp(`prompt?seq=${step.prompt.seq}`), content: (id) => lookUp(`content?id=${id}`) };
  const atSteps = later("Files at each step", async () => {
    const found = await lookUp("files");
    return found?.changes.length ? filesAtSteps(found) : make("p", { class: "soft" }, "No snapshot shows a changed file.");
  });
  atSteps.addEventListener("toggle", () => { // what it shows next is read anew
    if (atSteps.open) return;
    delete atSteps.dataset.drawn;
    atSteps.replaceChildren(atSteps.firstElementChild);
  });
  const parts = make("div");
  const search = make("input", { type: "search", placeholder: "Search the steps shown", "aria-label": "Search the steps" });
  const found = make("span", { class: "soft", role: "status" });
  const newest = make("button", { type: "button" }, "Newest");
  newest.addEventListener("click", () => parts.lastElementChild?.scrollIntoView({ block: "end" }));
  const tools = make("div", { class: "row", role: "group", "aria-label": "The run" });
  const pause = button("Pause", () => act({ action: "pause", run }));
  const stop = button("Save and stop", () => act({ action: "stop", run }));
  const undo = button("Undo the last change", () => act({ action: "undo", run }));
  const redo = button("Redo", () => act({ action: "undo", run, redo: true }));
  const goOn = button("Go on …", async () => {
    const wish = await asked("Go on", "The next task; leave it empty to continue the old one");
    if (wish !== null) await act({ action: "resume", run, text: wish });
  });
  tools.append(pause, stop, undo, redo, goOn);
  view.append(make("nav", {}, make("a", { href: "/" }, "All runs"), " ", line), told, questions, tools,
    sections.head, sections.goals, sections.lanes, sections.timeline, sections.charts, sections.files, atSteps,
    make("section", {}, make("h2", {}, "Steps"), make("div", { class: "bar" }, search, found, newest), parts));

  let drawn = new Set(); // parts of the page whose steps are there
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(Number(entry.target.dataset.part));
  }, { rootMargin: "800px" });

  function articleOf(step) {
    const article = shownStep(step);
    const row = make("div", { class: "row quiet" });
    if (!step.agent && step.result) {
      row.append(button("Undo to here", () => act({ action: "undo", run, to: step.step })));
      row.append(button("Fork here …", async () => {
        const text = await asked(`Fork after step ${step.step}`, "A message to the agent; may be empty");
        if (text !== null) await act({ action: "fork", run, at: step.step, text });
      }));
    }
    for (const memory of new Set((step.recalled || []).map(([name]) => name).filter((name) => /^\d+$/.test(name)))) {
      row.append(button(`Pin memory ${memory}`, () => act({ action: "pin", memory: Number(memory) })));
      row.append(button(`Forget memory ${memory}`, () => act({ action: "forget", memory: Number(memory) })));
    }
    if (row.childElementCount) article.append(row);
    return article;
  }

  async function draw(part) {
    if (drawn.has(part)) return;
    drawn.add(part);
    const first = part * NEAR;
    if (facts.steps.slice(first, first + NEAR).some((step) => step.row)) {
      const whole = await lookUp(`steps?first=${first}&last=${first + NEAR}`);
      if (!whole) return drawn.delete(part);
      for (const [index, step] of whole.entries()) facts.steps[first + index] = step;
    }
    const box = parts.children[part];
    box.style.minHeight = "";
    box.replaceChildren(...facts.steps.slice(first, first + NEAR).map(articleOf));
    sought();
  }

  function grow() {
    while (parts.childElementCount * NEAR < facts.steps.length) {
      const box = make("div", { "data-part": String(parts.childElementCount) });
      parts.append(box);
      near.observe(box);
    }
    for (const box of parts.children)
      if (!drawn.has(Number(box.dataset.part)))
        box.style.minHeight = `${9 * Math.min(NEAR, facts.steps.length - Number(box.dataset.part) * NEAR)}rem`;
  }

  function sought() {
    const word = search.value.toLowerCase();
    let count = 0;
    for (const article of parts.querySelectorAll("article.step")) {
      article.hidden = Boolean(word) && !article.textContent.toLowerCase().includes(word);
      count += article.hidden ? 0 : 1;
    }
    found.textContent = `${number(facts.steps.length)} steps${word ? `, ${number(count)} shown` : ""}`;
  }
  search.addEventListener("input", async () => {
    if (search.value) for (let part = 0; part < parts.childElementCount; part += 1) await draw(part);
    sought();
  });

  // Draw the step that the address names, and go there. Return whether it is there yet.
  async function jump() {
    const wanted = decodeURIComponent(location.hash.slice(1));
    const index = facts.steps.findIndex((step) => place(step) === wanted);
    if (index < 0) return false;
    await draw(Math.floor(index / NEAR));
    document.getElementById(wanted)?.scrollIntoView();
    return true;
  }
  addEventListener("hashchange", jump);
  let jumped = !location.hash;

  // The parts above the steps are drawn anew where they differ; what was opened stays open.
  const before = {};
  function redraw() {
    const made = { head, goals, lanes, timeline, charts, files: changedFiles };
    const basis = { head: { ...facts, steps: 0 }, goals: facts.goals, lanes: [facts.rounds, facts.roles?.length && facts.steps.length], files: facts.files, timeline: facts.steps.length, charts: facts.steps.length };
    for (const [name, box] of Object.entries(sections)) {
      const now = JSON.stringify(basis[name]);
      if (now === before[name]) continue;
      before[name] = now;
      const open = [...box.querySelectorAll("details")].map((one) => one.open);
      box.replaceChildren(made[name]() || "");
      box.querySelectorAll("details").forEach((one, index) => (one.open = Boolean(open[index])));
    }
  }
  let waits = false;
  function soon() {
    if (waits) return;
    waits = true;
    setTimeout(() => {
      waits = false;
      redraw();
    }, 300);
  }

  let begun = false;
  function message(change) {
    const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 40 && begun;
    facts = { ...change.head, steps: facts.steps, held: facts.held };
    for (const [place, step] of change.steps) {
      facts.steps[place] = step;
      const part = Math.floor(place / NEAR);
      if (!drawn.has(part)) continue;
      const box = parts.children[part];
      const old = box.children[place % NEAR];
      if (step.row) {
        drawn.delete(part);
        near.unobserve(box);
        near.observe(box);
      } else if (old) old.replaceWith(articleOf(step));
      else box.append(articleOf(step));
    }
    grow();
    draw(0);
    if (!jumped) jump().then((there) => (jumped = there));
    if (begun) soon();
    else redraw();
    begun = true;
    sought();
    if (atEnd) scrollTo(0, document.body.scrollHeight);
  }
  function state(state) {
    showQuestions(state.questions);
    pause.hidden = stop.hidden = !state.held;
    undo.hidden = redo.hidden = goOn.hidden = state.held;
    facts.held = state.held;
    if (begun) soon();
  }
  function problem(text, close) {
    tell(text, true);
    close();
  }
  follow(`/runs/${encodeURIComponent(run)}/events`, { message, state, problem });
}

if (run) showRun();
else showList();
