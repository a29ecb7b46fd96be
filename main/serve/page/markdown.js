// Markdown as nodes of the document: headings, lists, quotes, tables, code, emphasis and links. A
// model's text is never markup: HTML in it stays text, a picture becomes a link, and only links to
// http, https and mail can be followed. Time is proportional to the text, whatever it holds.

import {button, copyText, el} from './dom.js';

const kDeepest = 8;  // nested lists, quotes or emphasis; deeper ones stay text

// The address if it may be followed, else null.
export function safeAddress(text) {
  // Control characters and spaces are dropped by browsers, so "java\nscript:" would run.
  if (/[\u0000-\u0020\u007f]/.test(text)) return null;
  return /^(https?:\/\/|mailto:)[^"'<>]+$/i.test(text) ? text : null;
}

function link(address, ...content) {
  return el('a', {href: address, target: '_blank', rel: 'noopener noreferrer', title: address},
    ...content);
}

// The place after the text that `open` at `start` begins and `close` ends; nested pairs count.
function matching(text, start, open, close) {
  let depth = 0;
  for (let i = start; i < text.length && i < start + 2000; ++i) {
    if (text[i] === '\\') ++i;
    else if (text[i] === '\n' && text[i + 1] === '\n') return -1;
    else if (text[i] === open) ++depth;
    else if (text[i] === close && --depth === 0) return i;
  }
  return -1;
}

// [label](address "title") at `at`, or null. `end` is the place after it.
function readLink(text, at) {
  const close = matching(text, at, '[', ']');
  if (close < 0 || text[close + 1] !== '(') return null;
  const end = matching(text, close + 1, '(', ')');
  if (end < 0) return null;
  const address = text.slice(close + 2, end).trim().replace(/\s+("[^"]*"|'[^']*')$/, '');
  return {label: text.slice(at + 1, close), address: safeAddress(address.replace(/^<|>$/g, '')),
    end: end + 1};
}

const kWord = /[\p{L}\p{N}_]/u;

// The place of the closing `mark` of emphasis that is opened before `from`, or -1.
function closing(text, from, mark) {
  for (let i = text.indexOf(mark, from); i >= 0; i = text.indexOf(mark, i + 1)) {
    if (i === from || /\s/.test(text[i - 1]) || text[i - 1] === '\\') continue;
    const next = text[i + mark.length] ?? '';
    if (mark.length === 1 && next === mark) {
      ++i;
      continue;
    }
    if (mark[0] === '_' && kWord.test(next)) continue;
    return i;
  }
  return -1;
}

const kMarks = [['**', 'strong'], ['__', 'strong'], ['~~', 's'], ['*', 'em'], ['_', 'em']];
const kSpecial = /[\\`*_~[!<\n]|https?:\/\//g;

// Appends `text` with its emphasis, code and links to `parent`.
export function inline(parent, text, depth = 0) {
  let plain = '';
  const unclosed = new Set();  // marks without a closing one further on: they need no second search
  const flush = () => {
    if (plain) parent.append(plain);
    plain = '';
  };
  const add = (node, end) => {
    flush();
    parent.append(node);
    return end;
  };
  const emphasis = (i) => {
    for (const [mark, tag] of kMarks) {
      if (!text.startsWith(mark, i) || unclosed.has(mark)) continue;
      const from = i + mark.length;
      if (from >= text.length || /\s/.test(text[from])) continue;
      if (mark[0] === '_' && i > 0 && kWord.test(text[i - 1])) continue;
      const end = closing(text, from, mark);
      if (end < 0) unclosed.add(mark);
      else {
        const node = el(tag);
        inline(node, text.slice(from, end), depth + 1);
        return add(node, end + mark.length);
      }
    }
    return 0;
  };
  const special = (i) => {
    const c = text[i];
    if (c === '\n') return add(el('br'), i + 1);
    if (c === '\\' && /[!-/:-@[-`{-~\n]/.test(text[i + 1] ?? '')) {
      if (text[i + 1] === '\n') return add(el('br'), i + 2);
      plain += text[i + 1];
      return i + 2;
    }
    if (c === '`') {
      const ticks = /^`+/.exec(text.slice(i, i + 40))[0];
      const end = unclosed.has(ticks) ? -1 : text.indexOf(ticks, i + ticks.length);
      if (end < 0) unclosed.add(ticks);
      else {
        const code = text.slice(i + ticks.length, end).replace(/\n/g, ' ');
        return add(el('code', {}, code.replace(/^ (.*) $/, '$1')), end + ticks.length);
      }
      plain += ticks;
      return i + ticks.length;
    }
    if (c === '[' || c === '!' && text[i + 1] === '[') {
      const found = readLink(text, c === '!' ? i + 1 : i);
      if (found?.address) {
        const node = link(found.address);
        if (c === '!') node.append(`${found.label || 'picture'} ↗`);
        else inline(node, found.label, kDeepest);
        return add(node, found.end);
      }
      if (found) {
        plain += text.slice(i, found.end);
        return found.end;
      }
    }
    if (c === '<') {
      const found = /^<(?:(br\s*\/?)|((?:https?:\/\/|mailto:)[^\s<>]{1,2000}))>/i
        .exec(text.slice(i, i + 2010));
      if (found?.[1]) return add(el('br'), i + found[0].length);
      if (found && safeAddress(found[2])) {
        return add(link(found[2], found[2]), i + found[0].length);
      }
    }
    if (c === 'h' && depth < kDeepest && !(i > 0 && kWord.test(text[i - 1]))) {
      const found = /^https?:\/\/[^\s<>"'`*|\\]{0,2000}/.exec(text.slice(i, i + 2010))?.[0]
        .replace(/[.,;:!?)\]]+$/, '');
      if (found && safeAddress(found)) return add(link(found, found), i + found.length);
    }
    return depth < kDeepest && '*_~'.includes(c) ? emphasis(i) : 0;
  };
  let i = 0;
  while (i < text.length) {
    kSpecial.lastIndex = i;
    const at = kSpecial.exec(text)?.index ?? text.length;
    plain += text.slice(i, at);
    if (at === text.length) break;
    const end = special(at);
    if (end > at) i = end;
    else {
      plain += text[at];
      i = at + 1;
    }
  }
  flush();
  return parent;
}

