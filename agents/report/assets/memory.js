// What the memory of one run holds: a heat map of class counts, and its images.

/* Draw the heat map; choose is called with the step of a column that was clicked.
   Returns a function that frames the column of a step. */
function drawCounts(box, run, choose) {
  const counts = run && run.series.counts;
  if (!counts) {
    emptyPlot(box, "This run has no class counts");
    return () => {};
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
    stroke: "var(--soft)", "stroke-width": 2, visibility: "hidden" });
  // Inside the column: the end of a task is at its edge.
  const frame = svg("rect", { y: top - 1, width: Math.max(wide - 5, 1), rx: 2,
    height: classes * tall + 1, class: "frame", visibility: "hidden" });
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
  plot.append(frame, outline);
  svg("text", { x: left + (width - left - right) / 2, y: height - 6,
    "text-anchor": "middle" }, plot, "step");
  box.replaceChildren(plot);
  const columnAt = (x) => Math.max(0, Math.min(known.length - 1, Math.floor((x - left) / wide)));
  if (choose) {
    plot.classList.add("clickable");
    plot.addEventListener("click", (event) => {
      const place = plot.getBoundingClientRect();
      choose(run.steps[columnAt((event.clientX - place.left) * width / place.width)]);
    });
  }
  addTip(box, plot, known, {
    place: (index) => left + (index + 0.5) * wide,
    nearest: columnAt,
    scale: width,
    tell: (index) => ({ title: `step ${run.steps[index]}`, rows: tellCounts(known[index]) }),
    mark: (index) => {
      outline.setAttribute("visibility", index === null ? "hidden" : "visible");
      if (index !== null) outline.setAttribute("x", left + index * wide);
    },
  });
  return (step) => {
    const index = run.steps.indexOf(step);
    frame.setAttribute("visibility", index < 0 ? "hidden" : "visible");
    frame.setAttribute("x", left + index * wide + 2);
  };
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

/* Where along the stream a step is, in words. */
function tellPlace(run, step) {
  const last = run.steps.length ? run.steps[run.steps.length - 1] : step;
  const place = `step ${step} of ${last}`;
  if (step === last) return `${place}, the end of the run`;
  if (!run.ends.length) return place;
  const ended = run.ends.filter((end) => end <= step).length;
  return run.ends.includes(step) ? `${place}, after task ${ended}`
    : `${place}, during task ${ended + 1}`;
}

function tellNoImages(anyImages) {
  return anyImages
    ? "This run has no images on this page: its memory holds vectors, its folder was not "
      + "kept, or the page would have become too large. Choose another run."
    : "To see what memories hold, run the sweep with --keep into a new folder (--out), "
      + "then make this report again. Only memories of images can be shown.";
}

/* One rule for all tiles: hundreds of copies of the sheet would make the page slow. */
function useSheet(images, size) {
  const rule = document.getElementById("sheet")
    ?? html("style", { id: "sheet" }, document.head);
  const tall = size * images.height / images.width;
  rule.textContent = `.tile { width: ${size}px; height: ${tall}px; `
    + `background-size: ${size * images.columns}px auto; `
    + `background-image: url(${images.sheet}); }`;
  return (tile, number) => {
    const x = -size * (number % images.columns);
    const y = -tall * Math.floor(number / images.columns);
    tile.style.backgroundPosition = `${x}px ${y}px`;
  };
}

/* Draw the items of one snapshot, by class. */
function drawImages(box, note, images, snapshot) {
  box.replaceChildren();
  const place = useSheet(images, Math.max(28, Math.min(40, images.width)));
  const isNew = new Set(snapshot.new);
  const groups = new Map();
  for (const number of snapshot.items) {
    const label = images.labels ? `class ${images.labels[number]}` : "items";
    if (!groups.has(label)) groups.set(label, []);
    groups.get(label).push(number);
  }
  for (const [label, numbers] of groups) {
    const line = html("div", { className: "class" }, box);
    const name = html("span", {}, line, `${label} `);
    html("small", {}, name, `\u00d7${numbers.length}`);
    const tiles = html("div", { className: "tiles" }, line);
    for (const number of numbers) {
      const tile = html("span", { className: isNew.has(number) ? "tile new" : "tile",
        title: isNew.has(number) ? `${label}, new` : label }, tiles);
      tile.dataset.item = number;
      place(tile, number);
    }
  }
  note.textContent = tellItems(images, snapshot);
}

function tellItems(images, snapshot) {
  const count = snapshot.items.length;
  const sorted = images.labels ? ", sorted by class" : "";
  const amount = count < snapshot.total ? `${count} of ${snapshot.total} items${sorted}.`
    : `All ${count} items${sorted}.`;
  if (snapshot === images.snapshots[0]) return amount;
  return snapshot.new.length ? `${amount} Outlined: new since the snapshot before.`
    : `${amount} None of them is new since the snapshot before.`;
}
