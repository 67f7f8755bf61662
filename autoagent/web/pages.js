"use strict";
// The parts of the pages that show a run: the report and the live view. They read `facts`, which the page defines.
// Everything is set as text, so that nothing in a run can become markup.

function make(kind, attributes = {}, ...inside) {
  const element = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside.filter((one) => one !== null && one !== ""));
  return element;
}

function drawn(kind, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const number = (value) => value.toLocaleString("en");
const dollars = (value) => `$${value.toFixed(4)}`;
const duration = (seconds) =>
  seconds < 60 ? `${seconds.toFixed(seconds < 10 ? 1 : 0)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
const labelled = (label, ...inside) => make("div", {}, make("p", { class: "label" }, label), ...inside);
const block = (text) => make("pre", { tabindex: "0" }, text);
const folded = (title, ...inside) => make("details", {}, make("summary", {}, title), ...inside);
const place = (step) => `${step.agent ? `agent-${step.agent}-` : ""}step-${step.step}`;
const most = (values) => values.reduce((one, other) => Math.max(one, other), 0);
const named = (agent) => `${facts.agents[agent] || ""} ${agent}`.trim();

const KNOWN = { checked: "good", shown: "good", accepted: "good", claimed: "warn", unmet: "bad" };
const MEANS = {
  checked: "its check passed", shown: "a verifier found evidence", accepted: "you accepted it",
  claimed: "the agent says so, nothing shows it", unmet: "the agent says that it cannot be met",
};

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
    const evidence = [];
    const last = goal.checks.at(-1);
    if (goal.check) evidence.push(labelled("Check", block(goal.check)));
    for (const check of goal.checks.slice(-3))
      evidence.push(labelled(`At step ${check.step}: ${check.met ? "met" : "not met"}`, block(check.output)));
    if (goal.verdict) {
      evidence.push(labelled(`Verifier (${goal.verdict.model}): ${goal.verdict.finding}`,
        ...[goal.verdict.evidence, goal.verdict.why].filter(Boolean).map(block)));
    }
    const how = goal.proof
      ? make("span", { class: `badge ${KNOWN[goal.proof] || "warn"}`, title: MEANS[goal.proof] || "" }, goal.proof)
      : last
        ? make("span", { class: `badge ${last.met ? "good" : "warn"}` }, last.met ? "its check passed" : "its check failed")
        : make("span", { class: "badge warn" }, "open");
    const title = make("span", {}, `${index + 1}. ${goal.text} `, how, make("span", { class: "soft" }, ` ${MEANS[goal.proof] || ""}`));
    return make("div", { class: "goal" }, evidence.length ? folded(title, ...evidence) : title);
  });
  return make("section", {}, make("h2", {}, "Goals, and how each is known"), ...shown);
}

const BARS = 1000; // in a lane of the timeline; further steps are left out evenly

function timeline() {
  let first = Infinity, last = 0;
  const agents = new Map();
  for (const step of facts.steps) {
    first = Math.min(first, step.t);
    last = Math.max(last, step.end);
    if (!agents.has(step.agent)) agents.set(step.agent, []);
    agents.get(step.agent).push(step);
  }
  const whole = last - first || 1;
  const tracks = [];
  const lanes = [...agents].map(([agent, all]) => {
    const track = make("div", { class: "track" });
    tracks.push(track);
    const every = Math.ceil(all.length / BARS);
    for (const step of all.filter((one, index) => index % every === 0)) {
      const parts = [["think", step.thought_for], ["wait", step.waited], ["work", step.ran]].filter(([, time]) => time > 0);
      const name = step.call ? step.call.name : step.notes.map(([label]) => label).join(", ");
      const failed = step.result && !step.result.ok ? "failed" : "";
      const bar = make("a", { href: `#${place(step)}`, class: failed, title: `Step ${step.step}: ${name}`,
        "aria-label": `Step ${step.step}: ${name}` });
      bar.style.left = `${(100 * (step.t - first)) / whole}%`;
      bar.style.width = `${(100 * (step.end - step.t)) / whole}%`;
      const sum = parts.reduce((total, [, time]) => total + time, 0);
      for (const [kind, time] of parts) {
        const part = make("i", { class: kind });
        part.style.width = `${(100 * time) / Math.max(sum, step.end - step.t)}%`;
        bar.append(part);
      }
      track.append(bar);
    }
    return make("div", { class: "lane" }, make("span", { title: named(agent) }, named(agent)), track);
  });
  const zoom = make("input", { type: "range", min: "1", max: "40", value: "1", "aria-label": "Zoom of the timeline" });
  const size = () => tracks.forEach((track) => (track.style.width = `calc((min(100vw, 76rem) - 12rem) * ${zoom.value})`));
  zoom.addEventListener("input", size);
  size();
  const key = make("p", { class: "key soft" }, "Zoom ", zoom);
  for (const [kind, text] of [["think", "model"], ["work", "command"], ["wait", "waiting for an answer"]])
    key.append(make("i", { class: kind }), text);
  return make("section", {}, make("h2", {}, "Timeline"), key,
    make("div", { class: "lanes", tabindex: "0", role: "group", "aria-label": "Timeline, a lane for each agent" }, ...lanes));
}

