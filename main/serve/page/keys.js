// The keys of the page. Letters act while no field has the focus; Escape leaves a field.

import {el, find} from './dom.js';

// [keys, what they do, name of the act]
export const kKeys = [
  ['Enter', 'Ask; Shift+Enter begins a new line'],
  ['Escape', 'Stop the answer; close a panel; leave a field'],
  ['i', 'Write a question', 'write'],
  ['n', 'New conversation', 'start'],
  ['/', 'Search the conversations', 'search'],
  ['j', 'Next message', 'next'],
  ['k', 'Previous message', 'previous'],
  ['[', 'Previous branch of the message', 'left'],
  [']', 'Next branch of the message', 'right'],
  ['e', 'Edit the question', 'edit'],
  ['r', 'Regenerate the answer', 'regenerate'],
  ['c', 'Copy the message', 'copy'],
  ['t', 'Tokens of the answer; arrow keys walk through them', 'tokens'],
  ['p', 'Replay of the answer', 'replay'],
  ['s', 'Settings', 'settings'],
  ['b', 'Show or hide the list of conversations', 'sidebar'],
  ['d', 'Light, dark, or as the system', 'theme'],
  ['?', 'This list', 'help'],
];

function isField(node) {
  return node?.matches?.('input, textarea, select, [contenteditable]');
}

// `acts` has a function for each name above, and escape().
export function listenToKeys(acts) {
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      if (find('help').open) return;
      acts.escape(event);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return;
    if (find('help').open) return;
    const row = kKeys.find(([key, , act]) => act && key === event.key);
    if (!row) return;
    event.preventDefault();
    acts[row[2]]();
  });
}

export function showHelp() {
  find('keys').replaceChildren(...kKeys.flatMap(([key, text]) =>
    [el('dt', {}, el('kbd', {}, key)), el('dd', {}, text)]));
  find('help').showModal();
}
