'use strict';
// What is drawn and where: the data, the rows, the time axis, and each kind of thing on the canvas.
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const canvas = $('canvas'), ctx = canvas.getContext('2d');
const HEAD = 22, LEFT = 118, GRAPH = 140, LINES = 4;
// A fault has its band, and a line below it for the marks where it hits something.
const FAULT_BAND = 20, FAULT_ROW = 33, CLIENT_ROW_MIN = 26, CLIENT_ROW_MAX = 64;
const css = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const colors = () => Object.fromEntries(['back', 'panel', 'text', 'faint', 'line', 'ok', 'maybe', 'failed', 'bad', 'onbad',
  'read', 'query', 'fault', 'hit', 'down', 'starts', 'serves', 'stops', 'mark'].map(name => [name, css(name)]));
let palette = colors();

// What is shown: from..to in microseconds, and how far down.
const view = { from: 0, to: Math.max(data.end, 1), down: 0 };
let chosen = null, hovered = null, pointed = null, proof = new Set(), matches = [], matched = -1, failure = -1;

// What was found again and again stands there once, with how often: the same words, or records of the same sends that
// reader after reader saw.
{
  const known = new Map();
  for (const found of data.failures) {
    const sends = found.proof.filter(([kind]) => kind === 's').join();
    const name = [found.check, found.beyond, sends ? found.partition + ' ' + sends : found.partition + ' ' + found.what].join('\n');
    const first = known.get(name);
    if (!first) { known.set(name, { ...found, times: 1, offsets: [found.offset, found.offset] }); continue; }
    first.times++;
    first.offsets = [Math.min(first.offsets[0], found.offset), Math.max(first.offsets[1], found.offset)];
  }
  data.failures = [...known.values()];
}

// Everything that can be pointed at and searched has a type, a time and a text.
const key = op => op.k + op.i;
const byKey = new Map(data.ops.map(op => [key(op), op]));
for (const op of data.ops) {
  op.type = 'op';
  // As far as it is known: a send without an outcome goes on until its last attempt was over.
  op.until = op.e ?? op.a?.reduce((last, one) => Math.max(last, one.e ?? one.t), op.t) ?? op.t;
}
data.ops.sort((a, b) => a.t - b.t);
const longest = data.ops.reduce((most, op) => Math.max(most, op.until - op.t), 0);
const faultOf = new Map(data.faults.map(fault => [fault.number, fault]));
for (const fault of data.faults) Object.assign(fault, { type: 'fault', text: fault.what, hits: [] });
for (const hit of data.hits) {
  Object.assign(hit, { type: 'hit', text: hit.what });
  faultOf.get(hit.fault)?.hits.push(hit);
}
for (const event of data.events) Object.assign(event, { type: 'event', text: event.what });
for (const life of data.lives) Object.assign(life, { type: 'life', text: 'incarnation ' + life.number });
for (const found of data.failures) {
  // The check's name is said once.
  const again = found.what.toLowerCase().startsWith(found.check.toLowerCase() + ': ');
  if (again) found.what = found.what.slice(found.check.length + 2);
  found.place = found.check + (found.partition != null ? ' in ' + data.partitions[found.partition] : '');
  Object.assign(found, { type: 'failure', text: found.place + ': ' + found.what });
}
const timed = data.failures.filter(found => found.t != null);

// When clients were down.
const downs = [];
for (const event of data.events.filter(event => event.kind === 'client-end')) {
  const again = data.events.find(other => other.kind === 'client' && other.client === event.client && other.t >= event.t);
  const lane = data.lanes.findIndex(lane => lane.client === event.client);
  if (lane >= 0) downs.push({ lane, t: event.t, e: again?.t ?? data.end, type: 'down', text: event.what });
}

// Rows from top to bottom: broker, one for each track of faults, clients. Clients share the height that is left.
const tracks = [...new Set(data.faults.map(fault => fault.track))];
const rows = [{ kind: 'broker', name: 'broker' }, ...tracks.map(name => ({ kind: 'fault', name })),
  ...data.lanes.map(lane => ({ kind: 'client', name: lane.name, client: lane.client }))];
