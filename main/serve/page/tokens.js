// The token view: an answer as its tokens, each with its probability and the alternatives that the
// model weighed. Choosing an alternative begins a sibling answer with the text before it.

import {el} from './dom.js';

const encoder = new TextEncoder();

function startsWith(bytes, at, part) {
  return part.length > 0 && part.every((byte, i) => bytes[at + i] === byte);
}

function isBlank(part) {
  return part.every((byte) => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09);
}

// Where each token is in the answer: {place: 'thoughts' | 'text' | null, start} in bytes. The place
// is null for tokens outside both: ends of a turn, marks around thoughts, trimmed spaces.
export function alignTokens(tokens, thoughts, text) {
  const parts = [['thoughts', encoder.encode(thoughts)], ['text', encoder.encode(text)]];
  let part = 0;
  let at = 0;
  return tokens.map(({bytes}) => {
    while (part < 1 && at >= parts[part][1].length) {
      ++part;
      at = 0;
    }
    const [place, whole] = parts[part];
    // The server may drop spaces at the end of thoughts and at the start of what follows.
    const rest = whole.length - at;
    const front = bytes.findIndex((byte) => byte !== 0x20 && byte !== 0x0a);
    if (startsWith(whole, at, bytes) ||
        rest > 0 && rest < bytes.length && startsWith(whole, at, bytes.slice(0, rest)) &&
        isBlank(bytes.slice(rest))) {
      const start = at;
      at = Math.min(at + bytes.length, whole.length);
      return {place, start};
    }
    if (at === 0 && front > 0 && startsWith(whole, 0, bytes.slice(front))) {
      at = bytes.length - front;
      return {place, start: 0};
    }
    return {place: null, start: at};
  });
}

// The text before token `index` and the alternative, or null if that is no whole UTF-8.
export function branchText(prefix, text, start, other) {
  const before = encoder.encode(text).slice(0, start);
  const bytes = new Uint8Array([...encoder.encode(prefix), ...before, ...other.bytes]);
  try {
    return new TextDecoder('utf-8', {fatal: true, ignoreBOM: true}).decode(bytes);
  } catch {
    return null;
  }
}

export function percent(logprob) {
  const share = 100 * Math.exp(logprob);
  if (share >= 99.95) return '100%';
  if (share >= 9.95) return `${share.toFixed(0)}%`;
  return share >= 0.1 ? `${share.toFixed(1)}%` : '<0.1%';
}

// Steps of colour: 0 is certain, 5 is below 5%.
function step(logprob) {
  const share = Math.exp(logprob);
  return [0.9, 0.7, 0.4, 0.15, 0.05].findIndex((bound) => share >= bound) + 1 || 6;
}

// The text of a token. A token that is a part of a character is shown as its bytes.
function pieceOf({bytes}) {
  try {
    return new TextDecoder('utf-8', {fatal: true, ignoreBOM: true}).decode(new Uint8Array(bytes));
  } catch {
    return `‹${bytes.map((byte) => byte.toString(16).padStart(2, '0')).join(' ')}›`;
  }
}

function visible(token) {
  return pieceOf(token).replace(/ /g, '·').replace(/\n/g, '↵').replace(/\t/g, '→') || '∅';
}

function sameBytes(a, b) {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

// `node` as tokens. `onpick(index)` is called when a token is chosen.
export function tokenText(node, tokens, places, onpick) {
  const view = el('div', {class: 'tokens', role: 'group', 'aria-label': 'Tokens of this answer'});
  const marks = [];
  if (node.prefix) view.append(el('span', {class: 'prefix', title: 'The text it was begun with'},
    node.prefix));
  const move = (index, by) => {
    const next = marks.findIndex((mark) => mark.index === index) + by;
    if (marks[next]) pick(marks[next]);
  };
  const pick = ({index, span}) => {
    view.querySelector('[aria-current]')?.removeAttribute('aria-current');
    span.setAttribute('aria-current', 'true');
    for (const mark of marks) mark.span.tabIndex = -1;
    span.tabIndex = 0;
    span.focus();
    onpick(index);
    span.scrollIntoView({block: 'nearest'});
  };
  let place = 'text';
  tokens.forEach((token, index) => {
    const at = places[index];
    if (at.place === null && token.text === '') return;
    if (at.place && at.place !== place) {
      place = at.place;
      view.append(el('p', {class: 'part'}, place === 'thoughts' ? 'Thinking' : 'Answer'));
    }
    const span = el('span', {class: `token s${step(token.logprob) - 1}`, tabindex: '-1',
      role: 'button', title: `${visible(token)} ${percent(token.logprob)}`,
      onclick: () => pick({index, span}),
      onkeydown: (event) => {
        if (event.key === 'ArrowRight') move(index, 1);
        else if (event.key === 'ArrowLeft') move(index, -1);
        else if (event.key === 'Enter' || event.key === ' ') pick({index, span});
        else return;
        event.preventDefault();
      }});
    span.append(at.place === null ? `⟨${token.text.trim() || '␣'}⟩` : pieceOf(token));
    if (at.place === null) span.classList.add('outside');
    marks.push({index, span});
    view.append(span);
  });
  if (marks.length > 0) marks[0].span.tabIndex = 0;
  return view;
}

// The panel of one token: its alternatives as bars. `onbranch(text)` begins an answer with `text`.
export function tokenPanel(node, tokens, places, index, onbranch) {
  const token = tokens[index];
  const at = places[index];
  const others = token.others.some((other) => sameBytes(other.bytes, token.bytes)) ?
    token.others : [...token.others, token];
  const list = el('ol', {class: 'alternatives'});
  for (const other of others) {
    const drawn = sameBytes(other.bytes, token.bytes);
    const text = at.place === 'text' && !drawn ?
      branchText(node.prefix ?? '', node.text, at.start, other) : null;
    const bar = el('span', {class: 'bar'});
    bar.style.setProperty('--share', `${100 * Math.exp(other.logprob)}%`);
    const row = [el('span', {class: 'piece'}, visible(other)), bar,
      el('span', {class: 'share'}, percent(other.logprob))];
    list.append(el('li', {class: drawn ? 'drawn' : ''}, text === null || text === '' ?
      el('div', {class: 'alternative'}, ...row) :
      el('button', {type: 'button', class: 'alternative', title: 'Branch here with this token',
        onclick: () => onbranch(text)}, ...row)));
  }
  const sum = others.reduce((total, other) => total + Math.exp(other.logprob), 0);
  let hint = 'Choose an alternative: a new answer begins with the text before it.';
  if (at.place === 'thoughts') hint = 'In thoughts tokens are shown but cannot be replaced.';
  if (at.place === null) hint = 'This token is not part of the text of the answer.';
  return el('div', {class: 'token-panel'},
    el('p', {}, `Token ${index + 1} of ${tokens.length}: `, el('code', {}, visible(token)),
      `, ${percent(token.logprob)}`),
    list,
    el('p', {class: 'help'}, sum < 0.995 ? `All other tokens: ${percent(Math.log(1 - sum))}. ` : '',
      hint));
}

// How surprising an answer was: the mean of -log2 of the probabilities, in bits a token.
export function bitsPerToken(tokens) {
  const sum = tokens.reduce((total, token) => total - token.logprob, 0);
  return tokens.length > 0 ? sum / Math.LN2 / tokens.length : 0;
}
