"use strict";
// The parts of the pages that show a run: the report and the live view. They read `facts`, which the page defines.
// Everything is set as text, so that nothing in a run can become markup.

function make(kind, attributes = {}, ...inside) {
  const element = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside.filter((one) => one !== null && one !== ""));
  return element;
}

function drawn(kind, attributes, ...inside) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

// A picture as wide as its box. The label says in words what it shows.
const graphic = (label, width, height, attributes, ...inside) =>
  drawn("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label, ...attributes }, ...inside);
const strip = (label, width, bars) => // each bar: where it begins, how long it is, its class
  graphic(label, width, 1, { class: "strip" }, ...bars.map(([x, wide, kind]) => drawn("rect", { x, y: 0, width: wide, height: 1, class: kind })));

const number = (value) => value.toLocaleString("en");
const dollars = (value) => `$${value.toFixed(4)}`;
const duration = (seconds) => {
  const whole = Math.round(seconds);
  return whole < 60 ? `${Number(seconds.toFixed(seconds < 10 ? 1 : 0))} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
};
const labelled = (label, ...inside) => make("div", {}, make("p", { class: "label" }, label), ...inside);
const block = (text) => make("pre", { tabindex: "0" }, text);
const folded = (title, ...inside) => make("details", {}, make("summary", {}, title), ...inside);
const place = (step) => `${step.agent ? `agent-${step.agent}-` : ""}step-${step.step}`;
const most = (values) => values.reduce((one, other) => Math.max(one, other), 0);
const named = (agent) => `${facts.agents[agent] || ""} ${facts.roles?.some((role) => role.key === agent) ? "" : agent}`.trim();
const textOf = (text) => (typeof text === "number" ? facts.texts[text] : text); // a text that a page holds once

// Where the texts come from that are not in the steps: the page of a report itself, or a server.
// `prompt(step)` gives its parts, or null; `content(id)` gives the text of a file and its colours, or null.
let source = { prompt: async () => null, content: async () => null };

// The pieces of a line in colour: `3k1.4f` says 3 characters of the kind `k`, a plain one, and 4 of the kind `f`.
function coloured(line, colours) {
  if (!colours) return [line];
  const letters = /[\ud800-\udfff]/.test(line) ? Array.from(line) : line;
  const pieces = [];
  let at = 0;
  for (const [, length, kind] of colours.matchAll(/(\d+)(.)/g)) {
    const piece = letters.slice(at, (at += Number(length)));
    const text = typeof piece === "string" ? piece : piece.join("");
    pieces.push(kind === "." ? text : make("span", { class: `hl-${kind}` }, text));
  }
  const rest = letters.slice(at);
  return [...pieces, typeof rest === "string" ? rest : rest.join("")];
}

function code(text, colours = []) {
  const lines = text.split("\n").map((line, at) => make("span", { class: "line" }, ...coloured(line, colours[at]), "\n"));
  return make("pre", { tabindex: "0", class: "code" }, ...lines);
}

// A part of the page that is drawn when it is opened for the first time.
function later(title, draw) {
  const details = folded(title);
  details.addEventListener("toggle", async () => {
    if (!details.open || details.dataset.drawn) return;
    details.dataset.drawn = "yes";
    details.append(...[await draw()].flat());
  });
  return details;
}

const KNOWN = { checked: "good", shown: "good", accepted: "good", claimed: "warn", unmet: "bad", open: "soft" };
const MEANS = {
  checked: "its check passed", shown: "a verifier found evidence", accepted: "you accepted it",
  claimed: "the agent says so, nothing shows it", unmet: "it is not met", open: "nobody has looked",
};
const badge = (state) => make("span", { class: `badge ${KNOWN[state] || "warn"}`, title: MEANS[state] || "" }, state);

function head() {
  const good = facts.status === "finished";
  const ended = facts.status
    ? make("p", {}, make("span", { class: `badge ${good ? "good" : "warn"}` }, facts.status), " ", facts.reason)
    : facts.held
      ? make("p", {}, make("span", { class: "badge good" }, "at work"))
      : make("p", {}, make("span", { class: "badge warn" }, "not ended"), " The log has no end of this run.");
  const [sent, cached, received] = facts.tokens;
  const asked = `${facts.name}: ${facts.goals.map((goal) => goal.text).join("; ")}`;
  const figures = [
    ["Steps", number(facts.count)], ["Time", duration(facts.seconds)],
    ["Cost", facts.unpriced ? `${dollars(facts.cost || 0)} and $?` : dollars(facts.cost || 0)],
    ["Tokens in", number(sent)], ["of them cached", sent ? `${Math.round((100 * cached) / sent)} %` : "0 %"],
    ["Tokens out", number(received)], ["Model", facts.model + (facts.host ? ` at ${facts.host}` : "")],
  ].map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  return make("header", {},
    make("h1", {}, asked.length > 160 ? `${asked.slice(0, 160)}…` : asked),
    make("p", { class: "soft" },
      `${facts.role}. Run ${facts.run}, ${new Date(facts.began * 1000).toLocaleString()}, in ${facts.workspace}`),
    ended, make("dl", { class: "figures" }, ...figures));
}

function goals() {
  const shown = facts.goals.map((goal, index) => {
    const state = goal.proof || goal.ledger.at(-1)?.state || "open";
    const title = make("span", {}, `${index + 1}. ${goal.text} `, badge(state), make("span", { class: "soft" }, ` ${MEANS[state] || ""}`));
    const entries = goal.ledger.map((entry) => {
      const again = entry.again ? `, and ${number(entry.again)} times more up to step ${number(entry.last)}` : "";
      const where = make("a", { href: `#step-${entry.step}` }, `step ${number(entry.step)}`);
      return make("li", {}, badge(entry.state), " at ", where, make("span", { class: "soft" }, again), folded("Evidence", block(entry.evidence)));
    });
    const box = make("div", { class: "goal" }, title);
    if (entries.length) {
      const check = goal.check ? [labelled("Its check", block(goal.check))] : [];
      box.append(ledger(goal), folded("Evidence", ...check, make("ol", { class: "ledger" }, ...entries)));
    } else if (goal.check) box.append(labelled("Its check", block(goal.check)));
    return box;
  });
  return make("section", {}, make("h2", {}, "Goals, with their evidence"), ...shown);
}

