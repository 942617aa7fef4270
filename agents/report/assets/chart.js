"use strict";
// Lines and points as SVG, with a cursor that the mouse, a finger or the arrow keys move.

const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 4", "2 3", "10 3 2 3"];
const MARKERS = [
  (r) => `M${-r},0A${r},${r} 0 1 0 ${r},0A${r},${r} 0 1 0 ${-r},0Z`,
  (r) => `M${-r},${-r}H${r}V${r}H${-r}Z`,
  (r) => `M0,${-1.3 * r}L${1.2 * r},${r}H${-1.2 * r}Z`,
  (r) => `M0,${-1.4 * r}L${1.4 * r},0L0,${1.4 * r}L${-1.4 * r},0Z`,
  (r) => `M0,${1.3 * r}L${1.2 * r},${-r}H${-1.2 * r}Z`,
];

function svg(name, attributes, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function html(name, attributes, parent, text) {
  const made = document.createElement(name);
  Object.assign(made, attributes);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function niceTicks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) {
    ticks.push(Number((n * step).toPrecision(12)));
  }
  return ticks;
}

function shortNumber(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return String(Number(value.toPrecision(4))).replace("-", "\u2212");
}

function swatch(look, parent) {
  const box = svg("svg", { width: 26, height: 14, "aria-hidden": "true" }, parent);
  const color = `var(--${look.color})`;
  svg("line", { x1: 1, x2: 25, y1: 7, y2: 7, stroke: color, "stroke-width": 2.5,
    "stroke-dasharray": DASHES[look.dash % DASHES.length] }, box);
  svg("path", { d: MARKERS[look.marker % MARKERS.length](4), fill: color,
    transform: "translate(13,7)" }, box);
  return box;
}

function emptyPlot(box, text) {
  const width = Math.max(box.clientWidth, 280);
  const plot = svg("svg", { viewBox: `0 0 ${width} 80`, role: "img", "aria-label": text });
  svg("text", { x: width / 2, y: 44, "text-anchor": "middle", class: "empty" }, plot, text);
  box.replaceChildren(plot);
}

/* Draw lines: [{name, look, points: [{x, y, low, high}], markers, band, paper}].
   Those of the paper are thin with hollow markers.
   options: label, xLabel, xTicks (else from the data), log, ends (dashed lines),
   format (of y), xTitle (of the cursor's place). */
function drawLines(box, lines, options) {
  const points = lines.flatMap((line) => line.points);
  if (!points.length) {
    emptyPlot(box, options.empty);
    return;
  }
  const width = Math.max(box.clientWidth, 280);
  const height = Math.round(Math.min(360, Math.max(250, width * 0.58)));
  const left = 52, right = 14, top = 10, bottom = 42;
  const plot = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0,
    "aria-label": `${options.label}. Arrow keys move through the values.` });

  const xs = [...new Set(points.map((point) => point.x))].sort((a, b) => a - b);
  const warp = options.log ? Math.log : (value) => value;
  const pad = options.log ? 0.09 : 0;
  const first = warp(xs[0]), last = warp(xs[xs.length - 1]);
  const inner = width - left - right;
  const atX = (value) => {
    const share = last > first ? (warp(value) - first) / (last - first) : 0.5;
    return left + inner * (pad + (1 - 2 * pad) * share);
  };
  const ends = points.flatMap((point) => [point.low ?? point.y, point.high ?? point.y]);
  let low = Math.min(...ends), high = Math.max(...ends);
  const room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  low -= low >= 0 && low < room ? low : room;
  high += room;
  const atY = (value) => top + (height - top - bottom) * (high - value) / (high - low);

  for (const tick of niceTicks(low, high, 7)) {
    const y = atY(tick);
    svg("line", { x1: left, x2: width - right, y1: y, y2: y, class: "grid" }, plot);
    svg("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, plot, shortNumber(tick));
  }
  for (const tick of options.xTicks ?? niceTicks(xs[0], xs[xs.length - 1], width / 90)) {
    svg("text", { x: atX(tick), y: height - bottom + 18, "text-anchor": "middle" }, plot,
      shortNumber(tick));
  }
  svg("text", { x: left + inner / 2, y: height - 6, "text-anchor": "middle" }, plot,
    options.xLabel);
  for (const end of options.ends ?? []) {
    svg("line", { x1: atX(end), x2: atX(end), y1: top, y2: height - bottom, class: "end" },
      plot);
  }
  const cursor = svg("line", { y1: top, y2: height - bottom, class: "cursor",
    visibility: "hidden" }, plot);
  const names = [...new Set(lines.map((line) => line.name))];
  // Points at the same place would hide each other's intervals.
  const gap = xs.length > 1 ? 0.6 * inner / xs.length : 0.8 * inner;
  const apart = Math.min(xs.length > 1 ? 6 : 48, gap / names.length);
  lines.forEach((line) => {
    const middle = (names.length - 1) / 2;
    const shift = line.markers ? apart * (names.indexOf(line.name) - middle) : 0;
    drawLine(plot, line, (value) => atX(value) + shift, atY);
  });
  box.replaceChildren(plot);
  addTip(box, plot, xs, {
    place: (index) => atX(xs[index]),
    nearest: (x) => nearest(xs.map(atX), x),
    scale: width,
    tell: (index) => tellLines(lines, xs, index, options),
    mark: (index) => {
      cursor.setAttribute("visibility", index === null ? "hidden" : "visible");
      if (index === null) return;
      cursor.setAttribute("x1", atX(xs[index]));
      cursor.setAttribute("x2", atX(xs[index]));
    },
  });
}

