// What the memory of one run holds: a heat map of class counts, and its images.

function drawCounts(box, run) {
  const counts = run && run.series.counts;
  if (!counts) {
    emptyPlot(box, "This run has no class counts");
    return;
  }
  const known = counts.map((each) => each ?? []);
  const classes = Math.max(...known.map((each) => each.length));
  const most = Math.max(1, ...known.flat());
  const width = Math.max(box.clientWidth, 280);
  const tall = Math.max(4, Math.min(24, 360 / classes));
  const left = 58, right = 6, top = 4, bottom = 40;
  const height = top + classes * tall + bottom;
  const wide = (width - left - right) / known.length;
  const plot = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0,
    "aria-label": "Number of items of each class in memory, along the stream. "
      + "Arrow keys move through the steps." });
  for (let label = 0; label < classes; label += Math.ceil(14 / tall)) {
    svg("text", { x: left - 8, y: top + (label + 0.5) * tall + 4, "text-anchor": "end" },
      plot, `class ${label}`);
  }
  const outline = svg("rect", { y: top, width: wide, height: classes * tall, fill: "none",
    stroke: "var(--text)", "stroke-width": 2, visibility: "hidden" });
  const every = Math.ceil(52 / wide);
  known.forEach((column, index) => {
    const x = left + index * wide;
    column.forEach((count, label) => {
      const y = top + label * tall;
      svg("rect", { x, y, width: Math.max(wide - 1, 1), height: Math.max(tall - 1, 1),
        fill: "var(--blue)", "fill-opacity": (0.05 + 0.95 * count / most).toFixed(3) },
      plot);
      if (tall >= 16 && wide >= 24 && count) {
        const text = svg("text", { x: x + wide / 2, y: y + tall / 2 + 4,
          "text-anchor": "middle" }, plot, count);
        text.style.fill = count > 0.5 * most ? "#fff" : "var(--text)";
      }
    });
    if (index % every === 0) {
      svg("text", { x: x + wide / 2, y: height - bottom + 16, "text-anchor": "middle" },
        plot, shortNumber(run.steps[index]));
    }
    if (run.ends.includes(run.steps[index])) {
      svg("line", { x1: x + wide - 0.5, x2: x + wide - 0.5, y1: top,
        y2: top + classes * tall, stroke: "var(--vermillion)", "stroke-width": 2 }, plot);
    }
  });
  plot.append(outline);
  svg("text", { x: left + (width - left - right) / 2, y: height - 6,
    "text-anchor": "middle" }, plot, "step");
  box.replaceChildren(plot);
  addTip(box, plot, known, {
    place: (index) => left + (index + 0.5) * wide,
    nearest: (x) => Math.max(0, Math.min(known.length - 1, Math.floor((x - left) / wide))),
    scale: width,
    tell: (index) => ({ title: `step ${run.steps[index]}`, rows: tellCounts(known[index]) }),
    mark: (index) => {
      outline.setAttribute("visibility", index === null ? "hidden" : "visible");
      if (index !== null) outline.setAttribute("x", left + index * wide);
    },
  });
}

function tellCounts(counts) {
  const there = counts.map((count, label) => [label, count]).filter(([, count]) => count);
  const shown = there.sort((a, b) => b[1] - a[1]).slice(0, 10);
  const rows = shown.map(([label, count]) => ({ text: `class ${label}: ${count}` }));
  if (there.length > shown.length) {
    rows.push({ text: `and ${there.length - shown.length} more classes` });
  }
  return rows.length ? rows : [{ text: "empty" }];
}

function drawImages(box, note, run, anyImages) {
  box.replaceChildren();
  const images = run && run.images;
  if (!images) {
    note.textContent = anyImages
      ? "This run has no images on this page: its memory holds vectors, its folder was not "
        + "kept, or the page would have become too large. Choose another run."
      : "To see what memories hold, run the sweep with --keep into a new folder (--out), "
        + "then make this report again. Only memories of images can be shown.";
    return;
  }
  const size = Math.max(28, Math.min(40, images.width));
  const groups = new Map();
  for (let number = 0; number < images.count; number++) {
    const label = images.labels ? images.labels[number] : "items";
    if (!groups.has(label)) groups.set(label, []);
    groups.get(label).push(number);
  }
  const sheet = `url(${images.png})`;
  for (const [label, numbers] of groups) {
    const line = html("div", { className: "class" }, box);
    const name = html("span", {}, line, images.labels ? `class ${label} ` : "items ");
    html("small", {}, name, `\u00d7${numbers.length}`);
    const tiles = html("div", { className: "tiles" }, line);
    for (const number of numbers) {
      const tile = html("span", { className: "tile", title: `class ${label}` }, tiles);
      const column = number % images.columns;
      const row = Math.floor(number / images.columns);
      Object.assign(tile.style, {
        width: `${size}px`,
        height: `${size * images.height / images.width}px`,
        backgroundImage: sheet,
        backgroundSize: `${size * images.columns}px auto`,
        backgroundPosition: `${-size * column}px ${
          -size * images.height / images.width * row}px`,
      });
    }
  }
  note.textContent = images.count < images.total
    ? `${images.count} of ${images.total} items, sorted by class.`
    : `All ${images.total} items, sorted by class.`;
}
