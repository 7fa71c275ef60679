
// What the reader does: pointing, choosing, zooming, searching.
function zoom(factor, around) {
  const least = 50;
  const span = Math.min(Math.max((view.to - view.from) * factor, least), data.end * 1.1);
  const share = (around - view.from) / (view.to - view.from);
  view.from = Math.max(around - span * share, -data.end * .05); view.to = view.from + span;
  draw();
}
function move(by) { view.from += by; view.to += by; draw(); }
function scroll(by) { view.down = Math.max(0, Math.min(view.down + by, layOut() + HEAD - bottom())); draw(); }
function show(from, to, share = .25, least = 2000) {
  const margin = Math.max((to - from) * share, least);
  view.from = from - margin; view.to = to + margin; draw();
}
function fit() { show(0, data.end, .01); }
// Brings something into view, a moment with what is around it.
function go(thing) {
  if (thing.type === 'op') show(thing.t, thing.until);
  else show(thing.t, thing.type === 'hit' ? thing.t : thing.e ?? thing.t, .25, 50000);
}

const HITS_TOLD = 8;
// What faults had done shortly before something failed, or while it did.
function lastHits(found) {
  if (found.t == null) return '';
  const felt = data.hits.filter(hit => hit.t >= found.t - 1e6 && hit.t <= found.e + 20000).slice(-HITS_TOLD);
  return felt.length ? '\n\nfaults that hit shortly before:' + felt.map(hit => '\n  ' + time(hit.t) + ' ' + hit.text).join('') : '';
}
// The attempts of a send, the one that is pointed at marked.
function attempts(op) {
  if (!op.a) return '';
  let last = 0;
  const lines = op.a.map(one => {
    const left = one.i - last - 1;
    last = one.i;
    return (left ? '\n  … ' + left + ' more …' : '') + '\n' + (one === pointed ? '▸ ' : '  ') + one.text.replace(/, /g, ',\n    ');
  });
  return '\n' + (op.n === 1 ? '1 attempt:' : op.n + ' attempts:') + lines.join('');
}
function when(found) {
  if (found.t == null) return '';
  return '\n  ' + (found.e > found.t ? 'from ' + time(found.t) + ' to ' + time(found.e) : 'at ' + time(found.t));
}
function describe(thing) {
  if (!thing) return 'Point at something; click to keep it here.';
  if (thing.type === 'op') return thing.text.replace(/, /g, ',\n  ') + attempts(thing);
  const span = '\n  from ' + time(thing.t) + ' to ' + time(thing.e ?? thing.t);
  if (thing.type === 'hit') return thing.text + '\n  at ' + time(thing.t) + '\n  fault ' + thing.fault + ': ' + (faultOf.get(thing.fault)?.what ?? '');
  if (thing.type === 'event') return thing.text + '\n  at ' + time(thing.t);
  if (thing.type === 'failure') return thing.text + when(thing) + lastHits(thing);
  if (thing.type === 'life') {
    const serves = thing.serves === null ? '\n  never served' : '\n  served from ' + time(thing.serves);
    return thing.text + span + serves + (thing.end ? '\n  ' + thing.end : '');
  }
  if (thing.type !== 'fault') return thing.text + span;
  const told = thing.hits.slice(0, HITS_TOLD).map(hit => '\n  ' + time(hit.t) + ' ' + hit.text).join('');
  const more = thing.hits.length - HITS_TOLD;
  return 'fault ' + thing.number + ': ' + thing.what + span + (told ? '\nit bit:' + told : '\n  it hit nothing') +
    (more > 0 ? '\n  and ' + more + ' more marks' : '');
}

function pick(px, py) {
  if (py > bottom() || py < HEAD || px < LEFT) return null;
  const index = rows.findIndex((row, index) => y(index) <= py && py < y(index) + row.height);
  if (index < 0) return null;
  const t = at(px), slack = (view.to - view.from) / (canvas.clientWidth - LEFT) * 3;
  const covers = thing => thing.t - slack <= t && (thing.until ?? thing.e ?? thing.t) + slack >= t;
  const nearest = things => things.reduce((best, thing) => best && Math.abs(best.t - t) <= Math.abs(thing.t - t) ? best : thing, null);
  if (index === 0) {
    if (py > y(0) + BROKER_LINE) return nearest(timed.filter(covers));
    return data.lives.findLast(covers) ?? null;
  }
  if (index <= tracks.length) {
    const faults = data.faults.filter(fault => fault.track === tracks[index - 1]);
    const hit = nearest(faults.flatMap(fault => fault.hits).filter(covers));
    return hit ?? faults.findLast(covers) ?? null;
  }
  const line = (py - y(index) - 3) / lineHeight();
  const found = inView().filter(op => clientRow(op.l) === index && covers(op));
  const near = found.sort((a, b) => Math.abs(a.line + .5 - line) - Math.abs(b.line + .5 - line))[0];
  return near ?? downs.find(down => clientRow(down.lane) === index && covers(down)) ?? null;
}