// The states of a goal over the steps, as a strip.
function ledger(goal) {
  const end = Math.max(facts.count, goal.ledger.at(-1).last, 1);
  const bars = [];
  let before = { state: "open", at: 0 };
  for (const entry of [...goal.ledger, { state: "", step: end + 1 }]) {
    const at = Math.max(0, entry.step - 1);
    bars.push([before.at, Math.max(0, at - before.at), KNOWN[before.state] || "warn"]);
    before = { state: entry.state, at };
  }
  return strip(goal.ledger.map((entry) => `${entry.state} from step ${entry.step}`).join(", "), end, bars);
}

const POINTS = 1000; // of a curve; further ones are left out evenly

function thinned(all) {
  const every = Math.ceil(all.length / POINTS);
  return all.filter((one, index) => index % every === 0 || index === all.length - 1);
}

const curve = (values, highest) =>
  values.map((value, index) => `${(100 * index) / Math.max(1, values.length - 1)},${40 - (38 * value) / highest}`);

function chart(title, all) {
  const values = thinned(all);
  const path = drawn("path", { d: `M${curve(values, Math.max(most(values), 1e-9)).join("L")}` });
  return make("figure", {}, graphic(title, 100, 40, {}, path), make("figcaption", {}, title));
}

function charts() {
  const steps = facts.steps.filter((step) => step.usage);
  if (steps.length < 2 || !facts.tokens[0]) return "";
  let paid = 0;
  const money = steps.map((step) => (paid += step.usage[3]));
  const share = steps.map((step) => (step.usage[0] ? step.usage[1] / step.usage[0] : 0));
  const prompts = steps.map((step) => step.usage[0]);
  return make("section", {}, make("h2", {}, "Tokens and money"), make("div", { class: "charts" },
    held() || chart(`Tokens in a prompt, at most ${number(most(prompts))}`, prompts),
    paid ? chart(`Money so far, ${dollars(paid)} in the end`, money) : "",
    most(share) ? chart(`Share of the prompt that the provider had cached, at most ${Math.round(100 * most(share))} %`, share) : ""));
}

// The parts of a prompt, as they follow in it. Of old prompts the last three are known together, as `rest`.
const PARTS = {
  system: "System message and commands", memories: "Memories", summary: "Summary of earlier steps", history: "Earlier steps",
  result: "Newest step and its result", moment: "Facts of the moment", goals: "Goals", rest: "Memories, facts of the moment and goals",
};
const OUTLINE = ["system", "summary", "history", "result", "rest", "shown", "summed", "counted"];
const outline = (found) => (Array.isArray(found) ? Object.fromEntries(OUTLINE.map((name, at) => [name, found[at]])) : found);