const clientRow = index => 1 + tracks.length + index;
// Below the incarnations of the broker there is a line for what failed.
const BROKER_LINE = 28, FAILURE_LINE = timed.length ? 22 : 0;
const bottom = () => canvas.clientHeight - GRAPH;
function layOut() {
  const above = BROKER_LINE + FAILURE_LINE + tracks.length * FAULT_ROW;
  const share = (bottom() - HEAD - above) / Math.max(data.lanes.length, 1);
  const client = Math.min(Math.max(share, CLIENT_ROW_MIN), CLIENT_ROW_MAX);
  let top = 0;
  for (const row of rows) {
    row.top = top;
    row.height = row.kind === 'broker' ? BROKER_LINE + FAILURE_LINE : row.kind === 'fault' ? FAULT_ROW : client;
    top += row.height;
  }
  return top;
}
const y = row => HEAD + rows[row].top - view.down;
const lineHeight = () => (rows[rows.length - 1].height - 5) / LINES;

// Bars that overlap in time stand below one another, as far as a row has room.
{
  const busy = data.lanes.map(() => []);
  for (const op of data.ops) {
    const lines = busy[op.l];
    let line = lines.findIndex(end => end <= op.t);
    if (line < 0) line = lines.length < LINES ? lines.length : op.i % LINES;
    lines[line] = op.e ?? Math.max(op.until, op.t + 1000);
    op.line = line;
  }
}

const time = us => (us / 1e6).toFixed(us % 1000 && view.to - view.from < 1e5 ? 6 : 3) + ' s';
const x = t => LEFT + (t - view.from) / (view.to - view.from) * (canvas.clientWidth - LEFT);
const at = px => view.from + (px - LEFT) / (canvas.clientWidth - LEFT) * (view.to - view.from);
const isSeen = (t, e = t) => e >= view.from && t <= view.to;

function isShown(op) {
  const partition = +$('partition').value;
  if (proof.has(key(op))) return true;
  if (partition >= 0 && op.p !== partition) return false;
  if (op.k === 's') return $('show-sends').checked;
  return $('show-reads').checked && (op.s !== 'empty' || $('show-empty').checked);
}

function inView() {
  let low = 0, high = data.ops.length;
  const first = view.from - longest;
  while (low < high) { const middle = (low + high) >> 1; if (data.ops[middle].t < first) low = middle + 1; else high = middle; }
  const found = [];
  for (; low < data.ops.length && data.ops[low].t <= view.to; low++) {
    const op = data.ops[low];
    if ((op.e ?? data.end) >= view.from && isShown(op)) found.push(op);
  }
  return found;
}

function colorOf(op) {
  if (op.s === 'bad') return palette.bad;
  if (op.k === 's') return palette[op.s];
  return op.k === 'c' ? palette[op.s] : op.k !== 'r' ? palette.query : palette.read;
}

function bar(from, to, top, height, color, label) {
  const left = Math.max(x(from), LEFT), right = Math.min(Math.max(x(to), left + 1.5), canvas.clientWidth);
  if (x(to) < LEFT || left > canvas.clientWidth) return;
  ctx.fillStyle = color;
  ctx.fillRect(left, top, right - left, height);
  if (label && right - left > 30) {
    ctx.save();
    ctx.beginPath(); ctx.rect(left, top, right - left - 2, height); ctx.clip();
    ctx.fillStyle = palette.text;
    ctx.fillText(label, left + 6, top + height / 2 + 4);
    ctx.restore();
  }
}

function column(from, to, top, height, color, alpha) {
  const left = Math.max(x(from), LEFT), right = Math.min(x(to), canvas.clientWidth);
  if (right < LEFT || left > canvas.clientWidth) return;
  ctx.globalAlpha = alpha; ctx.fillStyle = color;
  ctx.fillRect(left, top, Math.max(right - left, 1), height); ctx.globalAlpha = 1;
}