export function codeBlock(text, language = '') {
  const copy = button('Copy', () => copyText(text, copy), {class: 'quiet'});
  return el('figure', {class: 'code'},
    el('figcaption', {}, el('span', {}, language || 'text'), copy),
    el('pre', {tabindex: '0'}, el('code', {}, text)));
}

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^`\n]*)$/;
const kHeading = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const kRule = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const kQuote = /^ {0,3}> ?/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;

function cellsOf(line) {
  const inner = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '');
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, '|'));
}

// How the columns of a table are aligned, if `line` is the line below its head.
function columnsOf(line) {
  if (!line?.includes('-') || !/^[\s|:-]+$/.test(line) || !line.includes('|')) return null;
  const cells = cellsOf(line);
  if (!cells.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return cells.map((cell) => `${cell.startsWith(':') ? 'l' : ''}${cell.endsWith(':') ? 'r' : ''}`);
}

function startsBlock(lines, i) {
  const line = lines[i];
  return kFence.test(line) || kHeading.test(line) || kRule.test(line) || kQuote.test(line) ||
    kItem.test(line) && !/^ *\d{2,}/.test(line);
}

// The blocks of some lines: {kind, lines, ...}. `lines` are the source of the block.
export function blocksOf(lines, depth = 0) {
  const blocks = [];
  let i = 0;
  const take = (end, block) => {
    blocks.push({...block, lines: lines.slice(i, end)});
    i = end;
  };
  while (i < lines.length) {
    const line = lines[i];
    const fence = kFence.exec(line);
    const heading = kHeading.exec(line);
    if (line.trim() === '') {
      ++i;
    } else if (fence) {
      const indent = new RegExp(`^ {0,${/^ */.exec(line)[0].length}}`);
      let end = i + 1;
      while (end < lines.length && !isFenceEnd(lines[end], fence[1])) ++end;
      const code = lines.slice(i + 1, end).map((at) => at.replace(indent, ''));
      take(Math.min(end + 1, lines.length), {kind: 'code', language: fence[2].trim().split(' ')[0],
        text: code.join('\n')});
    } else if (heading) {
      take(i + 1, {kind: 'heading', level: heading[1].length, text: heading[2] ?? ''});
    } else if (kRule.test(line)) {
      take(i + 1, {kind: 'rule'});
    } else if (kQuote.test(line) && depth < kDeepest) {
      let end = i + 1;
      while (end < lines.length && kQuote.test(lines[end])) ++end;
      take(end, {kind: 'quote', inner: lines.slice(i, end).map((at) => at.replace(kQuote, ''))});
    } else if (kItem.test(line) && depth < kDeepest) {
      takeList();
    } else if (line.includes('|') && columnsOf(lines[i + 1])) {
      let end = i + 2;
      while (end < lines.length && lines[end].includes('|')) ++end;
      take(end, {kind: 'table'});
    } else {
      let end = i + 1;
      while (end < lines.length && lines[end].trim() !== '' && !startsBlock(lines, end)) ++end;
      take(end, {kind: 'paragraph', text: lines.slice(i, end).join('\n')});
    }
  }
  return blocks;

  function takeList() {
    const ordered = /\d/.test(kItem.exec(lines[i])[2]);
    const start = parseInt(lines[i].trim(), 10);
    const margin = kItem.exec(lines[i])[1].length;
    const items = [];
    let end = i;
    let loose = false;
    let content = 0;  // the column where the text of the item begins
    while (end < lines.length) {
      const at = lines[end];
      const item = kItem.exec(at);
      const indent = /^ */.exec(at)[0].length;
      if (at.trim() === '') {
        const next = lines[end + 1];
        const nextIndent = /^ */.exec(next ?? '')[0].length;
        if (next === undefined || next.trim() === '' ||
            !(nextIndent >= content || kItem.test(next) && nextIndent >= margin)) {
          break;
        }
        loose = true;
        items.at(-1).push('');
      } else if (item && indent < margin + 2 && /\d/.test(item[2]) === ordered &&
                 (items.length === 0 || indent < content)) {
        content = indent + item[2].length + Math.min(Math.max(item[3].length, 1), 4);
        items.push([at.slice(content)]);
      } else if (indent >= content || indent > margin) {
        items.at(-1).push(at.slice(Math.min(indent, content)));
      } else if (lines[end - 1].trim() !== '' && !startsBlock(lines, end)) {
        items.at(-1).push(at);
      } else {
        break;
      }
      ++end;
    }
    take(end, {kind: 'list', ordered, start, items, loose});
  }
}

function isFenceEnd(line, fence) {
  const end = line.trim();
  return end.length >= fence.length && end === fence[0].repeat(end.length) &&
    /^ {0,3}\S/.test(line);
}

function tableNode(lines) {
  const columns = columnsOf(lines[1]);
  const row = (line, tag) => {
    const cells = cellsOf(line);
    return el('tr', {}, ...columns.map((align, i) => inline(el(tag, {class: `align${align}`}),
      cells[i] ?? '')));
  };
  return el('div', {class: 'wide', tabindex: '0'}, el('table', {},
    el('thead', {}, row(lines[0], 'th')),
    el('tbody', {}, ...lines.slice(2).map((line) => row(line, 'td')))));
}

function itemNode(lines, loose, depth) {
  const node = el('li');
  const task = /^\[([ xX])\] /.exec(lines[0]);
  if (task) {
    node.append(el('input', {type: 'checkbox', disabled: true, checked: task[1] !== ' '}));
    lines = [lines[0].slice(4), ...lines.slice(1)];
  }
  for (const block of blocksOf(lines, depth + 1)) {
    if (block.kind === 'paragraph' && !loose) inline(node, block.text);
    else node.append(blockNode(block, depth + 1));
  }
  return node;
}

function blockNode(block, depth = 0) {
  switch (block.kind) {
    case 'code': return codeBlock(block.text, block.language);
    case 'heading': return inline(el(`h${Math.min(block.level + 2, 6)}`), block.text);
    case 'rule': return el('hr');
    case 'quote': return el('blockquote', {},
      ...blocksOf(block.inner, depth + 1).map((at) => blockNode(at, depth + 1)));
    case 'table': return tableNode(block.lines);
    case 'list': return el(block.ordered ? 'ol' : 'ul',
      {start: block.ordered && block.start !== 1 ? block.start : undefined},
      ...block.items.map((lines) => itemNode(lines, block.loose, depth)));
    default: return inline(el('p'), block.text);
  }
}

// Makes `parent` show `text`. Blocks whose source is as before keep their nodes, so an answer that
// grows costs its last block, and what is selected in the others stays selected.
export function renderMarkdown(parent, text) {
  const blocks = blocksOf(text.split('\n'));
  const before = [...parent.children];
  blocks.forEach((block, i) => {
    const source = `${block.kind}\n${block.lines.join('\n')}`;
    if (before[i]?.source === source) return;
    const node = blockNode(block);
    node.source = source;
    if (before[i]) before[i].replaceWith(node);
    else parent.append(node);
  });
  before.slice(blocks.length).forEach((node) => node.remove());
}