// Tokens of the prompts by part, over the steps.
function held() {
  const all = facts.steps.filter((step) => step.prompt && !step.agent).map((step) => facts.prompts?.[step.prompt.seq]).filter(Boolean).map(outline);
  if (all.length < 2) return "";
  const seen = thinned(all);
  const sum = (one) => Object.keys(PARTS).reduce((total, name) => total + (one[name] || 0), 0);
  const highest = most(seen.map(sum));
  const title = `Tokens in a prompt by part, at most ${number(highest)}`;
  const base = seen.map(() => 0);
  const names = ["system", "summary", "history", "result", "rest"];
  const areas = names.map((name) => {
    const low = curve(base, highest);
    seen.forEach((one, at) => (base[at] += name === "rest" ? one.rest ?? one.memories + one.moment + one.goals : one[name]));
    return drawn("path", { d: `M${low.join("L")}L${curve(base, highest).reverse().join("L")}Z`, class: `part-${name}` });
  });
  const key = names.map((name) => make("span", {}, make("i", { class: `part-${name}` }), PARTS[name]));
  return make("figure", {}, graphic(title, 100, 40, {}, ...areas), make("figcaption", {}, title, make("span", { class: "key" }, ...key)));
}

function xray(step, found) {
  const sizes = outline(found);
  const names = Object.keys(PARTS).filter((name) => sizes[name]);
  let total = 0;
  const bars = names.map((name) => [(total += sizes[name]) - sizes[name], sizes[name], `part-${name}`]);
  const box = make("div", { class: "xray" }, strip(names.map((name) => `${PARTS[name]} ${number(sizes[name])} tokens`).join(", "), total, bars));
  for (const name of names) {
    const texts = found.texts?.[Object.keys(PARTS).indexOf(name)];
    const title = make("span", {}, make("i", { class: `part-${name}` }), `${PARTS[name]}, ${number(sizes[name])} tokens`);
    box.append(texts ? later(title, () => messages(texts)) : make("p", {}, title));
  }
  if (!found.texts) {
    const how = step.agent ? "they are in the log" : `\`autoagent show ${facts.run} --step ${step.step} --prompt\` prints it`;
    box.append(make("p", { class: "soft" }, `The texts of this prompt are left out of this page for their size; ${how}.`));
  } else if (!found.same)
    box.append(make("p", { class: "warn" }, "This is not exactly what was sent: the program or the time zone has changed."));
  if (sizes.summed || sizes.counted)
    box.append(make("p", {}, `Left out: the steps before ${number(sizes.shown)}. The summary has a line for each of ${number(sizes.summed)}, and counts ${number(sizes.counted)} more.`));
  return box;
}

// The texts of a part: places in the texts of the page, from the first to the last, or the texts themselves.
function messages(texts) {
  const all = texts.flatMap((one) => (Array.isArray(one) ? facts.texts.slice(one[0], one[1] + 1) : [one]));
  return all.map((text) => {
    const [, role, said] = /^(user|assistant|tool|system)\n([^]*)$/.exec(text) || [];
    return role ? labelled(role, block(said)) : block(text);
  });
}

function prompt(step) {
  const memories = step.recalled || [];
  return later(`Prompt, ${number(step.prompt.tokens)} tokens`, async () => {
    const found = await source.prompt(step);
    const shown = found ? [xray(step, found)] : [];
    if (step.prompt.left && !found?.texts) shown.push(make("p", {}, step.prompt.left));
    const gate = step.gate ? ` of ${step.gate} needed` : "";
    const in_it = new Set(found?.in || memories.map(([name]) => name));
    const lines = memories.map(([name, kind, evidence, text]) => labelled(
      `mem:${name} (${kind})${evidence ? `, evidence ${evidence}${gate}` : ""}${in_it.has(name) ? "" : ", no room for it"}`, block(textOf(text))));
    if (lines.length) shown.push(folded(`${number(lines.length)} memories found for this step, and why`, ...lines));
    if (found?.others?.length) {
      const others = found.others.map(([name, evidence, why]) => make("li", {}, `mem:${name}: ${why}${evidence ? `, evidence ${evidence}${gate}` : ""}`));
      shown.push(folded(`${number(others.length)} memories left out, and why`, make("ul", {}, ...others)));
    } else if (step.left_out?.length)
      shown.push(make("p", {}, `Memories left out: ${step.left_out.map(([count, why]) => `${number(count)} (${textOf(why)})`).join(", ")}.`));
    return shown;
  });
}

function changedFiles() {
  if (!facts.files.length) return "";
  const lines = facts.files.map(([path, added, removed]) => make("li", {}, path + " ",
    make("span", { class: "good" }, added ? `+${added}` : ""), " ", make("span", { class: "bad" }, removed ? `−${removed}` : "")));
  return make("section", {}, make("h2", {}, "Files changed"), make("ul", {}, ...lines));
}

