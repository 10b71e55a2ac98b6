import { h, text } from './dom.js';
import { ago, until, bytes, cores, took, clock, mood, standing } from './words.js';
import { draw } from './chart.js';

// Sheet shows one pod: what it waits for, its containers, probes, conditions
// and timeline. Which pod it is stands in the address, so that it can be linked.
export class Sheet {
  constructor(dialog, state) {
    this.dialog = dialog;
    this.state = state;
    this.ref = null;
    addEventListener('hashchange', () => this.route());
    dialog.addEventListener('close', () => this.closed());
    dialog.addEventListener('click', (e) => { if (e.target === dialog) dialog.close(); });
    this.route();
  }

  route() {
    const parts = location.hash.split('/').map(decodeURIComponent);
    if (parts[1] !== 'pods' || parts.length < 4) {
      this.ref = null;
      if (this.dialog.open) this.dialog.close();
      return;
    }
    const opener = document.activeElement;
    this.ref = { namespace: parts[2], name: parts[3], uid: parts[4] || '' };
    this.hash = location.hash;
    this.build();
    if (!this.dialog.open) {
      this.opener = opener;
      this.dialog.showModal();
    }
    this.look();
  }

  // closed comes some time after the sheet was closed: it may be open again by
  // then, or another pod may have been chosen.
  closed() {
    if (this.dialog.open) return;
    if (this.ref && location.hash === this.hash) history.pushState(null, '', location.pathname);
    this.ref = null;
    this.opener?.focus?.();
  }

  build() {
    const part = (name, title) => { const e = h('div', {}); this[name] = e; return h('section', {}, title && h('h3', {}, title), e); };
    this.title = h('h2', { id: 'sheet-title' }, h('span', { class: 'quiet' }, `${this.ref.namespace}/`), this.ref.name);
    this.stands = h('p', { class: 'stands' });
    this.dialog.replaceChildren(h('article', {},
      h('header', {}, this.title, h('button', { type: 'button', class: 'close', 'aria-label': 'Close', onclick: () => this.dialog.close() }, '✕')),
      this.stands, part('waits', ''), part('containers', 'Containers'), part('probes', 'Probes'), part('conditions', 'Conditions'), part('timeline', 'Timeline')));
    this.boxes = new Map();
  }

  async look() {
    const ref = this.ref;
    if (!ref || this.busy) return;
    this.busy = true;
    try {
      const query = ref.uid ? `?uid=${encodeURIComponent(ref.uid)}` : '';
      const answer = await fetch(`api/pods/${encodeURIComponent(ref.namespace)}/${encodeURIComponent(ref.name)}${query}`, { signal: AbortSignal.timeout(8000) });
      if (this.ref !== ref) return;
      if (!answer.ok) { text(this.stands, await answer.text()); return; }
      this.show(await answer.json());
    } catch (error) {
      if (this.ref === ref) text(this.stands, `The node does not answer: ${error.message}`);
    } finally {
      this.busy = false;
      if (this.ref && this.ref !== ref) this.look();
    }
  }

  show(page) {
    const pod = this.state.overview?.pods.find((p) => p.uid === page.uid);
    this.pod = pod;
    const facts = page.gone ? [`gone for ${ago(page.gone)}`] : [pod ? standing(pod) : page.phase || 'Pending', pod?.ip, pod?.qos, pod?.created && `${ago(pod.created)} old`, `uid ${page.uid}`];
    this.stands.className = `stands ${pod ? mood(pod) : 'quiet'}`;
    text(this.stands, facts.filter(Boolean).join(' · '));
    this.showWaits(page);
    this.showContainers(pod);
    this.showProbes(page);
    this.showConditions(pod);
    this.showTimeline(page);
  }

  showWaits(page) {
    const cards = (page.waits || []).map((w) => h('div', { class: `wait ${w.retry || w.kind === 'backoff' ? 'bad' : 'wait'}` },
      h('h4', {}, w.kind, w.object && h('code', {}, w.object), w.since && h('small', {}, `for ${ago(w.since)}`)),
      h('p', {}, w.reason), w.advice && h('p', { class: 'advice' }, w.advice), w.retry && h('small', {}, `next try in ${until(w.retry)}`)));
    if (page.message || page.reason) cards.unshift(h('div', { class: 'wait bad' }, h('h4', {}, page.reason || page.phase), h('p', {}, page.message)));
    if (!cards.length && !page.gone) cards.push(h('p', { class: 'calm' }, 'It waits for nothing.'));
    this.waits.replaceChildren(...cards);
  }

