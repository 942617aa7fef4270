// The choices of the page. They are kept in its address, so that a link holds a view.

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const streams = Object.keys(data.streams);
  const tabs = [...document.querySelectorAll(".measure")];
  const measures = tabs.map((tab) => tab.dataset.measure);
  const state = {};
  document.documentElement.classList.add("js");

  const QUANTITIES = {
    all: "accuracy, all tasks",
    seen: "accuracy, tasks so far",
    reservoir: "reservoir count",
    variance: "class variance of the memory",
  };

  const one = (wanted, known) => (known.includes(wanted) ? wanted : known[0]);
  const here = () => data.streams[state.stream];
  const chosen = () => here().methods.filter((method) => state.methods.has(method));

  function quantityName(name) {
    const title = QUANTITIES[name] ?? `accuracy, ${name}`;
    return here().percent ? title : title.replace("accuracy", "score");
  }

  function runsHere() {
    return data.runs.filter((run) => run.stream === state.stream
      && run.imbalance === state.imbalance);
  }

  const runHere = () => data.runs.find((run) => run.key === state.run);
  const snapshots = () => runHere()?.images?.snapshots ?? [];

  // Choices that are not there become the first that is.
  function settle(wanted) {
    state.measure = one(wanted.measure, measures);
    state.stream = one(wanted.stream, streams);
    state.imbalance = one(Number(wanted.imbalance), here().imbalances);
    const all = Object.keys(data.methods);
    state.methods = wanted.methods ?? new Set(all);
    state.paper = [true, "yes"].includes(wanted.paper);
    const known = Object.keys(here().curves[state.imbalance] ?? {});
    const order = ["all", "seen", "reservoir", "variance"];
    const tasks = known.filter((name) => !order.includes(name));
    state.quantities = [...order.filter((name) => known.includes(name)), ...tasks];
    state.quantity = one(wanted.quantity, state.quantities);
    const seeds = [...new Set(runsHere().map((run) => run.seed))].sort((a, b) => a - b);
    state.seeds = ["mean", ...seeds.map(String)];
    state.seed = one(wanted.seed, state.seeds);
    state.run = one(wanted.run, runsHere().map((run) => run.key));
    // A number, not a step: it means much the same in runs whose tasks end elsewhere.
    const numbers = snapshots().slice(1).map((_, number) => String(number + 1));
    state.snapshot = one(String(wanted.snapshot), ["last", ...numbers]);
  }

  function fromAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const wanted = Object.fromEntries(given);
    if (given.has("methods")) {
      wanted.methods = new Set(given.getAll("methods").filter((each) => each));
    } else {
      delete wanted.methods;
    }
    settle(wanted);
  }

  function toAddress() {
    const told = new URLSearchParams();
    for (const name of ["measure", "stream", "imbalance", "quantity", "seed", "run",
      "snapshot"]) {
      if (state[name] !== undefined) told.set(name, state[name]);
    }
    if (state.methods.size < Object.keys(data.methods).length) {
      for (const method of state.methods) told.append("methods", method);
      if (!state.methods.size) told.set("methods", "");
    }
    if (state.paper) told.set("paper", "yes");
    history.replaceState(null, "", `#${told}`);
  }

  function change(name, value) {
    settle({ ...state, [name]: value });
    toAddress();
    render();
  }

  function fill(id, values, value, name = String) {
    const select = at(id);
    select.replaceChildren();
    for (const each of values) {
      select.append(new Option(name(each), each, false, each === value));
    }
    select.disabled = values.length < 2;
  }

  function renderControls() {
    fill("stream", streams, state.stream);
    fill("imbalance", here().imbalances, state.imbalance, (r) => `r = ${r}`);
    fill("quantity", state.quantities, state.quantity, quantityName);
    fill("seed", state.seeds, state.seed,
      (seed) => (seed === "mean" ? "mean of all" : seed));
    const runs = runsHere();
    fill("run", runs.map((run) => run.key), state.run, (key) => {
      const run = runs.find((each) => each.key === key);
      return `${run.method}, seed ${run.seed}`;
    });
    for (const input of document.querySelectorAll("#methods input")) {
      input.checked = state.methods.has(input.value);
      input.parentElement.hidden = !here().methods.includes(input.value);
      input.parentElement.style.display = input.parentElement.hidden ? "none" : "";
    }
    const papers = here().measures[state.measure]?.paper ?? {};
    at("paper").checked = state.paper;
    at("paper").parentElement.style.display =
      Object.values(papers).flat().some((cell) => cell) ? "" : "none";
    for (const input of document.querySelectorAll("#measures input")) {
      input.checked = input.value === state.measure;
    }
    for (const tab of tabs) tab.hidden = tab.dataset.measure !== state.measure;
  }

  function renderAgainst() {
    const measure = here().measures[state.measure];
    const title = measure ? measure.title : state.measure;
    const unit = here().percent ? " (%)" : "";
    at("against-title").textContent = `${title}${unit} against imbalance`;
    const lines = chosen().map((method) => ({
      name: method,
      look: data.methods[method],
      markers: true,
      points: (measure ? measure.cells[method] : []).flatMap((cell, index) => (cell
        ? [{ x: here().imbalances[index], y: cell[0], low: cell[1], high: cell[2],
          error: cell[3], count: cell[4] }] : [])),
    })).filter((line) => line.points.length);
    if (state.paper) lines.push(...paperLines(measure));
    drawLines(at("against"), lines, {
      label: at("against-title").textContent,
      empty: chosen().length ? "No such number here" : "Choose at least one method",
      log: true,
      xTicks: here().imbalances,
      xLabel: "imbalance r",
      xTitle: (r) => `r = ${r}`,
      format: (point) => {
        if (point.count === undefined) {
          return `${point.y.toFixed(2)} \u00b1 ${point.error.toFixed(2)}`
            .replace("-", "\u2212");
        }
        const digits = here().percent ? 2 : 4;
        const [y, low, high] = [point.y, point.low, point.high].map(
          (value) => value.toFixed(digits).replace("-", "\u2212"));
        const seeds = `${point.count} seed${point.count === 1 ? "" : "s"}`;
        return point.count > 1 ? `${y} [${low}, ${high}], ${seeds}` : `${y}, ${seeds}`;
      },
    });
  }

  function paperLines(measure) {
    return chosen().map((method) => ({
      name: method,
      look: data.methods[method],
      markers: true,
      paper: true,
      points: (measure ? measure.paper[method] : []).flatMap((cell, index) => (cell
        ? [{ x: here().imbalances[index], y: cell[0], error: cell[1] }] : [])),
    })).filter((line) => line.points.length);
  }

  function alongLines() {
    if (state.seed === "mean") {
      const curves = (here().curves[state.imbalance] ?? {})[state.quantity] ?? {};
      return chosen().filter((method) => curves[method]).map((method) => {
        const [steps, mean, low, high] = curves[method];
        return { name: method, look: data.methods[method], band: true,
          points: steps.map((x, n) => ({ x, y: mean[n], low: low[n], high: high[n] })) };
      });
    }
    return runsHere().filter((run) => String(run.seed) === state.seed
      && state.methods.has(run.method) && run.series[state.quantity]).map((run) => ({
      name: run.method, look: data.methods[run.method], ends: run.ends,
      points: run.steps.map((x, n) => ({ x, y: run.series[state.quantity][n] }))
        .filter((point) => point.y !== null),
    }));
  }

  function renderAlong() {
    const name = state.quantity ? quantityName(state.quantity) : "Scores";
    const score = !["reservoir", "variance"].includes(state.quantity);
    at("along-title").textContent = `Along the stream, r = ${state.imbalance}`;
    const lines = alongLines();
    // Of a run that diverged, nobody knows where its tasks would have ended.
    const known = (state.seed === "mean" ? runsHere() : lines)
      .map((each) => each.ends).filter((ends) => ends.length);
    // At imbalance, each seed has its tasks end elsewhere.
    const same = known.every((each) => String(each) === String(known[0]));
    drawLines(at("along"), lines, {
      label: `${name} along the stream`,
      empty: chosen().length ? "No evaluations along the stream"
        : "Choose at least one method",
      xLabel: "step",
      ends: same ? known[0] : [],
      xTitle: (step) => `step ${Math.round(step)}`,
      format: (point) => (score && here().percent ? point.y.toFixed(1) : shortNumber(point.y)),
    });
    at("along-note").textContent = !lines.length ? "" : (state.seed === "mean"
      ? "Mean over seeds with 95 % bootstrap intervals. " : "")
      + (same ? ((known[0] ?? []).length ? "Dotted lines are ends of tasks." : "")
        : "Tasks end at different steps in each seed: choose one to see where.");
  }

  let frameStep = () => {};

  function renderMemory() {
    const run = runHere();
    const several = snapshots().length > 1;
    frameStep = drawCounts(at("counts"), run, several ? chooseStep : null);
    at("counts-note").textContent = run && run.series.counts
      ? "The stronger the color, the more items. Orange lines are ends of tasks."
        + (several ? " The framed column is the one whose items are shown below." : "") : "";
    renderItems();
  }

  function renderItems() {
    const known = snapshots();
    const number = state.snapshot === "last" ? known.length : Number(state.snapshot);
    const shown = known[number - 1];
    at("along-items").hidden = known.length < 2;
    at("images-title").textContent = known.length === 1 ? "Items at the end of the run"
      : "Items in memory";
    if (!shown) {
      at("images").replaceChildren();
      at("images-note").textContent = tellNoImages(data.runs.some((run) => run.images));
      return;
    }
    const place = tellPlace(runHere(), shown.step);
    Object.assign(at("snapshot"), { max: known.length, value: number });
    at("snapshot").setAttribute("aria-valuetext", place);
    at("snapshot-place").textContent = place;
    drawImages(at("images"), at("images-note"), runHere().images, shown);
    if (known.length > 1) frameStep(shown.step);
  }

  // The rest of the page stays as it is: the slider is to follow the finger.
  function chooseSnapshot(number) {
    settle({ ...state, snapshot: number });
    toAddress();
    renderItems();
  }

  function chooseStep(step) {
    chooseSnapshot(nearest(snapshots().map((each) => each.step), step) + 1);
  }

  function render() {
    renderControls();
    renderAgainst();
    renderAlong();
    renderMemory();
  }

  for (const tab of tabs) {
    const label = html("label", {}, at("measures"));
    html("input", { type: "radio", name: "measure", value: tab.dataset.measure,
      onchange: () => change("measure", tab.dataset.measure) }, label);
    label.append(tab.dataset.title);
  }
  for (const [method, look] of Object.entries(data.methods)) {
    const label = html("label", {}, at("methods"));
    html("input", { type: "checkbox", value: method, onchange: (event) => {
      const methods = new Set(state.methods);
      if (event.target.checked) methods.add(method); else methods.delete(method);
      change("methods", methods);
    } }, label);
    swatch(look, label);
    label.append(method);
  }
  for (const name of ["stream", "quantity", "seed", "run"]) {
    at(name).onchange = (event) => change(name, event.target.value);
  }
  at("snapshot").oninput = (event) => chooseSnapshot(event.target.value);
  at("paper").onchange = (event) => change("paper", event.target.checked);
  at("imbalance").onchange = (event) => change("imbalance", Number(event.target.value));
  for (const cell of document.querySelectorAll(".command")) {
    const code = cell.querySelector("code");
    if (!code) continue;
    const button = html("button", { type: "button", onclick: async () => {
      // Pages that were opened from a file may not have a clipboard.
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } }, null, "Copy");
    button.setAttribute("aria-label", "Copy the command");
    cell.prepend(button);
  }
  addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return; // a link to a section
    fromAddress();
    render();
  });
  fromAddress();
  render();
  let width = innerWidth;
  addEventListener("resize", () => {
    // The height changes when a phone hides its address bar.
    if (innerWidth !== width) render();
    width = innerWidth;
  });
})();