function upright(px, top, height, color, dash = []) {
  ctx.strokeStyle = color; ctx.setLineDash(dash);
  ctx.beginPath(); ctx.moveTo(px, top); ctx.lineTo(px, height); ctx.stroke(); ctx.setLineDash([]);
}

function drawGrid(width, height) {
  const span = view.to - view.from, wanted = span / Math.max(width / 110, 1);
  const power = 10 ** Math.floor(Math.log10(wanted)), step = [1, 2, 5, 10].map(n => n * power).find(n => n >= wanted);
  for (let t = Math.max(Math.ceil(view.from / step), 0) * step; t <= view.to; t += step) {
    const px = Math.round(x(t)) + .5, text = (t / 1e6).toFixed(Math.max(0, Math.min(6, 6 - Math.floor(Math.log10(step))))) + ' s';
    upright(px, HEAD, height, palette.line);
    ctx.fillStyle = palette.faint;
    if (px + 3 + ctx.measureText(text).width < width) ctx.fillText(text, px + 3, 14);
  }
}

function drawPhases(width) {
  let taken = [-1, -1, -1];
  for (const event of data.events.filter(event => event.kind === 'phase')) {
    const px = Math.round(x(event.t)) + .5, wide = ctx.measureText(event.what).width;
    if (px < LEFT || px > width) continue;
    upright(px, HEAD, bottom(), palette.text, [4, 3]);
    // To the left of its line where there is no room to the right; one above the other where they are close together.
    const left = px + 5 + wide < width ? px + 4 : px - 4 - wide;
    const line = Math.max(taken.findIndex(end => end < left), 0);
    taken[line] = left + wide + 4;
    ctx.fillStyle = palette.text; ctx.fillText(event.what, left, bottom() - 6 - 13 * line);
  }
}

function drawBroker() {
  const top = y(0) + 3, height = BROKER_LINE - 6;
  for (const life of data.lives) {
    const stop = life.stops ?? life.e, serve = life.serves ?? stop;
    bar(life.t, serve, top, height, palette.starts, '');
    if (life.serves !== null) bar(life.serves, stop, top, height, palette.serves, '#' + life.number);
    if (life.stops !== null) bar(life.stops, life.e, top, height, palette.stops, '');
    if (life.end && isSeen(life.e)) { ctx.fillStyle = palette.bad; ctx.fillRect(x(life.e) - 1, y(0) + 1, 2, BROKER_LINE - 2); }
  }
}

function drawFaults(height) {
  for (const fault of data.faults) {
    const row = 1 + tracks.indexOf(fault.track), top = y(row) + 2, strong = fault === hovered || fault === chosen;
    if (!isSeen(fault.t, fault.e)) continue;
    // What never hit is there, but pale.
    ctx.globalAlpha = fault.hits.length ? 1 : .45;
    bar(fault.t, fault.e, top, FAULT_BAND, palette.fault, '');
    ctx.globalAlpha = 1;
    bar(fault.t, fault.e, top, FAULT_BAND, 'transparent', (fault.hits.length ? '' : 'hit nothing: ') + fault.what);
    // Where one follows the other, they must not look like one.
    if (isSeen(fault.t)) column(fault.t, fault.t, top, FAULT_BAND, palette.hit, .6);
    if (strong) {
      const left = Math.max(x(fault.t), LEFT), right = Math.min(x(fault.e), canvas.clientWidth);
      ctx.strokeStyle = palette.text; ctx.strokeRect(left + .5, top + .5, Math.max(right - left - 1, 1), FAULT_BAND - 1);
    }
    if (fault.hits.length) column(fault.t, fault.e, y(row) + FAULT_ROW, height - y(row) - FAULT_ROW, palette.fault, .07);
  }
  for (const fault of data.faults) {
    const top = y(1 + tracks.indexOf(fault.track)) + FAULT_BAND + 2;
    let last = -9;
    for (const hit of fault.hits) {
      const px = x(hit.t), strong = hit === hovered || hit === chosen || matches.includes(hit);
      if (!isSeen(hit.t) || px - last < 1 && !strong) continue;
      last = px;
      const wide = strong ? 5 : 3.5;
      ctx.fillStyle = strong ? palette.mark : palette.hit;
      ctx.beginPath(); ctx.moveTo(px, top); ctx.lineTo(px - wide, top + 9); ctx.lineTo(px + wide, top + 9); ctx.fill();
      if (strong) upright(px, top + 9, height, palette.mark, [2, 3]);
    }
  }
}

