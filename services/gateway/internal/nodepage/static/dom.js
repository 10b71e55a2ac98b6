// Elements without markup: whatever the node says is text, never HTML.

// h makes an element. Attributes with an undefined value are left out; a class,
// a listener (onclick) and children (elements or texts) are as one expects.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== false) element.append(child);
  }
  return element;
}

export const byId = (id) => document.getElementById(id);

// text changes an element's text only when it is another one, so that a
// selection survives.
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

// list makes parent hold one child per item, keyed. make builds one, update
// fills it. What goes is removed before anything is placed, so that a child that
// stays need not move: a moved one would lose the focus.
export function list(parent, items, key, make, update) {
  const names = new Set(items.map(key));
  for (const child of [...parent.children]) if (!names.has(child.dataset.key)) child.remove();
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let before = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = old.get(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    if (child === before) before = before.nextElementSibling;
    else parent.insertBefore(child, before);
    update(child, item);
  }
}
