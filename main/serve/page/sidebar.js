// The list of conversations: search, choose, rename, delete, import and export.

import {button, download, el, find, whenSure} from './dom.js';
import {exportText, importText} from './transfer.js';
import {findText, titleOf} from './tree.js';

const kShown = 200;  // entries that are built; a search reaches the others

function dayOf(time) {
  const days = Math.floor((new Date().setHours(24, 0, 0, 0) - time) / 86400000);
  if (days < 1) return 'Today';
  if (days < 2) return 'Yesterday';
  if (days < 7) return 'This week';
  return new Date(time).toLocaleDateString(undefined, {month: 'long', year: 'numeric'});
}

// Some words around a place that was found, as nodes with the found part marked.
function excerpt(text, start, length) {
  const from = Math.max(0, start - 24);
  return el('span', {class: 'excerpt'}, (from > 0 ? '…' : '') + text.slice(from, start),
    el('mark', {}, text.slice(start, start + length)), text.slice(start + length, start + 80));
}

export class Sidebar {
  // `app` has conversations (a Map), current, open(conversation, node), rename, remove, add(list)
  // and say(text).
  constructor(app) {
    this.app = app;
    this.list = find('list');
    this.search = find('search');
    this.search.addEventListener('input', () => this.show());
    this.search.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.search.value) {
        event.stopPropagation();
        this.search.value = '';
        this.show();
      }
      if (event.key === 'ArrowDown') this.list.querySelector('button')?.focus();
    });
    this.list.addEventListener('keydown', (event) => this.walk(event));
    find('new').addEventListener('click', () => app.start());
    find('export').addEventListener('click', () => this.exportAll());
    find('import').addEventListener('click', () => find('file').click());
    find('file').addEventListener('change', () => this.importFiles());
  }

  walk(event) {
    const by = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!by) return;
    const entries = [...this.list.querySelectorAll('button.open')];
    const next = entries.indexOf(document.activeElement) + by;
    (entries[next] ?? (by < 0 ? this.search : entries.at(-1))).focus();
    event.preventDefault();
  }

  show() {
    const words = this.search.value.trim().toLowerCase();
    const all = [...this.app.conversations.values()].sort((a, b) => b.changed - a.changed);
    const entries = [];
    let count = 0;
    let day = '';
    for (const conversation of all) {
      const found = words ? findText(conversation, words) : {};
      if (!found || ++count > kShown) continue;
      if (dayOf(conversation.changed) !== day) {
        day = dayOf(conversation.changed);
        entries.push(el('h3', {}, day));
      }
      entries.push(this.entry(conversation, found, words));
    }
    if (count > kShown) entries.push(el('p', {class: 'help'}, `${count - kShown} more: search`));
    if (count === 0) {
      entries.push(el('p', {class: 'help'}, words ? 'No conversation has these words.' :
        'Conversations are kept in this browser only.'));
    }
    this.list.replaceChildren(...entries);
  }

  entry(conversation, found, words) {
    const shown = conversation === this.app.current;
    const title = el('span', {class: 'title'}, titleOf(conversation));
    const open = el('button', {type: 'button', class: 'open', title: titleOf(conversation),
      'aria-current': shown ? 'page' : undefined,
      onclick: () => this.app.open(conversation, found.node),
      ondblclick: () => this.rename(conversation)}, title);
    if (found.node) open.append(excerpt(found.text, found.start, words.length));
    const row = el('div', {class: 'entry'}, open);
    if (shown) {
      row.append(el('div', {class: 'row'},
        button('Rename', () => this.rename(conversation), {class: 'quiet'}),
        button('Export', () => this.exportSome([conversation]), {class: 'quiet'}),
        button('Delete', whenSure(() => this.app.remove(conversation)), {class: 'quiet'})));
    }
    return row;
  }

  rename(conversation) {
    const row = this.list.querySelector('[aria-current]')?.parentNode;
    if (!row || conversation !== this.app.current) return;
    const field = el('input', {value: titleOf(conversation), 'aria-label': 'Title',
      onkeydown: (event) => {
        if (event.key === 'Escape') event.stopPropagation();
        if (event.key === 'Escape') this.show();
        if (event.key === 'Enter') {
          this.app.rename(conversation, field.value.trim());
          this.show();
        }
      }});
    row.replaceChildren(field);
    field.select();
  }

  exportAll() {
    this.exportSome([...this.app.conversations.values()]);
  }

  exportSome(conversations) {
    const day = new Date().toISOString().slice(0, 10);
    download(`chaski-${day}.json`, exportText(conversations));
  }

  async importFiles() {
    const input = find('file');
    for (const file of input.files) {
      try {
        const list = importText(await file.text());
        await this.app.add(list);
        this.app.say(`Imported ${list.length} ${list.length === 1 ? 'conversation' :
          'conversations'} from ${file.name}`);
      } catch (fault) {
        this.app.say(`${file.name} was not imported: ${fault.message}`, 'error');
      }
    }
    input.value = '';
  }
}