  showContainers(pod) {
    this.containers.parentElement.hidden = !pod;
    if (!pod) return;
    for (const c of pod.containers) {
      let box = this.boxes.get(c.name);
      if (!box) {
        box = h('div', { class: 'container' }, h('h4', {}), h('code', { class: 'image' }),
          h('div', { class: 'pair' }, h('figure', {}, h('figcaption', {}), h('div', { class: 'chart' })), h('figure', {}, h('figcaption', {}), h('div', { class: 'chart' }))));
        this.boxes.set(c.name, box);
        this.containers.append(box);
      }
      const words = [c.name, c.kind && `(${c.kind})`, c.state, c.reason, c.since && `for ${ago(c.since)}`, c.restarts ? `${c.restarts} restarts` : ''].filter(Boolean);
      text(box.children[0], words.slice(0, c.kind ? 2 : 1).join(' '));
      box.children[0].append(h('small', { class: c.state === 'running' ? 'good' : c.reason && c.reason !== 'Completed' ? 'bad' : 'quiet' }, words.slice(c.kind ? 2 : 1).join(' · ')));
      text(box.children[1], c.image);
    }
    this.measured();
  }

  // measured draws the charts of the containers anew.
  measured() {
    if (!this.ref || !this.pod) return;
    for (const c of this.pod.containers) {
      const box = this.boxes.get(c.name);
      if (!box) continue;
      const name = `${this.pod.uid}/${c.name}`;
      const pair = box.children[2];
      const kinds = [[1, cores, 'CPU', c.cpuLimit], [2, bytes, 'Memory', c.memoryLimit]];
      pair.hidden = !this.state.history.of(name, 1).length;
      kinds.forEach(([field, say, what, limit], i) => {
        const points = this.state.history.of(name, field);
        const now = points.length ? say(points[points.length - 1][1]) : '';
        pair.children[i].firstElementChild.replaceChildren(what, h('b', {}, limit ? `${now} of ${say(limit)}` : now));
        draw(pair.children[i].lastElementChild, points, { height: 56, say, limit, label: `${what} of ${c.name}` });
      });
    }
  }

  showProbes(page) {
    this.probes.parentElement.hidden = !page.probes.length && !page.probesProblem;
    const rows = page.probes.map((p) => h('tr', {}, h('td', {}, p.container), h('td', {}, p.type),
      h('td', {}, h('span', { class: `state ${p.outcome === 'success' ? 'good' : p.outcome === 'failure' ? 'bad' : 'wait'}` }, p.outcome === 'unspecified' ? 'not known yet' : p.outcome)),
      h('td', {}, h('code', {}, p.handler), h('small', { class: 'quiet' }, ` every ${p.period} s`)),
      h('td', {}, p.last ? `${p.lastOk ? 'ok' : 'failed'} ${p.streak > 1 ? `${p.streak} times ` : ''}· ${ago(p.last)} ago` : 'not tried yet')));
    this.probes.replaceChildren(page.probesProblem ? h('p', { class: 'quiet' }, page.probesProblem) : h('div', { class: 'scroll' }, h('table', {}, h('tbody', {}, rows))));
  }

  showConditions(pod) {
    this.conditions.parentElement.hidden = !pod?.conditions.length;
    this.conditions.replaceChildren(h('ul', { class: 'chips' }, (pod?.conditions || []).map((c) => h('li', {
      class: `chip ${c.status === 'True' ? 'good' : 'wait'}`, title: `${c.reason || ''} ${c.message || ''} (since ${ago(c.since)})`,
    }, `${c.type}${c.status === 'True' ? '' : `: ${c.reason || c.status}`}`))));
  }

  showTimeline(page) {
    const longest = Math.max(0.001, ...page.timeline.map((e) => e.seconds || 0));
    const rows = page.timeline.toReversed().map((e) => {
      const bar = h('i', { class: 'length' });
      bar.style.width = `${Math.max(0, Math.min(100, ((e.seconds || 0) / longest) * 100))}%`;
      return h('li', { class: e.error ? 'bad' : e.running ? 'wait' : '' },
        h('time', { datetime: e.time, title: e.first ? `first ${clock(e.first)}` : undefined }, clock(e.time, true)),
        h('div', {}, h('b', {}, e.step), e.object && h('code', {}, e.object), e.count > 1 && h('small', { class: 'chip quiet' }, `×${e.count} since ${clock(e.first)}`),
          h('small', { class: 'took' }, e.running ? `going on for ${ago(e.time)}` : took(e.seconds || 0)),
          (e.detail || e.error) && h('p', {}, [e.detail, e.error].filter(Boolean).join('; ')), e.seconds > 0 && bar));
    });
    this.timeline.replaceChildren(h('ol', { class: 'timeline' }, rows), ...(page.dropped ? [h('p', { class: 'quiet' }, `${page.dropped} earlier entries are not kept.`)] : []));
  }
}
