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
    const picture = drawn("svg", { viewBox: `0 0 ${done.length} 1`, preserveAspectRatio: "none", class: "strip", role: "img",
      "aria-label": `${done.filter(Boolean).length} of ${done.length} finished` });
    [...done].sort((one, other) => other - one).forEach((one, at) => picture.append(drawn("rect", { x: at, y: 0, width: 1, height: 1, class: one ? "good" : "bad" })));
    return make("div", { class: "goal" }, `${task}: ${done.filter(Boolean).length} of ${done.length} finished`, picture);
  });
  return make("section", {}, make("h2", {}, "Repeated tasks"), ...lines);
}

function runs() {
  const search = make("input", { type: "search", placeholder: "Search the runs", "aria-label": "Search the runs" });
  const found = make("span", { class: "soft", role: "status" });
  const heads = ["Run", "Result", "Goals", "Steps", "Tokens", "Cost", "Time", "Why"];
  const body = make("tbody");
  const draw = () => {
    const fit = facts.rows.filter((row) => JSON.stringify(Object.values(row)).toLowerCase().includes(search.value.toLowerCase()));
    found.textContent = `${number(fit.length)} of ${number(facts.rows.length)} runs`;
    body.replaceChildren(...fit.map((row) => make("tr", {},
      make("td", {}, row.link ? make("a", { href: row.link }, row.id) : row.id),
      make("td", {}, make("span", { class: `badge ${row.status === "finished" ? "good" : "warn"}` }, row.status)),
      make("td", {}, ...row.known.map((state) => badge(state || "open"))),
      make("td", { class: "figure" }, number(row.steps)), make("td", { class: "figure" }, number(row.tokens)),
      make("td", { class: "figure" }, dollars(row.usd) + (row.unknown_usd ? ` (+ ${dollars(row.unknown_usd)}?)` : "")),
      make("td", { class: "figure" }, duration(row.seconds)),
      make("td", { class: "name" }, row.reason, row.again ? make("p", { class: "warn" }, row.again) : ""))));
  };
  search.addEventListener("input", draw);
  draw();
  return make("section", {}, make("h2", {}, "Runs"), make("div", { class: "bar" }, search, found),
    make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Runs" },
      make("table", { class: "list" }, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), body)));
}

document.getElementById("report").append(shownFigures(), tasks(), runs());
