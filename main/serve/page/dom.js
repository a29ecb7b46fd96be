// Builds nodes of the document. No function of the page takes markup: text becomes text nodes, so
// what a model, a file or a link says cannot become an element.

// el('button', {class: 'quiet', onclick: f, disabled: true}, 'Copy', node): `on...` are listeners,
// true is an attribute without a value; false, null and undefined leave an attribute out.
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked') node[name] = value;
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function find(id) {
  return document.getElementById(id);
}

// A button with a text, or with a sign and a spoken name.
export function button(text, onclick, props = {}) {
  return el('button', {type: 'button', onclick, ...props}, text);
}

// Says something to people who cannot see the page.
export function announce(text) {
  find('live').textContent = text;
}

// navigator.clipboard exists only on https and localhost; the older way also works elsewhere.
export async function copyText(text, from) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el('textarea', {value: text, class: 'offscreen'});
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
    if (from) from.focus();
  }
  if (from) flash(from, 'Copied');
  announce('Copied');
}

// Shows another text on a button for a second and a half.
export function flash(node, text) {
  if (node.dataset.text) return;
  node.dataset.text = node.textContent;
  node.textContent = text;
  setTimeout(() => {
    node.textContent = node.dataset.text;
    delete node.dataset.text;
  }, 1500);
}

// The work of a button that is pressed twice, so that one press never deletes.
export function whenSure(work) {
  return (event) => {
    const pressed = event.currentTarget;
    if (pressed.classList.contains('sure')) {
      work();
      return;
    }
    const text = pressed.textContent;
    pressed.classList.add('sure');
    pressed.textContent = 'Really delete';
    pressed.addEventListener('blur', () => {
      pressed.classList.remove('sure');
      pressed.textContent = text;
    }, {once: true});
    pressed.focus();
  };
}

export function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  const link = el('a', {href: address, download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// Calls `work` once before the next frame, however often it is asked.
export function perFrame(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    // A hidden page draws no frames, but its answers must still be kept.
    const next = document.hidden ? (then) => setTimeout(then, 100) : requestAnimationFrame;
    next(() => {
      waiting = false;
      work();
    });
  };
}

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return [...bytes].map((byte) => byte.toString(36).padStart(2, '0')).join('');
}