function drawFailures(height, width) {
  for (const found of timed) {
    const is = found === data.failures[failure];
    if (!isSeen(found.t, found.e)) continue;
    if (is) {
      column(found.t, found.e, HEAD, height - HEAD, palette.bad, .12);
      upright(Math.max(x(found.t), LEFT), HEAD, height, palette.bad);
      if (found.e > found.t) upright(x(found.e), HEAD, height, palette.bad);
    }
    bar(found.t, found.e, y(0) + BROKER_LINE, FAILURE_LINE - 4, palette.bad, '');
  }
  const found = data.failures[failure];
  if (found?.t == null || !isSeen(found.t, found.e)) return;
  // The text of the chosen one, as far as it fits, beginning at its time unless that is too far to the right.
  const text = found.text.split('\n')[0], room = width - LEFT - 8;
  const wide = Math.min(Math.max(ctx.measureText(text).width + 12, Math.min(x(found.e), width) - Math.max(x(found.t), LEFT)), room);
  const left = Math.max(Math.min(x(found.t), width - wide - 4), LEFT), top = y(0) + BROKER_LINE;
  ctx.save();
  ctx.fillStyle = palette.bad; ctx.fillRect(left, top, wide, FAILURE_LINE - 4);
  ctx.beginPath(); ctx.rect(left, top, wide - 4, FAILURE_LINE); ctx.clip();
  ctx.fillStyle = palette.onbad; ctx.fillText(text, left + 6, top + 13);
  ctx.restore();
}

function arrow(x1, y1, x2, y2, color) {
  ctx.strokeStyle = ctx.fillStyle = color;
  ctx.beginPath(); ctx.moveTo(x1, y1); ctx.lineTo(x2, y2); ctx.stroke();
  const angle = Math.atan2(y2 - y1, x2 - x1);
  ctx.beginPath(); ctx.moveTo(x2, y2);
  ctx.lineTo(x2 - 5 * Math.cos(angle - .4), y2 - 5 * Math.sin(angle - .4));
  ctx.lineTo(x2 - 5 * Math.cos(angle + .4), y2 - 5 * Math.sin(angle + .4)); ctx.fill();
}

// What an operation asked and was answered: the attempts of a send, or the one question of anything else. A creation is
// tried again too, but when is not known.
const triesOf = op => op.a ?? [{ t: op.t, e: op.e, b: op.e != null && op.k !== 'c' }];

// A request that was not answered: it set out for the broker, and nothing more is known.
function stub(px, top, broker, color) {
  const length = Math.min((top - broker) * .4, 22), tip = top - length;
  ctx.strokeStyle = color; ctx.setLineDash([3, 2]);
  ctx.beginPath(); ctx.moveTo(px, top); ctx.lineTo(px + 4, tip); ctx.stroke(); ctx.setLineDash([]);
  ctx.beginPath(); ctx.moveTo(px + 1, tip - 3); ctx.lineTo(px + 7, tip + 3); ctx.moveTo(px + 7, tip - 3); ctx.lineTo(px + 1, tip + 3); ctx.stroke();
}

// To the broker and back, in the middle of each attempt. Of operations that nobody asked for only what is wholly in
// view: else they are long faint lines from nowhere to nowhere.
function drawArrows(op, top, thick, color, strong) {
  const broker = y(0) + BROKER_LINE - 3;
  for (const one of triesOf(op)) {
    if (!strong && (one.t < view.from || (one.e ?? one.t) > view.to)) continue;
    if (!one.b) { stub(x(one.t), top, broker, color); continue; }
    const middle = (x(one.t) + x(one.e)) / 2;
    arrow(x(one.t), top, middle, broker, color);
    arrow(middle, broker, x(one.e), top + thick, color);
  }
}