// The attempt of a send at a place.
function pickTry(op, px) {
  const t = at(px), slack = (view.to - view.from) / (canvas.clientWidth - LEFT) * 3;
  return op?.a?.findLast(one => one.t - slack <= t && (one.e ?? one.t) + slack >= t) ?? null;
}

// Fills the details; the attempt that is pointed at stands out and is in sight.
function tell(text) {
  const at = text.indexOf('▸');
  if (at < 0) { $('details').textContent = text; return; }
  const [own] = text.slice(at).split(/\n {2}(?! )/), strong = element('b', '', own);
  $('details').replaceChildren(text.slice(0, at), strong, text.slice(at + own.length));
  strong.scrollIntoView({ block: 'nearest' });
}

function keep(thing) {
  chosen = thing;
  tell(describe(thing));
  draw();
}

// A failure with the operations that prove it, or the time at which it happened, or all of the run.
function choose(index) {
  failure = index;
  const found = data.failures[index];
  document.querySelectorAll('.failure').forEach((node, at) => {
    node.classList.toggle('chosen', at === index);
    if (at === index) node.scrollIntoView({ block: 'nearest' });
  });
  proof = new Set(found ? found.proof.map(([kind, number]) => kind + number) : []);
  const ops = [...proof].map(name => byKey.get(name)).filter(Boolean);
  chosen = null;
  if (ops.length) {
    show(Math.min(...ops.map(op => op.t)), Math.max(...ops.map(op => op.until)));
    tell(ops.map(op => describe(op)).join('\n\n'));
  } else {
    if (found?.t != null) show(found.t, found.e, .35, 150000); else fit();
    // What it says stands on its card.
    tell(found ? (found.place + when(found) + lastHits(found)) : describe(found));
  }
}

// The view as the address of the page, which can be kept and shared: seconds, the partition's name, and what was searched
// for. What is not said there stays as the page opens.
let linking = 0;
function keepLink() {
  clearTimeout(linking);
  linking = setTimeout(() => {
    const fields = new URLSearchParams({ from: (view.from / 1e6).toFixed(6), to: (view.to / 1e6).toFixed(6) });
    const partition = data.partitions[$('partition').value], find = $('search').value.trim();
    if (partition) fields.set('partition', partition);
    if (find) fields.set('find', find);
    if (failure >= 0) fields.set('failure', failure + 1);
    // Some browsers refuse it for a page that stands in another one.
    try { history.replaceState(null, '', '#' + fields); } catch { /* then there is no link */ }
  }, 150);
}
function followLink() {
  const fields = new URLSearchParams(location.hash.slice(1)), number = name => parseFloat(fields.get(name)) * 1e6;
  if (fields.has('failure') && data.failures[fields.get('failure') - 1]) choose(fields.get('failure') - 1);
  if (fields.has('partition')) $('partition').value = data.partitions.indexOf(fields.get('partition'));
  if (fields.has('find')) { $('search').value = fields.get('find'); search(); }
  const from = number('from'), to = number('to');
  if (to > from) [view.from, view.to] = [from, to];
  draw();
}

function search() {
  const text = $('search').value.trim().toLowerCase();
  const number = /^(offset|value|send|read)\s+(\d+)$/.exec(text), moment = /^(\d+(?:\.\d+)?)\s*s$/.exec(text);
  const within = (range, n) => range && range[0] <= n && n <= range[1];
  const test = number && {
    offset: op => within(op.o, +number[2]), value: op => within(op.v, +number[2]),
    send: op => op.k === 's' && op.i === +number[2], read: op => op.k === 'r' && op.i === +number[2],
  }[number[1]];
  const all = [...data.ops, ...data.hits, ...data.faults, ...data.events, ...timed];
  const has = thing => thing.text.toLowerCase().includes(text) || thing.a?.some(has);
  matches = !text || moment ? [] : (test ? data.ops.filter(test) : all.filter(has)).sort((a, b) => a.t - b.t);
  matched = -1;
  $('matches').textContent = !text ? '' : moment ? 'shown' : matches.length + ' found';
  if (moment) show(moment[1] * 1e6, moment[1] * 1e6, 0, 50000);
  else if (matches.length) nextMatch(); else draw();
}
function nextMatch() {
  matched = (matched + 1) % matches.length;
  $('matches').textContent = (matched + 1) + ' of ' + matches.length;
  go(matches[matched]);
  keep(matches[matched]);
}
function nextFaultHit() {
  const after = chosen?.type === 'hit' ? data.hits.indexOf(chosen) + 1 : data.hits.findIndex(hit => hit.t >= view.from);
  const hit = data.hits[after] ?? data.hits[0];
  if (hit) { go(hit); keep(hit); }
}

function element(name, kind, ...content) {
  const node = document.createElement(name);
  node.className = kind;
  node.append(...content);
  return node;
}

