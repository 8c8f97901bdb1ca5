// The job table: every job of the displayed run, filtered, sorted and paged.
(function () {
  "use strict";
  var ROWS = 20, STATES = ["finished", "rejected", "unfinished", "failed", "served"];

  // The outcome of every job in a run, by the job's row in page.data.jobs; absent for a job of another run only.
  page.fates = function (run) {
    if (run.fates) { return run.fates; }
    run.fates = [];
    page.grown(run.row).forEach(function (row, i) {
      var submit = page.data.jobs.submit[row], finish = run.finish[i], start = run.start[i];
      run.fates[row] = {
        state: run.state[i] < 0 ? "other" : STATES[run.state[i]], reason: run.reasons[run.reason[i]],
        start: start, finish: finish, gpus: run.gpus[i], gpu_h: run.gpu_s[i] / 3600, met: run.met[i],
        jct: finish === null ? null : (finish - submit) * page.data.step_s,
        queue: start === null ? null : (start - submit) * page.data.step_s,
        lost: run.lost[i] * page.data.step_s,
        slowdown: finish === null || !run.isolated[i] ? null : (finish - submit) / run.isolated[i],
        preemptions: run.preemptions[i], resizes: run.resizes[i],
        type: run.types ? run.types[run.type[i]] : ""
      };
    });
    return run.fates;
  };

  // The unit of a column of times, from the median of its values: most numbers then have a handy size.
  function unitOf(values) {
    var known = values.filter(function (value) { return value !== null; }).sort(function (a, b) { return a - b; });
    return page.unit(known.length ? known[Math.floor(known.length / 2)] : 0);
  }

  // The text of a time in the unit of its column, with two decimals. What rounds to zero is not zero.
  function inUnit(unit) {
    return function (seconds) {
      if (seconds === null) { return "–"; }
      var value = seconds / unit[1];
      return value > 0 && value < 0.005 ? "<0.01" : page.number(value, 2);
    };
  }

  function plain(value) { return value === null || value === undefined ? "–" : String(value); }
  function count(value) { return value === null || value === undefined ? "–" : page.number(value); }

  page.parts.push(function () {
    var jobs = page.data.jobs, table = page.by("jobs-table"), baseline = baselineRun();
    var sorted = { key: "submit", down: false }, page_at = 0, shown = [];
    var fates, base;
    var first = page.fates(baseline || page.data.runs[0]).filter(Boolean);  // its units hold for every policy
    var submitted = unitOf(jobs.submit.map(function (steps) { return steps * page.data.step_s; }));
    var took = unitOf(first.map(function (fate) { return fate.jct; }));

    var columns = [
      { key: "id", title: "Job", value: function (row) { return jobs.id[row]; } },
      { key: "model", title: "Model", value: function (row) { return jobs.models[jobs.model[row]]; }, text: function (v) { return v || "–"; }, wide: true },
      { key: "tenant", title: "Tenant", value: function (row) { return jobs.tenants[jobs.tenant[row]]; }, text: plain, wide: true },
      { key: "submit", title: page.data.dated ? "Submitted, UTC" : submitted[0] === "s" ? "Submitted, +s" : "Submitted after", value: function (row) { return jobs.submit[row] * page.data.step_s; }, text: submission },
      { key: "gpus", title: "GPUs", value: of("gpus"), text: count },
      { key: "type", title: "GPU types", value: of("type"), text: function (v) { return v || "–"; }, wide: true },
      { key: "software", title: "Software", value: function (row) { return jobs.softwares[jobs.software[row]]; }, text: function (v) { return v || "–"; }, wide: true },
      { key: "state", title: "State", value: of("state"), text: plain, wide: true },
      { key: "queue", title: "First start after, " + took[0], value: of("queue"), text: inUnit(took) },
      { key: "jct", title: "JCT, " + took[0], value: of("jct"), text: inUnit(took) },
      { key: "ratio", title: "vs " + (baseline ? baseline.label : ""), value: ratio, text: function (v) { return v === null ? "–" : page.percent(v); } },
      { key: "slowdown", title: "Slowdown", value: of("slowdown"), text: function (v) { return v === null ? "–" : page.number(v, 2); } },
      { key: "preemptions", title: "Preempted", value: of("preemptions"), text: count },
      { key: "resizes", title: "Resized", value: of("resizes"), text: count },
      { key: "gpu_h", title: "GPU-hours", value: of("gpu_h"), text: function (v) { return page.number(v, v < 100 ? 1 : 0); } },
      { key: "met", title: "Deadline", value: of("met"), text: function (v) { return v === null ? "–" : v ? "met" : "missed"; } }
    ].filter(function (column) {
      if (column.key === "ratio") { return baseline; }
      if (column.key === "tenant") { return jobs.tenants.length > 1; }
      if (column.key === "type") { return page.data.runs.some(function (run) { return run.types; }); }
      if (column.key === "software") { return jobs.softwares.some(Boolean); }
      return column.key !== "met" || jobs.deadline.some(function (deadline) { return deadline !== null; });
    });

    // The moment of a submission: a date, or days, hours, minutes and seconds since the first one.
    function submission(seconds) {
      if (page.data.dated) { return page.date(seconds / page.data.step_s).replace(" UTC", ""); }
      if (submitted[0] === "s") { return inUnit(submitted)(seconds); }
      var parts = [3600, 60, 1].map(function (unit) { return String(Math.floor(seconds % (unit * (unit === 3600 ? 24 : 60)) / unit)).padStart(2, "0"); });
      return (seconds >= 86400 ? Math.floor(seconds / 86400) + " d " : "") + parts.join(":");
    }

    function of(key) {
      return function (row) { var value = fates[row][key]; return value === undefined ? null : value; };
    }

    function ratio(row) {
      var theirs = base[row];
      return theirs && theirs.jct && fates[row].jct !== null ? fates[row].jct / theirs.jct : null;
    }

    function baselineRun() { return page.data.runs.length > 1 ? page.data.runs[page.data.baseline] : null; }

    function head() {
      var row = page.make("tr");
      columns.forEach(function (column) {
        var cell = page.make("th", "", { scope: "col" }), button = page.make("button", column.title, { type: "button" });
        if (column.key === "id" || column.wide) { cell.className = "text"; }
        button.addEventListener("click", function () {
          // The first click shows the largest numbers; words begin with A.
          sorted = { key: column.key, down: sorted.key === column.key ? !sorted.down : !column.wide && column.key !== "id" };
          page_at = 0;
          update();
        });
        cell.append(button);
        row.append(cell);
      });
      table.tHead.replaceChildren(row);
    }

    function states() {
      var select = page.by("jobs-state"), before = select.value, counts = {};
      fates.forEach(function (fate) { counts[fate.state] = (counts[fate.state] || 0) + 1; });
      select.replaceChildren(new Option("all", ""));
      Object.keys(counts).sort().forEach(function (state) { select.add(new Option(state + " (" + page.number(counts[state]) + ")", state)); });
      select.value = counts[before] ? before : "";
    }

    function update() {
      var words = page.by("jobs-find").value.toLowerCase().trim(), state = page.by("jobs-state").value;
      shown = [];
      jobs.id.forEach(function (id, row) {
        if (!fates[row] || (state && fates[row].state !== state)) { return; }
        var text = id + " " + jobs.models[jobs.model[row]] + " " + jobs.tenants[jobs.tenant[row]];
        if (!words || text.toLowerCase().includes(words)) { shown.push(row); }
      });
      var value = columns.find(function (column) { return column.key === sorted.key; }).value;
      var keys = new Map(shown.map(function (row) { return [row, value(row)]; }));
      shown.sort(function (p, q) {
        var a = keys.get(p), b = keys.get(q);
        if (a === b) { return p - q; }
        if (a === null) { return 1; }  // unknown values come last in either direction
        if (b === null) { return -1; }
        return (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b) * (sorted.down ? -1 : 1);
      });
      page_at = Math.max(0, Math.min(page_at, Math.ceil(shown.length / ROWS) - 1));
      body();
    }

    function body() {
      var begin = page_at * ROWS, end = Math.min(shown.length, begin + ROWS);
      table.tBodies[0].replaceChildren.apply(table.tBodies[0], shown.slice(begin, end).map(line));
      page.by("jobs-count").textContent = shown.length ? page.number(begin + 1) + " to " + page.number(end) + " of " + page.number(shown.length) : "no such job";
      page.by("jobs-before").disabled = begin === 0;
      page.by("jobs-after").disabled = end >= shown.length;
      Array.from(table.tHead.rows[0].cells).forEach(function (cell, i) {
        var by = columns[i].key === sorted.key;
        cell.setAttribute("aria-sort", by ? (sorted.down ? "descending" : "ascending") : "none");
      });
    }

    function line(row) {
      var made = page.make("tr");
      columns.forEach(function (column) {
        if (column.key === "id") {
          var head = page.make("th", "", { scope: "row" }), button = page.make("button", jobs.id[row] || "(no name)", { type: "button" });
          button.addEventListener("click", function () { page.story(row); });
          head.append(button);
          made.append(head);
          return;
        }
        var value = column.value(row), cell = page.make("td", column.text(value));
        if (column.wide) { cell.className = "text"; }
        if (column.key === "ratio" && value !== null) { cell.className = value < 0.99 ? "better" : value > 1.01 ? "worse" : ""; }
        if (column.key === "state") { cell.title = fates[row].reason; }
        made.append(cell);
      });
      return made;
    }

    function load() {
      fates = page.fates(page.data.runs[page.run]);
      base = baseline ? page.fates(baseline) : [];
      states();
      update();
    }

    page.by("jobs-find").addEventListener("input", function () { page_at = 0; update(); });
    page.by("jobs-state").addEventListener("change", function () { page_at = 0; update(); });
    page.by("jobs-before").addEventListener("click", function () { page_at -= 1; body(); });
    page.by("jobs-after").addEventListener("click", function () { page_at += 1; body(); });
    page.chips("jobs", load);
    head();
    load();
  });
})();