function chart(title, all) {
  const every = Math.ceil(all.length / BARS);
  const values = all.filter((one, index) => index % every === 0 || index === all.length - 1);
  const highest = Math.max(most(values), 1e-9);
  const points = values.map((value, index) => `${(100 * index) / Math.max(1, values.length - 1)},${40 - (38 * value) / highest}`);
  const picture = drawn("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": title });
  picture.append(drawn("path", { d: `M${points.join("L")}` }));
  return make("figure", {}, picture, make("figcaption", {}, title));
}

function charts() {
  const steps = facts.steps.filter((step) => step.usage);
  if (steps.length < 2 || !facts.tokens[0]) return "";
  let paid = 0;
  const money = steps.map((step) => (paid += step.usage[3]));
  const share = steps.map((step) => (step.usage[0] ? step.usage[1] / step.usage[0] : 0));
  const prompts = steps.map((step) => step.usage[0]);
  return make("section", {}, make("h2", {}, "Tokens and money"), make("div", { class: "charts" },
    chart(`Tokens in a prompt, at most ${number(most(prompts))}`, prompts),
    paid ? chart(`Money so far, ${dollars(paid)} in the end`, money) : "",
    chart(`Share of the prompt that the provider had cached, at most ${Math.round(100 * most(share))} %`, share)));
}

function files() {
  if (!facts.files.length) return "";
  const lines = facts.files.map(([path, added, removed]) => make("li", {}, path + " ",
    make("span", { class: "good" }, added ? `+${added}` : ""), " ", make("span", { class: "bad" }, removed ? `−${removed}` : "")));
  return make("section", {}, make("h2", {}, "Files changed"), make("ul", {}, ...lines));
}

function difference(text) {
  const rows = [];
  let cut = [], added = [];
  const flush = () => {
    for (let at = 0; at < Math.max(cut.length, added.length); at += 1)
      rows.push([cut[at] === undefined ? ["", ""] : ["cut", cut[at]], added[at] === undefined ? ["", ""] : ["add", added[at]]]);
    cut = [];
    added = [];
  };
  for (const line of text.split("\n").slice(2)) { // after the names of the files
    if (line.startsWith("-")) cut.push(line.slice(1));
    else if (line.startsWith("+")) added.push(line.slice(1));
    else {
      flush();
      const kind = line.startsWith("@@") ? "soft" : "";
      rows.push([[kind, line.replace(/^ /, "")], [kind, line.replace(/^ /, "")]]);
    }
  }
  flush();
  const cells = (row) => make("tr", {}, ...row.map(([kind, line]) => make("td", { class: kind }, line)));
  const title = text.split("\n", 2).map((line) => line.slice(4)).join(" → ");
  return labelled(title, make("div", { class: "diff", tabindex: "0" }, make("table", { class: "narrow" }, ...rows.map(cells))));
}

function prompt(step) {
  const parts = [`${number(step.prompt.tokens)} tokens: ${number(facts.system_tokens)} of system message and tools, the rest history, facts of the moment and memories.`];
  if (step.prompt.left) parts.push(step.prompt.left);
  const memories = step.recalled || [];
  return folded(`Prompt, ${number(step.prompt.tokens)} tokens, ${memories.length} memories`,
    ...parts.map((text) => make("p", {}, text)), step.prompt.files ? block(step.prompt.files) : "",
    memories.length ? labelled(`Memories found${step.left_out ? `, ${step.left_out} more left out` : ""}`, ...memories.map(block)) : "");
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
  const isDifference = (step.preview || "").startsWith("--- ");
  const args = step.call ? Object.entries(step.call.args) : [];
  const whole = args.map(([name, text]) => labelled(name, block(text)));
  if (isDifference) article.append(difference(step.preview), folded("Arguments", ...whole));
  else article.append(...whole);
  if (step.preview && !isDifference) article.append(make("p", { class: "soft" }, step.preview));
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