function drawLine(plot, line, atX, atY) {
  const color = `var(--${line.look.color})`;
  const group = svg("g", { "data-method": line.name, stroke: color, fill: color }, plot);
  const known = line.points;
  if (line.band) {
    const there = known.map((p) => `${atX(p.x).toFixed(1)},${atY(p.high).toFixed(1)}`);
    const back = known.map((p) => `${atX(p.x).toFixed(1)},${atY(p.low).toFixed(1)}`);
    svg("path", { d: `M${[...there, ...back.reverse()].join("L")}Z`, stroke: "none",
      "fill-opacity": 0.16 }, group);
  }
  const path = known.map((p) => `${atX(p.x).toFixed(1)},${atY(p.y).toFixed(1)}`);
  svg("path", { d: `M${path.join("L")}`, fill: "none", 
    "stroke-width": line.paper ? 1 : 2.2, "stroke-linejoin": "round",
    "stroke-dasharray": line.paper ? "1 4" : DASHES[line.look.dash % DASHES.length] },
  group);
  if (!line.markers) return;
  for (const point of known) {
    const x = atX(point.x);
    if (point.high > point.low && !line.paper) {
      svg("path", { d: `M${x - 4},${atY(point.high)}h8M${x},${atY(point.high)}V${
        atY(point.low)}M${x - 4},${atY(point.low)}h8`, "stroke-width": 1.5, fill: "none" },
      group);
    }
    svg("path", { d: MARKERS[line.look.marker % MARKERS.length](line.paper ? 5 : 4.2),
      stroke: line.paper ? color : "none", fill: line.paper ? "none" : color,
      "stroke-width": 1.5, transform: `translate(${x},${atY(point.y)})` }, group);
  }
}

function tellLines(lines, xs, index, options) {
  const x = xs[index];
  const told = [];
  for (const line of lines) {
    const places = line.points.map((point) => point.x);
    const point = line.points[nearest(places, x)];
    // Runs of different methods may have been evaluated at other steps.
    const gap = xs.length > 1 ? (xs[xs.length - 1] - xs[0]) / 20 : 0;
    if (point && Math.abs(point.x - x) <= (options.log ? 0 : gap)) {
      told.push({ look: line.look, y: point.y,
        text: `${line.name} ${line.paper ? "in the paper " : ""}${options.format(point)}` });
    }
  }
  told.sort((a, b) => b.y - a.y);
  return { title: options.xTitle(x), rows: told };
}

function nearest(values, wanted) {
  let best = 0;
  values.forEach((value, index) => {
    if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = index;
  });
  return best;
}

/* A tip that follows the mouse, a finger or the arrow keys. */
function addTip(box, plot, values, how) {
  const tip = html("div", { className: "tip", hidden: true }, box);
  tip.setAttribute("role", "status");
  let index = null;
  const show = (wanted) => {
    index = wanted;
    how.mark(index);
    tip.hidden = index === null;
    if (index === null) return;
    const told = how.tell(index);
    tip.replaceChildren();
    html("b", {}, tip, told.title);
    for (const row of told.rows) {
      const line = html("span", {}, tip);
      if (row.look) swatch(row.look, line);
      line.append(row.text);
    }
    const x = how.place(index) * box.clientWidth / how.scale;
    const beside = x + 14 + tip.offsetWidth > box.clientWidth ? x - 14 - tip.offsetWidth
      : x + 14;
    tip.style.left = `${Math.max(0, Math.min(beside, box.clientWidth - tip.offsetWidth))}px`;
  };
  const follow = (event) => {
    const frame = plot.getBoundingClientRect();
    const scale = how.scale / frame.width;
    show(how.nearest((event.clientX - frame.left) * scale,
      (event.clientY - frame.top) * scale));
  };
  plot.addEventListener("pointermove", follow);
  plot.addEventListener("pointerdown", follow);
  plot.addEventListener("pointerleave", () => show(null));
  plot.addEventListener("blur", () => show(null));
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") show(null);
    if (!step) return;
    event.preventDefault();
    const start = index === null ? (step > 0 ? -1 : values.length) : index;
    show(Math.max(0, Math.min(values.length - 1, start + step)));
  });
}
