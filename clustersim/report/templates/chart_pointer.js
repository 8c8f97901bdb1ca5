// What a chart tells where the pointer or the keyboard points, and how it zooms.
//
// A chart with a time or a value along x tells every curve at that x; one of rows, the whole row; one of many
// points, the nearest. Drag to zoom, double-click for all; keys: arrows, + and −, 0 for all, Escape. A click is
// an event "pick" of the box, with the value of x.
(function () {
  "use strict";
  const STEPS = ["steps", "area"], CURVES = [...STEPS, "line"];
  const MOST_ROWS = 12, NEAR = 30, LEAST_DRAG = 8, LEAST_HEIGHT = 30, KEY_STEPS = 40;

  const within = (value, low, high) => Math.max(low, Math.min(high, value));

  // The last place at or before a value in growing numbers; -1 before the first.
  function before(numbers, value) {
    let low = 0, high = numbers.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (numbers[middle] <= value) { low = middle + 1; } else { high = middle; }
    }
    return low - 1;
  }

  function nearest(numbers, value) {
    let best = -1;
    numbers.forEach((number, i) => { if (best < 0 || Math.abs(number - value) < Math.abs(numbers[best] - value)) { best = i; } });
    return best;
  }

  // What a series says at one of its points: its template, or the value; with the interval, where one is known.
  function words(series, i) {
    const template = series.hover || "{y:1}";
    const text = charts.words(template, { x: series.x[i], y: series.y[i], text: (series.text || [])[i] });
    const low = (series.low || [])[i] ?? null, high = (series.high || [])[i] ?? null;
    if (low === null || high === null) { return text; }
    const decimals = Number((/\{[xy]:\+?(\d)/.exec(template) || [0, 1])[1]), signed = /:\+/.test(template);
    return `${text} (${charts.number(low, decimals, signed)} to ${charts.number(high, decimals, signed)})`;
  }

  // What a place tells: a head, and rows of {series, text, at: pixels, bold}.
  function told(plot, one, x, y) {
    const shown = plot.visible(one.panel);
    if (plot.rows) { return row(plot, one, shown, x, y); }
    return shown.some((series) => series.kind === "points") ? point(plot, one, shown, x, y) : slice(plot, one, shown, x);
  }

  // All series in a row of names; in bold the bar at x.
  function row(plot, one, shown, x, y) {
    const { names } = one.axis, place = Math.floor((y - one.top) / (one.bottom - one.top) * names.length);
    const number = within(place, 0, names.length - 1), value = plot.x.value(x), rows = [];
    let from = 0;
    shown.forEach((series) => series.ys.forEach((at, i) => {
      if (at !== number) { return; }
      const to = from + series.xs[i], bold = series.kind === "bars" && shown.length > 1 && value >= from && value < to;
      rows.push({ series, text: words(series, i), at: plot.place(one, series, i, 0, 1), bold });
      from = to;
    }));
    return { head: names[number], rows };
  }

  // The nearest of many points.
  function point(plot, one, shown, x, y) {
    let best = null;
    shown.forEach((series) => series.xs.forEach((_, i) => {
      const at = plot.place(one, series, i, 0, 1), far = Math.hypot(at[0] - x, at[1] - y);
      if (far < NEAR && (!best || far < best.far)) { best = { series, text: words(series, i), at, far }; }
    }));
    return { head: "", rows: best ? [best] : [] };
  }

  // All series at a value of x: what a step holds there, the nearest point of a line, the dots of a name.
  function slice(plot, one, shown, x) {
    const axis = plot.chart.x, value = plot.x.value(x), names = axis.kind === "names", rows = [];
    shown.forEach((series, number) => {
      const steps = STEPS.includes(series.kind), { xs } = series;
      const i = names ? xs.indexOf(Math.round(value)) : steps ? Math.max(before(xs, value), 0) : nearest(xs, value);
      if (i < 0 || !xs.length) { return; }
      const [at, high] = plot.place(one, series, i, number, shown.length);
      rows.push({ series, text: words(series, i), at: [steps ? within(x, at, plot.x.at(xs[xs.length - 1])) : at, high] });
    });
    if (names) { return { head: axis.names[Math.round(value)], rows }; }
    if (axis.kind === "log" || shown.some((series) => series.text)) { return { head: "", rows }; }  // the texts tell x
    const date = axis.kind === "date" && new Date(value).toISOString().slice(0, 16).replace("T", " ");
    return { head: date || `${charts.number(value, 1)} ${axis.title}`, rows };
  }

  // Tell what stands at a place: a line, dots on the curves, and a box of texts.
  function tell(plot, x, y) {
    const one = plot.panels.reduce((best, panel) => y >= panel.top - 20 ? panel : best, plot.panels[0]);
    const all = plot.panels.length > 1 && plot.panels.length * one.panel.series.length <= MOST_ROWS;
    const slices = (all ? plot.panels : [one]).map((panel) => ({ title: panel.panel.title, ...told(plot, panel, x, y) }));
    clear(plot);
    if (!slices.some((part) => part.rows.length)) { return; }
    plot.pointed = [x, y];
    const over = charts.svg("g", { "class": "pointed" }, plot.over), last = plot.panels[plot.panels.length - 1];
    if (!plot.rows && slices[0].rows.some((line) => CURVES.includes(line.series.kind))) {
      charts.svg("path", { d: `M${charts.px(x)} ${plot.panels[0].top}V${charts.px(last.bottom)}` }, over);
    }
    plot.tip.replaceChildren();
    if (slices[0].head) { charts.element("b", {}, plot.tip, slices[0].head); }
    slices.forEach(({ title, rows }) => {
      if (slices.length > 1 && rows.length > 1) { charts.element("b", {}, plot.tip, title); }
      nearRows(rows, y).forEach((line) => {
        const shown = charts.element("div", { "class": line.bold ? "bold" : "" }, plot.tip);
        shown.append(charts.swatch(line.series));
        charts.element("span", {}, shown, [line.series.name || title, line.text].filter(Boolean).join(": "));
        if (line.series.kind !== "bars" && !title) { ring(over, line); }
      });
    });
    plot.tip.hidden = false;
    const room = plot.box.clientWidth, wide = plot.tip.offsetWidth, beside = x + 14 + wide <= room ? x + 14 : x - 14 - wide;
    plot.tip.style.left = `${within(beside, 0, Math.max(0, room - wide))}px`;
    plot.tip.style.top = `${plot.bar.offsetHeight + Math.max(0, Math.min(y + 14, plot.height - plot.tip.offsetHeight))}px`;
  }

  // At most so many rows, those nearest to a height.
  function nearRows(rows, y) {
    const far = (line) => Math.abs(line.at[1] - y);
    if (rows.length <= MOST_ROWS) { return rows; }
    const near = [...rows].sort((a, b) => far(a) - far(b)).slice(0, MOST_ROWS);
    return rows.filter((line) => near.includes(line));
  }

  // A dot on a curve, a ring around a marker.
  function ring(over, { series, at }) {
    const steps = series.kind === "steps", kind = steps ? { r: 4, "class": "dot" } : { r: 8, "class": "ring" };
    const made = charts.svg("circle", { cx: charts.px(at[0]), cy: charts.px(at[1]), ...kind }, over);
    made.style.setProperty("--shade", charts.colour(series));
  }

  function clear(plot) {
    plot.tip.hidden = true;
    plot.pointed = null;
    plot.over.querySelector(".pointed")?.remove();
  }

  // Zoom by a factor around the middle, or around the place that is pointed at.
  function closer(plot, factor) {
    const at = (plot.pointed || [(plot.x.from + plot.x.to) / 2])[0];
    const ends = [plot.x.from, plot.x.to].map((end) => plot.x.value(at + (end - at) * factor));
    if (plot.chart.x.kind !== "names") { plot.look({ ...plot.zoom, x: ends }); }
  }

  function keys(plot, event) {
    const [x, y] = plot.pointed || [plot.x.from, plot.panels[0].top], one = plot.panels[0];
    const across = plot.chart.x.kind === "names" ? (plot.x.to - plot.x.from) / plot.chart.x.names.length : (plot.x.to - plot.x.from) / KEY_STEPS;
    const down = (one.bottom - one.top) / (plot.rows ? one.axis.names.length : 8);
    const moved = { ArrowLeft: [-across, 0], ArrowRight: [across, 0], ArrowUp: [0, -down], ArrowDown: [0, down] }[event.key];
    if (moved) {
      const last = plot.panels[plot.panels.length - 1].bottom;
      const [right, low] = plot.pointed ? moved : [across / 2, down / 2];
      tell(plot, within(x + right, plot.x.from, plot.x.to), within(y + low, one.top, last - 1));
    } else if (event.key === "+" || event.key === "=") { closer(plot, 0.6);
    } else if (event.key === "-") { closer(plot, 1 / 0.6);
    } else if (event.key === "0") { plot.look({});
    } else if (event.key === "Escape" && plot.pointed) { clear(plot);
    } else { return; }
    event.preventDefault();
  }

  charts.listen = (plot) => {
    const { root } = plot;
    let begun = null, frame = null;
    const place = (event) => {
      const box = root.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    root.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (begun) {
        const tall = wants(plot, begun, [x, y]).y, one = plot.panels[0], last = plot.panels[plot.panels.length - 1];
        frame = frame || charts.svg("rect", { "class": "chosen" }, plot.over);
        const [top, high] = tall ? [Math.min(y, begun[1]), Math.abs(y - begun[1])] : [one.top, last.bottom - one.top];
        const sides = { x: Math.min(x, begun[0]), y: top, width: Math.abs(x - begun[0]), height: high };
        Object.keys(sides).forEach((name) => frame.setAttribute(name, sides[name]));
        clear(plot);
      } else if (x >= plot.left - NEAR && x <= plot.width) { tell(plot, Math.max(x, plot.left), y); }
    });
    root.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") { clear(plot); } });
    root.addEventListener("blur", () => clear(plot));
    root.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse") { tell(plot, ...place(event)); return; }
      if (event.button || plot.chart.x.kind === "names") { return; }
      begun = place(event);
      root.setPointerCapture(event.pointerId);
      event.preventDefault();
      root.focus({ preventScroll: true });
    });
    root.addEventListener("pointerup", (event) => {
      if (!begun) { return; }
      const [x, y] = place(event), zoom = wants(plot, begun, [x, y]);
      begun = null;
      frame?.remove();
      frame = null;
      if (zoom.x) { plot.look({ ...plot.zoom, ...zoom });
      } else { plot.box.dispatchEvent(new CustomEvent("pick", { detail: plot.x.value(within(x, plot.x.from, plot.x.to)) })); }
    });
    root.addEventListener("dblclick", () => plot.look({}));
    root.addEventListener("keydown", (event) => { if (!event.ctrlKey && !event.metaKey && !event.altKey) { keys(plot, event); } });
  };

  // The part of the axes that a drag asks for; of y only where it is tall, and the chart has one panel.
  function wants(plot, [x0, y0], [x1, y1]) {
    const made = {}, one = plot.panels[0], order = (a, b) => [Math.min(a, b), Math.max(a, b)];
    if (Math.abs(x1 - x0) >= LEAST_DRAG) { made.x = order(...[x0, x1].map((x) => plot.x.value(within(x, plot.x.from, plot.x.to)))); }
    if (plot.panels.length === 1 && !plot.rows && Math.abs(y1 - y0) >= LEAST_HEIGHT) {
      made.y = order(...[y0, y1].map((y) => one.y.value(within(y, one.top, one.bottom))));
    }
    return made;
  }
})();