// The attempts of a send on its bar: each in the colour of its end, with a tick where it was sent. Between them the
// producer waited.
function drawTries(op, top, thick) {
  let last = -9;
  for (const one of op.a) {
    if (!isSeen(one.t, one.e ?? one.t)) continue;
    bar(one.t, one.e ?? one.t, top, thick, palette[one.s]);
    const px = x(one.t), strong = one === pointed;
    if (px < LEFT || px - last < 2 && !strong) continue;
    last = px;
    ctx.fillStyle = strong ? palette.mark : palette.text;
    ctx.fillRect(px - .75, top - 2, strong ? 3 : 1.5, thick + 4);
  }
}

function drawOps() {
  const ops = inView(), arrows = $('show-arrows').checked && ops.length < 400, found = new Set(matches);
  const thick = Math.max(lineHeight() - 1.5, 3);
  for (const down of downs) {
    column(down.t, down.e, y(clientRow(down.lane)) + 2, rows[clientRow(down.lane)].height - 4, palette.down, 1);
    if (isSeen(down.t)) { ctx.fillStyle = palette.bad; ctx.fillRect(x(down.t) - 1, y(clientRow(down.lane)) + 2, 2, rows[clientRow(down.lane)].height - 4); }
  }
  for (const op of ops) {
    const top = y(clientRow(op.l)) + 3 + op.line * lineHeight(), end = op.e ?? Math.min(Math.max(op.until, op.t + (view.to - view.from) / 40), data.end);
    const strong = proof.has(key(op)) || op === chosen || op === hovered;
    const color = proof.has(key(op)) ? palette.mark : colorOf(op);
    const alpha = proof.size && !strong ? .35 : 1, high = strong ? thick + 2 : thick;
    ctx.globalAlpha = op.n > 1 ? alpha * .4 : alpha;
    bar(op.t, end, top, high, color);
    ctx.globalAlpha = alpha;
    if (op.n > 1) drawTries(op, top, high);
    if (found.has(op)) { ctx.strokeStyle = palette.mark; ctx.strokeRect(x(op.t) - 2, top - 2, Math.max(x(end) - x(op.t), 2) + 4, thick + 4); }
    if (arrows || strong) {
      ctx.globalAlpha = strong ? alpha : alpha * .45;
      drawArrows(op, top, thick, color, strong);
    }
    ctx.globalAlpha = 1;
    if (strong && op.o) { ctx.fillStyle = palette.text; ctx.fillText('offset ' + (op.o[0] === op.o[1] ? op.o[0] : op.o.join('…')), x(end) + 4, top + 8); }
  }
}

function drawNames(width) {
  ctx.fillStyle = palette.back; ctx.fillRect(0, HEAD, LEFT, bottom() - HEAD);
  rows.forEach((row, index) => {
    if (y(index) < HEAD - row.height || y(index) > bottom()) return;
    ctx.strokeStyle = palette.line;
    ctx.beginPath(); ctx.moveTo(0, y(index) + .5); ctx.lineTo(width, y(index) + .5); ctx.stroke();
    const two = row.client != null && row.height >= 34, middle = y(index) + (row.kind === 'broker' ? BROKER_LINE : row.kind === 'fault' ? FAULT_BAND + 4 : row.height) / 2 + 4;
    ctx.fillStyle = palette.text;
    ctx.fillText(row.kind === 'fault' ? row.name + ' faults' : row.name, 8, middle - (two ? 7 : 0));
    if (two && row.name) { ctx.fillStyle = palette.faint; ctx.fillText('client ' + row.client, 8, middle + 7); }
    if (row.kind === 'broker' && FAILURE_LINE) { ctx.fillStyle = palette.bad; ctx.fillText('failures', 8, y(0) + BROKER_LINE + 13); }
  });
  // What is scrolled away does not show through the time axis.
  ctx.fillStyle = palette.back; ctx.fillRect(0, 0, LEFT, HEAD);
}

