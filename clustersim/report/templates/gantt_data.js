// The allocations of the displayed run, as typed arrays: a rectangle per contiguous block of GPUs of a job.
(function () {
  "use strict";

  page.grown = function (differences) {
    var sum = 0;
    return Float64Array.from(differences, function (difference) { sum += difference; return sum; });
  };

  // Columns by allocation: job (row of page.data.jobs), from, to, ready; by rectangle: held, top, rows (in GPUs).
  page.held = function (run) {
    if (run.unpacked) { return run.unpacked; }
    var held = run.held, count = held.job.length, from = page.grown(held.from);
    var to = Float64Array.from(held.to, function (length, i) { return from[i] + length; });
    var ready = Float64Array.from(held.paid, function (paid, i) { return from[i] + paid; });
    var of = [], top = [], rows = [], g = run.gpus_per_node, next = 0;
    for (var i = 0; i < count; i++) {
      for (var k = 0; k < held.blocks[i]; k++, next++) {
        var first = held.first[next], more = held.more[next], whole = held.row[next] === g;
        for (var node = first; node <= first + (whole ? 0 : more); node++) {
          of.push(i); top.push(node * g + held.gpu[next]); rows.push(whole ? g * (more + 1) : held.row[next]);
        }
      }
    }
    run.unpacked = {
      job: Int32Array.from(held.job), from: from, to: to, ready: ready, gpus: Int32Array.from(held.gpus),
      of: Int32Array.from(of), top: Int32Array.from(top), rows: Int32Array.from(rows)
    };
    return run.unpacked;
  };

  // The allocations of a job in a run, in order of time.
  page.heldBy = function (run, job) {
    if (!run.byJob) {
      run.byJob = new Map();
      run.held.job.forEach(function (row, i) {
        if (!run.byJob.has(row)) { run.byJob.set(row, []); }
        run.byJob.get(row).push(i);
      });
    }
    return run.byJob.get(job) || [];
  };

  // Nodes of an allocation in words: nodes 0–3 ×8, 7 ×4.
  page.places = function (run, allocation) {
    if (!run.firstBlock) {
      var next = 0;
      run.firstBlock = run.held.blocks.map(function (count) { next += count; return next - count; });
    }
    var found = new Map(), held = run.held, begin = run.firstBlock[allocation];
    for (var b = begin; b < begin + held.blocks[allocation]; b++) {
      for (var node = held.first[b]; node <= held.first[b] + held.more[b]; node++) {
        found.set(node, (found.get(node) || 0) + held.row[b]);
      }
    }
    var nodes = Array.from(found.keys()).sort(function (a, b) { return a - b; }), words = [];
    for (var i = 0; i < nodes.length;) {
      var j = i;
      while (j + 1 < nodes.length && nodes[j + 1] === nodes[j] + 1 && found.get(nodes[j + 1]) === found.get(nodes[i])) { j++; }
      words.push((i === j ? nodes[i] : nodes[i] + "–" + nodes[j]) + " ×" + found.get(nodes[i]));
      i = j + 1;
    }
    var text = words.length > 6 ? words.slice(0, 6).join(", ") + ", …" : words.join(", ");
    return (nodes.length === 1 ? "node " : "nodes ") + text;
  };

  // Classes of allocations for colours: {names, of: class by allocation}; if there are many, the last is "other".
  page.classes = function (run, kind) {
    var jobs = page.data.jobs, held = page.held(run), seconds = new Map(), keyOf;
    if (kind === "job") {
      return { names: [], of: Uint8Array.from(held.job, function (job) { return (job * 7 + (job >> 3)) % 8; }), colours: 8 };
    }
    if (kind === "size") {
      keyOf = function (i) { return Math.ceil(Math.log2(held.gpus[i])); };
    } else {
      keyOf = function (i) { return held.job[i] < 0 ? -1 : jobs[kind][held.job[i]]; };
    }
    for (var i = 0; i < held.job.length; i++) {
      var key = keyOf(i);
      seconds.set(key, (seconds.get(key) || 0) + (held.to[i] - held.from[i]) * held.gpus[i]);
    }
    var keys = Array.from(seconds.keys());
    keys.sort(kind === "size" ? function (a, b) { return a - b; } : function (a, b) { return seconds.get(b) - seconds.get(a); });
    var most = kind === "size" ? 12 : 8, place = new Map(), names = [];
    keys.forEach(function (key, n) {
      place.set(key, Math.min(n, most - 1));
      if (n < most) { names.push(named(kind, key)); }
    });
    if (keys.length > most) { names[most - 1] = "other"; }
    return { names: names, of: Uint8Array.from(held.job, function (_, i) { return place.get(keyOf(i)); }), colours: names.length };
  };

  function named(kind, key) {
    if (kind === "size") { return key === 0 ? "1 GPU" : key === 1 ? "2" : (Math.pow(2, key - 1) + 1) + "–" + Math.pow(2, key); }
    return (kind === "model" ? page.data.jobs.models : page.data.jobs.tenants)[key] || "no " + kind + " stated";
  }
})();
