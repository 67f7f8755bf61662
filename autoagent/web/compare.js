// Two runs side by side: their goals and figures, then the steps from where they part.
const data = JSON.parse(document.getElementById("facts").textContent);
let facts = data.runs[0];

// Draw for one of the runs, whose steps get addresses of their own.
function of(index, draw) {
  facts = data.runs[index];
  const drawn = draw();
  if (index && drawn.id) drawn.id = `other-${drawn.id}`;
  drawn.querySelectorAll?.("header > a[href^='#step']").forEach((link) => index && link.setAttribute("href", `#other-${link.hash.slice(1)}`));
  return drawn;
}
const pair = (one, other) => make("div", { class: "pair" }, make("div", {}, one), make("div", {}, other));
const both = (draw) => pair(of(0, draw), of(1, draw));

const page = document.getElementById("report");
const longer = Math.max(...data.runs.map((run) => run.steps.length));
page.append(both(head), both(goals), both(() => changedFiles() || make("p", { class: "soft" }, "No files changed.")));
page.append(make("h2", {}, data.alike < longer ? `They differ from step ${data.runs.map((run) => run.steps[data.alike]).find(Boolean).step}` : "They are identical"));
if (data.alike)
  page.append(folded(`${number(data.alike)} steps ${data.alike < longer ? "before that " : ""}are alike`,
    ...data.runs[0].steps.slice(0, data.alike).map((step) => of(0, () => shownStep(step)))));
for (let index = data.alike; index < longer; index += 1)
  page.append(pair(...data.runs.map((run, which) => {
    const step = run.steps[index];
    return step ? of(which, () => shownStep(step)) : make("p", { class: "soft" }, "The run has no such step.");
  })));