// The partition of the graph, and why it is that one.
function graphPartition() {
  const selected = +$('partition').value, told = data.failures.find(found => found.partition != null);
  if (selected >= 0) return [selected, ''];
  if (data.failures[failure]?.partition != null) return [data.failures[failure].partition, 'of this failure'];
  return told ? [told.partition, 'of the first failure'] : [0, 'the first of all'];
}

// The offset of the chosen failure, broad and behind the positions, so that one that lies on it is seen as well.
function drawOffset(partition, low, high, width, py) {
  const found = data.failures[failure];
  if (!found || found.partition !== partition || found.offset < low || found.offset > high) return;
  ctx.globalAlpha = .3; ctx.fillStyle = palette.mark;
  ctx.fillRect(LEFT, py(found.offset) - 4.5, width - LEFT, 9);
  ctx.globalAlpha = 1;
  ctx.fillText('offset ' + found.offset, width - 90, py(found.offset) + (py(found.offset) < bottom() + 24 ? 17 : -8));
}

function drawGraph(width, height) {
  const [partition, why] = graphPartition(), top = bottom(), name = data.partitions[partition], steps = data.positions[name] ?? [];
  ctx.fillStyle = palette.back; ctx.fillRect(0, top, width, GRAPH);
  ctx.strokeStyle = palette.line; ctx.beginPath(); ctx.moveTo(0, top + .5); ctx.lineTo(width, top + .5); ctx.stroke();
  ctx.fillStyle = palette.text; ctx.fillText(name ?? '', 8, top + 16);
  ctx.fillStyle = palette.faint; ctx.fillText(name ? why : '', 8, top + 31);
  let first = 0;
  while (first + 1 < steps.length && steps[first + 1].t <= view.from) first++;
  const shown = steps.slice(first).filter(step => step.t <= view.to);
  if (!shown.length) { ctx.fillStyle = palette.faint; ctx.fillText('no positions', 8, top + 50); return; }
  const low = Math.min(...shown.map(step => Math.min(step.end, step.durable)));
  const high = Math.max(low + 1, ...shown.map(step => Math.max(step.end, step.durable)));
  const py = value => height - 12 - (value - low) / (high - low) * (GRAPH - 34);
  drawOffset(partition, low, high, width, py);
  for (const [field, color, wide] of [['end', palette.maybe, 2.5], ['durable', palette.ok, 1.5]]) {
    ctx.strokeStyle = color; ctx.lineWidth = wide; ctx.beginPath();
    shown.forEach((step, index) => {
      const px = Math.max(x(step.t), LEFT);
      if (index) ctx.lineTo(px, py(shown[index - 1][field])); else ctx.moveTo(px, py(step[field]));
      ctx.lineTo(px, py(step[field]));
    });
    ctx.lineTo(Math.min(x(data.end), width), py(shown[shown.length - 1][field])); ctx.stroke(); ctx.lineWidth = 1;
  }
  ctx.fillStyle = palette.maybe; ctx.fillText('log end ' + high, 8, top + 50);
  ctx.fillStyle = palette.ok; ctx.fillText('durable end', 8, top + 66);
  ctx.fillStyle = palette.faint; ctx.fillText('from ' + low, 8, height - 8);
}

let pending = false;
function draw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    }
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    layOut();
    ctx.font = '11.5px system-ui, sans-serif';
    ctx.fillStyle = palette.back; ctx.fillRect(0, 0, width, height);
    ctx.save();
    ctx.beginPath(); ctx.rect(0, 0, width, bottom()); ctx.clip();
    drawGrid(width, bottom());
    ctx.beginPath(); ctx.rect(0, HEAD, width, bottom() - HEAD); ctx.clip();
    drawFaults(bottom()); drawBroker(); drawOps(); drawPhases(width); drawFailures(bottom(), width); drawNames(width);
    ctx.restore();
    drawGraph(width, height);
    keepLink();
    Object.assign(canvas.dataset, { drawn: 'yes', from: Math.round(view.from), to: Math.round(view.to) });
  });
}