const STATES = { made: "good", changed: "warn", deleted: "bad" };

// The files as they were after a step that can be chosen: each that the run had changed by then, with its content.
function filesAtSteps({ changes, store }) {
  const chosen = make("input", { type: "range", min: "1", max: String(changes.length), value: String(changes.length), "aria-label": "After which step" });
  const label = make("output", {});
  const list = make("div", { class: "files" });
  function draw() {
    const upTo = Number(chosen.value), now = new Map();
    changes.slice(0, upTo).forEach(([, files], at) => files.forEach(([path, state, id]) => {
      const before = now.get(path);
      const made = before?.state === "made" || (!before && state === "made");
      if (state === "deleted" && made) now.delete(path);
      else now.set(path, { state: state === "deleted" ? state : made ? "made" : "changed", id, new: at === upTo - 1 });
    }));
    const step = facts.steps[changes[upTo - 1][0]];
    label.textContent = upTo === changes.length ? `at the end (step ${number(step.step)})` : `after step ${number(step.step)}`;
    const lines = [...now].sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true })).map(([path, file]) => {
      const title = make("span", {}, make("code", {}, path), " ", make("span", { class: `badge ${STATES[file.state]}` }, file.state),
        file.new ? make("span", { class: "soft" }, " in this step") : "");
      if (!file.id) return make("p", {}, title);
      return later(title, async () => {
        const found = await source.content(file.id);
        return found ? code(...found) : make("p", { class: "soft" }, `Its content is not in this page. \`git --git-dir ${store} show ${file.id}\` prints it.`);
      });
    });
    list.replaceChildren(...(lines.length ? lines : [make("p", { class: "soft" }, "No file differs from the beginning.")]));
  }
  chosen.addEventListener("input", draw);
  draw();
  return make("div", {}, make("p", { class: "row" }, chosen, label), list);
}

// The roles of a team side by side, a row for each round.
function lanes() {
  if (!facts.roles?.length) return "";
  const heads = facts.roles.map((role) => make("th", { scope: "col" }, role.name, make("span", { class: "soft" }, ` ${role.profile}, hears ${role.watch.join(", ") || "nothing"}`)));
  const rows = facts.rounds.map((round) => {
    const cells = facts.roles.map((role) => {
      const steps = facts.steps.filter((step) => step.call && step.agent.startsWith(`${role.key}.${round.round}.`));
      const links = steps.map((step) => make("a", { href: `#${place(step)}`, class: step.result && !step.result.ok ? "bad" : "" }, step.call.name));
      const said = round.said.filter(([agent]) => agent === role.key).map(([, cause, text]) => make("p", {}, make("b", {}, `${cause}: `), text));
      const waits = round.waits[role.key] ? [make("p", { class: "soft" }, `waits for ${round.waits[role.key].join(", ")}`)] : [];
      return make("td", {}, links.length ? make("p", { class: "links" }, ...links) : "", ...said, ...(said.length || links.length ? [] : waits));
    });
    const user = round.said.filter(([agent]) => !agent).map(([, cause, text]) => make("p", {}, make("b", {}, `${cause}: `), text));
    const label = round.round ? `Round ${round.round}` : "Idea";
    return round.round ? make("tr", {}, make("th", { scope: "row" }, label), ...cells)
      : make("tr", {}, make("th", { scope: "row" }, label), make("td", { colspan: String(facts.roles.length) }, ...user));
  });
  return make("section", {}, make("h2", {}, "The team, round by round"), make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "The team" },
    make("table", { class: "team" }, make("thead", {}, make("tr", {}, make("td", {}), ...heads)), make("tbody", {}, ...rows))));
}

