// The timeline of a run, a lane for each agent. Only what is in sight is drawn, so that it can be zoomed far.

const LANE = 26, AXIS = 20, BARS = 1000; // px, and steps drawn in a lane; more are left out evenly
const zoomed = { factor: 1, left: 0 }; // kept when it is drawn anew
const TICKS = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800];
const KINDS = [["think", "model", "thought_for"], ["wait", "waiting for an answer", "waited"], ["work", "command", "ran"]];

// The lane of a step: a role of a team has one with the agents that it starts.
const laneOf = (step) => (facts.roles?.length ? step.agent.split(".")[0] : step.agent);
const nameOf = (step) => step.call?.name || step.notes.map(([label]) => label).join(", ");

function timeline() {
  const steps = facts.steps;
  let first = Infinity, last = 0;
  const lanes = new Map();
  for (const step of steps) {
    first = Math.min(first, step.t);
    last = Math.max(last, step.end);
    if (!lanes.has(laneOf(step))) lanes.set(laneOf(step), []);
    lanes.get(laneOf(step)).push(step);
  }
  if (!lanes.size) return "";
  const whole = Math.max(last - first, 0.001);
  const height = AXIS + LANE * lanes.size;
  const picture = drawn("svg", { role: "img", height, "aria-label": `${number(steps.length)} steps in ${duration(whole)}` });
  const space = make("div", { class: "space" });
  const names = [...lanes.keys()].map((agent) => make("span", { title: named(agent) }, named(agent) || "the run"));
  const box = make("div", { class: "lanes", tabindex: "0", role: "group", "aria-label": "Timeline; + and − zoom" }, space, picture);
  box.style.height = `${height + 16}px`;

  function draw() {
    const width = box.clientWidth;
    if (!width) return;
    zoomed.left = box.scrollLeft;
    const perSecond = (width * zoomed.factor) / whole;
    const x = (time) => (time - first) * perSecond - box.scrollLeft;
    picture.setAttribute("width", width);
    const shapes = [];
    const tick = TICKS.find((one) => one * perSecond >= 90) || TICKS.at(-1);
    for (let at = Math.floor(box.scrollLeft / perSecond / tick) * tick; x(first + at) < width; at += tick) {
      const label = drawn("text", { x: x(first + at) + 4, y: 13, class: "tick" });
      label.textContent = tick < 1 ? `${Number(at.toFixed(3))} s` : duration(at);
      shapes.push(drawn("path", { d: `M${x(first + at)} 0V${height}`, class: "grid" }), label);
    }
    [...lanes.values()].forEach((all, lane) => {
      const seen = all.filter((step) => x(step.end) > -2 && x(step.t) < width + 2);
      const every = Math.ceil(seen.length / BARS);
      for (const step of seen.filter((one, index) => index % every === 0)) shapes.push(bar(step, x, perSecond, AXIS + lane * LANE));
    });
    picture.replaceChildren(...shapes);
  }
  function zoom(factor, at = box.clientWidth / 2) {
    const before = zoomed.factor;
    zoomed.factor = Math.min(Math.max(1, factor), Math.max(1, 4 * steps.length));
    space.style.width = `${100 * zoomed.factor}%`;
    box.scrollLeft = ((box.scrollLeft + at) * zoomed.factor) / before - at;
    draw();
  }
  const plus = make("button", { type: "button", "aria-label": "Zoom in" }, "+");
  const minus = make("button", { type: "button", "aria-label": "Zoom out" }, "−");
  const fit = make("button", { type: "button" }, "Fit");
  plus.addEventListener("click", () => zoom(zoomed.factor * 2));
  minus.addEventListener("click", () => zoom(zoomed.factor / 2));
  fit.addEventListener("click", () => zoom(1));
  box.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(zoomed.factor * (event.deltaY < 0 ? 1.25 : 0.8), event.clientX - box.getBoundingClientRect().left);
  }, { passive: false });
  box.addEventListener("keydown", (event) => {
    if (event.key === "+") zoom(zoomed.factor * 2);
    if (event.key === "-") zoom(zoomed.factor / 2);
  });
  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  picture.addEventListener("click", (event) => {
    const to = event.target.closest("g[data-step]");
    if (to) location.hash = to.dataset.step;
  });
  new ResizeObserver(() => {
    space.style.width = `${100 * zoomed.factor}%`;
    if (zoomed.left) box.scrollLeft = zoomed.left;
    draw();
  }).observe(box);
  const key = make("p", { class: "key soft" }, minus, plus, fit);
  for (const [kind, text] of KINDS) key.append(make("i", { class: kind }), text);
  key.append(make("i", { class: "failed" }), "failed", make("b", { class: "retry" }, "▾"), "asked again");
  return make("section", {}, make("h2", {}, "Timeline"), key, make("div", { class: "timeline" }, make("div", { class: "names" }, ...names), box));
}

// One step, with its times one after another. The rest of its time is the program's own.
function bar(step, x, perSecond, top) {
  const left = x(step.t), wide = Math.max(1.5, (step.end - step.t) * perSecond);
  const group = drawn("g", { "data-step": place(step) });
  const title = drawn("title", {});
  const times = KINDS.map(([kind, text, field]) => [kind, text, step[field] || 0]).filter(([, , time]) => time > 0);
  const retried = step.retries ? `, asked again ${step.retries} times` : "";
  title.textContent = `Step ${step.step}: ${nameOf(step)}${retried}\n${times.map(([, text, time]) => `${text} ${duration(time)}`).join(", ")}`;
  group.append(title, drawn("rect", { x: left, y: top + 3, width: wide, height: LANE - 6, class: "base" }));
  const scale = wide / Math.max(step.end - step.t, times.reduce((sum, [, , time]) => sum + time, 0), 1e-9);
  let at = left;
  for (const [kind, , time] of times) {
    group.append(drawn("rect", { x: at, y: top + 3, width: Math.max(0.5, time * scale), height: LANE - 6, class: kind }));
    at += time * scale;
  }
  if (step.result && !step.result.ok)
    group.append(drawn("rect", { x: left, y: top + LANE - 6, width: Math.max(3, wide), height: 3, class: "failed" }));
  if (step.retries) group.append(drawn("path", { d: `M${left} ${top}h8l-4 6z`, class: "retry" }));
  return group;
}
