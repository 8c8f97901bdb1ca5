// The story of a job under every policy: its waits and allocations, and their costs.
(function () {
  "use strict";
  var JOB = "#job=";
  var GAINS = { start: "started", restart: "restarted", resize: "resized to", migrate: "migrated, still" };
  var ENDS = { preempt: "preempted", finish: "finished", interrupt: "interrupted by a failure", fail: "failed", reject: "rejected" };

  function gpus(count) { return page.number(count) + (count === 1 ? " GPU" : " GPUs"); }

  page.story = function (row) {
    var jobs = page.data.jobs, dialog = page.by("story"), header = page.make("header");
    var close = page.make("button", "Close", { type: "button" });
    close.addEventListener("click", function () { dialog.close(); });
    header.append(page.make("h2", "Job " + jobs.id[row], { id: "story-title" }), close);
    remember(address(row));
    var facts = [
      jobs.models[jobs.model[row]], jobs.batch[row] === null ? "" : "global batch " + page.number(jobs.batch[row]),
      "tenant " + jobs.tenants[jobs.tenant[row]], "submitted at " + (page.date(jobs.submit[row]) || "+" + page.duration(jobs.submit[row] * page.data.step_s)),
      jobs.deadline[row] === null ? "" : "due " + page.duration((jobs.deadline[row] - jobs.submit[row]) * page.data.step_s) + " later"
    ].filter(Boolean).join(" · ");
    dialog.replaceChildren(header, page.make("p", facts, { "class": "muted" }));
    var last = Math.max.apply(null, page.data.runs.map(function (run) {
      var ends = page.heldBy(run, row).map(function (i) { return page.held(run).to[i]; });
      return Math.max.apply(null, [jobs.submit[row] + 1, jobs.deadline[row] || 0].concat(ends));
    }));
    page.data.runs.forEach(function (run, number) {
      var fate = page.fates(run)[row];
      if (fate) { dialog.append(title(run, number, fate), strip(run, number, row, fate, last), steps(run, row, fate)); }
    });
    var link = page.make("p", "", { "class": "keys" });
    link.append(page.make("a", "Link to this job", { href: address(row) }));
    dialog.append(link, page.make("p", "“clustersim explain DIR --job ID” tells more: which jobs were ahead of it, and which overtook it.", { "class": "keys" }));
    if (!dialog.open) { dialog.showModal(); }
    dialog.scrollTop = 0;
  };

  // A page that is shown inside another one, as in a notebook, has no address to change.
  function remember(address) {
    try { history.replaceState(null, "", address); } catch (error) { return; }
  }

  function address(row) { return JOB + encodeURIComponent(page.data.jobs.id[row]); }

  // Opens the story of the job that the address of the page names.
  function named() {
    if (!location.hash.startsWith(JOB)) { return; }
    var id;
    try { id = decodeURIComponent(location.hash.slice(JOB.length)); } catch (error) { return; }
    var row = page.data.jobs.id.indexOf(id);
    if (row >= 0) { page.story(row); }
  }

  page.parts.push(function () {
    var dialog = page.by("story");
    dialog.addEventListener("click", function (event) { if (event.target === dialog) { dialog.close(); } });
    dialog.addEventListener("close", function () {
      if (location.hash.startsWith(JOB)) { remember(location.pathname + location.search); }
    });
    window.addEventListener("hashchange", named);
    named();
  });

  function title(run, number, fate) {
    var head = page.make("h3"), parts = [fate.state];
    if (fate.jct !== null) { parts.push("JCT " + page.duration(fate.jct)); }
    if (fate.slowdown !== null) { parts.push("slowdown " + page.number(fate.slowdown, 2)); }
    if (fate.met !== null) { parts.push(fate.met ? "deadline met" : "deadline missed"); }
    var name = page.make("span");
    name.append(page.swatch(run.look), run.label);
    head.append(name, page.make("span", parts.join(", "), { "class": "note" }));
    return head;
  }

  // A strip from the submission on: its height is the GPUs that the job holds, hatched during overhead.
  function strip(run, number, row, fate, last) {
    var ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), held = page.held(run), from = page.data.jobs.submit[row];
    var mine = page.heldBy(run, row), most = Math.max.apply(null, [1].concat(mine.map(function (i) { return held.gpus[i]; })));
    svg.setAttribute("viewBox", "0 0 1000 56"); svg.setAttribute("preserveAspectRatio", "none"); svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "GPUs held over time, at most " + most);
    function box(a, b, height, fill, opacity) {
      var rect = document.createElementNS(ns, "rect"), by = 1000 / (last - from);
      var at = { x: (a - from) * by, y: 54 - height, width: Math.max(0.8, (b - a) * by), height: height, fill: fill, "fill-opacity": opacity };
      Object.keys(at).forEach(function (key) { rect.setAttribute(key, at[key]); });
      svg.append(rect);
    }
    mine.forEach(function (i) {
      var height = 6 + 46 * held.gpus[i] / most;
      box(held.from[i], held.to[i], height, page.seriesColour(run.look), 0.9);
      if (held.ready[i] > held.from[i]) { box(held.from[i], held.ready[i], height, page.css("--t-overhead"), 1); }
    });
    var deadline = page.data.jobs.deadline[row];
    if (deadline !== null && deadline > from) { box(deadline, deadline, 54, page.css("--worse"), 1); }
    return svg;
  }

  function steps(run, row, fate) {
    var list = page.make("ol"), held = page.held(run), from = page.data.jobs.submit[row], mine = page.heldBy(run, row);
    function add(time, text, note) {
      var item = page.make("li"), words = page.make("div", text);
      item.append(page.make("time", "+" + page.duration((time - from) * page.data.step_s)), words);
      if (note) { words.append(page.make("span", note, { "class": "note" })); }
      list.append(item);
    }
    var without = from;
    mine.forEach(function (i) {
      if (without !== null && held.from[i] > without) {
        add(without, "waited " + page.duration((held.from[i] - without) * page.data.step_s) + " for " + gpus(held.gpus[i]), meanwhile(run, row, without, held.from[i]));
      }
      var kind = run.held.kinds[run.held.kind[i]], plan = run.held.plans[run.held.plan[i]], paid = (held.ready[i] - held.from[i]) * page.data.step_s;
      var notes = [page.places(run, i), plan ? "plan " + plan : "", paid > 0 ? "overhead " + page.duration(paid) : ""];
      var verb = (GAINS[kind] || kind) + (kind === "resize" || kind === "migrate" ? " " : " on ") + gpus(held.gpus[i]);
      add(held.from[i], verb, notes.filter(Boolean).join(" · "));
      var ended = run.held.kinds[run.held.ended[i]];
      without = ended in GAINS ? null : held.to[i];
      if (ended in ENDS) { add(held.to[i], ENDS[ended] + " after " + page.duration((held.to[i] - held.from[i]) * page.data.step_s), ""); }
    });
    if (fate.state !== "finished") { add(mine.length && without !== null ? without : from, fate.state, fate.reason); }
    return list;
  }

  // The jobs that held GPUs while a job waited, and the fewest and most GPUs that were free.
  function meanwhile(run, row, a, b) {
    var held = page.held(run), holders = new Map(), changes = [], total = run.nodes * run.gpus_per_node, now = 0;
    for (var i = 0; i < held.from.length; i++) {
      var seconds = Math.min(b, held.to[i]) - Math.max(a, held.from[i]);
      if (seconds > 0) {
        holders.set(held.job[i], (holders.get(held.job[i]) || 0) + seconds * held.gpus[i] / (b - a));
        changes.push([Math.max(a, held.from[i]), held.gpus[i]], [Math.min(b, held.to[i]), -held.gpus[i]]);
      }
    }
    changes.sort(function (p, q) { return p[0] - q[0] || p[1] - q[1]; });
    var least = total, most = 0;
    changes.concat([[b, 0]]).forEach(function (change, i) {
      if (i === 0 ? change[0] > a : change[0] > changes[i - 1][0]) { least = Math.min(least, total - now); most = Math.max(most, total - now); }
      now += change[1];
    });
    var top = Array.from(holders.entries()).sort(function (p, q) { return q[1] - p[1]; }).slice(0, 3);
    var names = top.map(function (one) { return page.data.jobs.id[one[0]] + " (" + page.number(one[1], one[1] < 10 ? 1 : 0) + ")"; });
    return "free meanwhile: " + (least === most ? page.number(least) : page.number(least) + " to " + page.number(most)) + (names.length ? "; most GPUs on average: " + names.join(", ") : "");
  }
})();
