// The report of a fleet: its figures, and a table of its runs that links to the page of each.
const facts = JSON.parse(document.getElementById("facts").textContent);
const rate = (name) => `${facts.figures[name].toFixed(3)} ± ${facts.figures[`${name} standard error`].toFixed(3)}`;

function shownFigures() {
  const { figures } = facts;
  const rates = Object.keys(figures).filter((name) => `${name} standard error` in figures);
  const seconds = facts.rows.reduce((sum, row) => sum + row.seconds, 0);
  const cards = [
    ["Runs", number(figures.runs)], ["Finished", number(figures.finished)], ["Failed", number(figures.failed + figures.stuck)],
    ...rates.map((name) => [name, rate(name)]), ["Cost", dollars(figures.usd)], ["Tokens", number(figures.tokens)],
    ["Steps", number(figures.steps)], ["Time at work", duration(seconds)],
  ].map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  return make("header", {}, make("h1", {}, `Fleet ${facts.name}`), make("p", { class: "soft" }, facts.said), make("dl", { class: "figures" }, ...cards));
}

// How often each task that is repeated was finished.
function tasks() {
  const tries = new Map();
  for (const row of facts.rows) tries.set(row.task, [...(tries.get(row.task) || []), row.status === "finished"]);
  if (tries.size === facts.rows.length) return "";
  const lines = [...tries].map(([task, done]) => {
    const finished = `${done.filter(Boolean).length} of ${done.length} finished`;
    const bars = [...done].sort((one, other) => other - one).map((one, at) => [at, 1, one ? "good" : "bad"]);
    return make("div", { class: "goal" }, `${task}: ${finished}`, strip(finished, done.length, bars));
  });
  return make("section", {}, make("h2", {}, "Repeated tasks"), ...lines);
}

function runs() {
  const [list, show] = listOfRuns(["Run", "Result", "Goals", "Steps", "Tokens", "Cost", "Time", "Why"], (row) => [
    make("td", {}, row.link ? make("a", { href: row.link }, row.id) : row.id),
    make("td", {}, make("span", { class: `badge ${row.status === "finished" ? "good" : "warn"}` }, row.status)),
    make("td", {}, ...row.known.map((state) => badge(state || "open"))),
    make("td", { class: "figure" }, number(row.steps)), make("td", { class: "figure" }, number(row.tokens)),
    make("td", { class: "figure" }, dollars(row.usd) + (row.unknown_usd ? ` (+ ${dollars(row.unknown_usd)}?)` : "")),
    make("td", { class: "figure" }, duration(row.seconds)),
    make("td", { class: "name" }, row.reason, row.again ? make("p", { class: "warn" }, row.again) : ""),
  ]);
  show(facts.rows);
  return make("section", {}, make("h2", {}, "Runs"), ...list);
}

document.getElementById("report").append(shownFigures(), tasks(), runs());
