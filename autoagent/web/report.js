// The report of a run: all its facts are in the page.
const facts = JSON.parse(document.getElementById("facts").textContent);
source = {
  prompt: async (step) => facts.prompts[step.prompt.seq] || null,
  content: async (id) => {
    const [text, colours] = facts.states.contents[id] || [];
    return text === undefined ? null : [textOf(text), colours];
  },
};

function files() {
  if (!facts.states.changes?.length) return changedFiles();
  return make("section", {}, make("h2", {}, "Files, at each step"), filesAtSteps(facts.states));
}

function steps() {
  const articles = facts.steps.map(shownStep);
  const texts = facts.steps.map((step) => JSON.stringify(step).toLowerCase());
  const found = make("span", { class: "soft", role: "status" }, `${number(articles.length)} shown`);
  const search = make("input", { type: "search", placeholder: "Search the steps", "aria-label": "Search the steps" });
  search.addEventListener("input", () => {
    const word = JSON.stringify(search.value.toLowerCase()).slice(1, -1);
    let count = 0;
    articles.forEach((article, index) => {
      article.hidden = !texts[index].includes(word);
      count += article.hidden ? 0 : 1;
    });
    found.textContent = `${number(count)} shown`;
  });
  const open = make("button", { type: "button" }, "Open all");
  open.addEventListener("click", () => {
    const opens = open.textContent === "Open all";
    document.querySelectorAll("details").forEach((one) => (one.open = opens));
    open.textContent = opens ? "Close all" : "Open all";
  });
  return make("section", {}, make("h2", {}, "Steps"), make("div", { class: "bar" }, search, found, open), ...articles);
}

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
document.getElementById("report").append(head(), goals(), lanes(), timeline(), charts(), files(), steps());
if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