// A unified diff, side by side; on a narrow screen one line below the other.
function difference(text, colours = []) {
  const rows = [];
  let cut = [], added = [], old = 1, now = 1;
  const flush = () => {
    for (let at = 0; at < Math.max(cut.length, added.length); at += 1) rows.push([cut[at] || ["none"], added[at] || ["none"]]);
    cut = [];
    added = [];
  };
  text.split("\n").forEach((line, at) => {
    if (at < 2) return;
    const pieces = coloured(line.slice(1), colours[at]);
    if (line.startsWith("-")) cut.push(["cut", old++, pieces]);
    else if (line.startsWith("+")) added.push(["add", now++, pieces]);
    else {
      flush();
      if (line.startsWith(" ")) rows.push([["same", old++, pieces], ["same", now++, coloured(line.slice(1), colours[at])]]);
      else rows.push([["hunk", "", [line]]]);
      const hunk = /^@@ -(\d+)[^+]*\+(\d+)/.exec(line);
      if (hunk) [old, now] = [Number(hunk[1]), Number(hunk[2])];
    }
  });
  flush();
  const cell = ([kind, at, pieces = []], span) => make("td", { class: kind, ...(at ? { "data-line": String(at) } : {}), ...(span ? { colspan: "2" } : {}) }, ...pieces);
  const all = [0, 1].map((side) => rows.some((row) => row.length === 2 && row[side][0] !== "none"));
  const shown = (row) => (all[0] && all[1] ? row : row.length === 1 ? row : [row[all[0] ? 0 : 1]]); // a new file has one side
  const lines = rows.map((row) => make("tr", {}, ...shown(row).map((one, at, cells) => cell(one, cells.length === 1))));
  const [before, after] = text.split("\n", 2).map((line) => line.slice(4).replace(/^[ab]\//, ""));
  const title = before === after ? after : before === "/dev/null" ? `${after}, new` : after === "/dev/null" ? `${before}, deleted` : `${before} → ${after}`;
  return labelled(title, make("div", { class: "diff", tabindex: "0" }, make("table", { class: "sides" }, ...lines)));
}

// The arguments of a call, and what it changes.
function shownCall(args, preview, isDifference, colours) {
  const whole = Object.entries(args).map(([name, value]) => labelled(name, block(typeof value === "string" ? value : JSON.stringify(value))));
  if (isDifference) return [difference(preview, colours), folded("Arguments", ...whole)];
  return preview ? [...whole, make("p", { class: "soft" }, preview)] : whole;
}

// A table of rows that can be searched: its elements, and the function that shows new rows.
function listOfRuns(heads, cellsOf) {
  const search = make("input", { type: "search", placeholder: "Search the runs", "aria-label": "Search the runs" });
  const found = make("span", { class: "soft", role: "status" });
  const body = make("tbody");
  let all = [];
  const draw = () => {
    const word = search.value.toLowerCase();
    const fit = all.filter((row) => JSON.stringify(Object.values(row)).toLowerCase().includes(word));
    found.textContent = `${number(fit.length)} of ${number(all.length)} runs`;
    body.replaceChildren(...fit.map((row) => make("tr", {}, ...cellsOf(row))));
  };
  search.addEventListener("input", draw);
  const head = make("thead", {}, make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name))));
  const table = make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Runs" }, make("table", { class: "list" }, head, body));
  const show = (rows) => {
    all = rows;
    draw();
  };
  return [[make("div", { class: "bar" }, search, found), table], show];
}

function shownStep(step) {
  const article = make("article", { class: `step${step.agent ? " other" : ""}`, id: place(step) });
  const title = make("header", {}, make("a", { href: `#${place(step)}` }, `${step.agent ? `${named(step.agent)}, ` : ""}step ${step.step}`));
  if (step.call) title.append(make("code", {}, step.call.name));
  if (step.result) title.append(make("span", { class: step.result.ok ? "good" : "bad" }, step.result.outcome));
  const times = [["model", step.thought_for], ["waited", step.waited], ["ran", step.ran]].filter(([, time]) => time >= 0.05);
  const paid = step.usage && step.usage[3] ? [dollars(step.usage[3])] : [];
  title.append(make("span", { class: "soft" }, [...times.map(([name, time]) => `${name} ${duration(time)}`), ...paid].join(", ")));
  article.append(title);
  const thoughts = step.thoughts || {};
  if (thoughts.text) article.append(make("p", {}, thoughts.text));
  const more = Object.entries(thoughts).filter(([name]) => name !== "text");
  if (more.length) article.append(folded("Thoughts", ...more.map(([name, text]) => labelled(name, block(text)))));
  if (step.warning) article.append(make("p", { class: "warn" }, step.warning));
  article.append(...shownCall(step.call?.args || {}, step.preview, step.diff, step.colours));
  if (step.decided) {
    const verdict = step.decided.allowed ? "Allowed" : "Not allowed";
    article.append(make("p", { class: step.decided.allowed ? "soft" : "warn" },
      `${verdict} by ${step.decided.by}${step.decided.reason ? `: ${step.decided.reason}` : ""}${step.risk ? ` (risk: ${step.risk})` : ""}`));
  }
  if (step.result && step.result.text) {
    article.append(labelled(step.outside ? `Result, with text from outside (${step.outside})` : "Result", block(step.result.text)));
  }
  if (step.changed && step.changed.length) article.append(make("p", { class: "soft" }, `Changed: ${step.changed.join(", ")}`));
  for (const [label, text] of step.notes) article.append(labelled(label, text ? block(text) : ""));
  if (step.prompt) article.append(prompt(step));
  return article;
}