function listFailures() {
  data.failures.forEach((found, index) => {
    const beyond = found.beyond ? ' (beyond promise)' : '', span = found.t == null ? '' : time(found.t) + (found.e > found.t ? ' to ' + time(found.e) : '');
    const title = element('b', '', found.place + beyond + ' ', element('time', '', span));
    const node = element('div', 'failure' + (found.beyond ? ' beyond' : ''), title, element('span', '', found.what));
    const read = found.times > 2 ? ' more reads saw the same' : ' more read saw the same', [low, high] = found.offsets;
    const seen = found.proof.some(([kind]) => kind === 'r') ? read : ' more of the same';
    if (found.times > 1) node.append(element('em', '', 'and ' + (found.times - 1) + seen + (low < high ? ', all in all at offsets ' + low + ' to ' + high : '')));
    node.onclick = () => choose(index);
    $('failures').append(node);
  });
  if (!data.failures.length) $('failures').append(element('p', '', data.summary));
}

// Broker, clients and phases, the faults, their hits, and the failures, in the order of their times.
function listEvents() {
  const things = [...data.faults, ...data.hits, ...data.events, ...timed].sort((a, b) => a.t - b.t);
  for (const thing of things) {
    const kind = thing.type === 'event' ? thing.kind : thing.type === 'failure' ? 'failure-event' : thing.type;
    const node = element('li', kind, element('time', '', time(thing.t)), thing.text.split('\n')[0]);
    node.title = thing.text;
    node.onclick = () => thing.type === 'failure' ? choose(data.failures.indexOf(thing)) : (go(thing), keep(thing));
    $('events').append(node);
  }
}

function setUp() {
  document.title = data.title;
  $('title').textContent = data.title;
  const count = data.failures.reduce((sum, found) => sum + (found.beyond ? 0 : found.times), 0);
  $('verdict').textContent = data.good ? 'passed' : count === 1 ? '1 failure' : count + ' failures';
  $('verdict').classList.toggle('failed', !data.good);
  $('replay').textContent = data.replay;
  $('replay').onclick = () => navigator.clipboard?.writeText(data.replay);
  data.partitions.forEach((name, index) => $('partition').add(new Option(name, index)));
  listFailures();
  listEvents();
}

canvas.addEventListener('wheel', event => {
  event.preventDefault();
  if (event.shiftKey) scroll(event.deltaY || event.deltaX);
  else zoom(1.0015 ** event.deltaY, at(event.offsetX));
}, { passive: false });
let drag = null;
canvas.addEventListener('pointerdown', event => { drag = { px: event.offsetX, py: event.offsetY, moved: false }; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener('pointermove', event => {
  if (drag && (drag.moved || Math.abs(event.offsetX - drag.px) > 3)) {
    move((drag.px - event.offsetX) / (canvas.clientWidth - LEFT) * (view.to - view.from));
    scroll(drag.py - event.offsetY);
    drag = { px: event.offsetX, py: event.offsetY, moved: true };
    return;
  }
  const found = pick(event.offsetX, event.offsetY);
  const near = pickTry(found, event.offsetX);
  if (found === hovered && near === pointed) return;
  [hovered, pointed] = [found, near];
  if (found && (!chosen || chosen === found)) tell(describe(found));
  draw();
});
canvas.addEventListener('pointerup', event => {
  const found = pick(event.offsetX, event.offsetY);
  if (drag && !drag.moved) found?.type === 'failure' ? choose(data.failures.indexOf(found)) : keep(found);
  drag = null;
});
document.addEventListener('keydown', event => {
  if (event.target.tagName === 'INPUT' && event.target.type === 'search') { if (event.key === 'Enter' && matches.length) nextMatch(); return; }
  const span = view.to - view.from, middle = (view.from + view.to) / 2;
  const action = {
    ArrowLeft: () => move(-span / 5), ArrowRight: () => move(span / 5), '+': () => zoom(.6, middle), '=': () => zoom(.6, middle),
    '-': () => zoom(1 / .6, middle), 0: fit, b: nextFaultHit, '/': () => $('search').focus(),
    n: () => matches.length ? nextMatch() : data.failures.length && choose((failure + 1) % data.failures.length),
  }[event.key];
  if (action && !event.ctrlKey && !event.metaKey) { event.preventDefault(); action(); }
});
for (const id of ['partition', 'show-sends', 'show-reads', 'show-empty', 'show-arrows']) $(id).addEventListener('change', draw);
$('search').addEventListener('input', search);
$('fit').addEventListener('click', fit);
addEventListener('resize', draw);
addEventListener('hashchange', followLink);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { palette = colors(); draw(); });
setUp();
// At the first failure that has a place; those that are about the whole run, and those that are excused, come after.
const first = [found => found.proof.length, found => found.t != null].flatMap(has => data.failures.findIndex(found => !found.beyond && has(found))).find(index => index >= 0);
if (data.failures.length) choose(first ?? 0); else fit();
followLink();
