// Conversations as a JSON file and back. A file comes from anywhere, so each field is checked and
// copied by name; what the page does not know is left out.

import {newId} from './dom.js';
import {newConversation} from './tree.js';
import {cleanSettings} from './settings.js';

const kFormat = 'chaski conversations';

export function exportText(conversations) {
  return JSON.stringify({format: kFormat, version: 1, conversations}, null, 1);
}

function textOf(value, field) {
  if (value === undefined || value === null) return '';
  if (typeof value !== 'string') throw new Error(`${field} is ${typeof value}, expected a text`);
  return value;
}

function numberOf(value, otherwise) {
  return Number.isFinite(value) ? value : otherwise;
}

// What was asked of the model for an answer: model, seed, system prompt and settings.
export function cleanMade(made) {
  if (typeof made !== 'object' || made === null) return undefined;
  return {model: textOf(made.model, 'made.model'), seed: numberOf(made.seed, 0) >>> 0,
    system: textOf(made.system, 'made.system'), settings: cleanSettings(made.settings)};
}

function cleanStats(stats) {
  if (typeof stats !== 'object' || stats === null) return undefined;
  const kept = {};
  for (const [name, value] of Object.entries(stats)) {
    if (Number.isFinite(value) || name === 'finish' && typeof value === 'string') {
      kept[name] = value;
    }
  }
  return kept;
}

function cleanNode(from, where) {
  if (typeof from !== 'object' || from === null) throw new Error(`${where} is not an object`);
  if (!['user', 'assistant'].includes(from.role)) {
    throw new Error(`${where}.role is ${JSON.stringify(from.role)}, expected user or assistant`);
  }
  const node = {id: newId(), parent: '', role: from.role, text: textOf(from.text, `${where}.text`),
    children: [], chosen: null, time: numberOf(from.time, Date.now())};
  if (from.role === 'assistant') {
    node.thoughts = textOf(from.thoughts, `${where}.thoughts`);
    node.prefix = textOf(from.prefix, `${where}.prefix`);
    node.begunThoughts = textOf(from.begunThoughts, `${where}.begunThoughts`);
    node.error = textOf(from.error, `${where}.error`);
    node.made = cleanMade(from.made);
    node.stats = cleanStats(from.stats);
    node.stopped = from.stopped === true;
  }
  return node;
}

// A conversation with new ids. Messages that the root does not reach, or reaches twice, are left
// out, so a file cannot make a cycle.
function cleanConversation(from, where) {
  if (typeof from !== 'object' || from === null || typeof from.nodes !== 'object' ||
      from.nodes === null || !Object.hasOwn(from.nodes, 'root')) {
    throw new Error(`${where} has no nodes.root`);
  }
  const system = textOf(from.system, `${where}.system`);
  const conversation = newConversation(cleanSettings(from.settings), system);
  conversation.title = textOf(from.title, `${where}.title`);
  conversation.created = numberOf(from.created, conversation.created);
  conversation.changed = numberOf(from.changed, conversation.changed);
  const seen = new Set(['root']);
  const todo = [[from.nodes.root, conversation.nodes.root]];
  while (todo.length > 0) {
    const [old, parent] = todo.pop();
    for (const id of Array.isArray(old.children) ? old.children : []) {
      if (seen.has(id) || !Object.hasOwn(from.nodes, id)) continue;
      seen.add(id);
      const node = cleanNode(from.nodes[id], `${where}.nodes.${id}`);
      node.parent = parent.id;
      conversation.nodes[node.id] = node;
      parent.children.push(node.id);
      if (old.chosen === id || !parent.chosen) parent.chosen = node.id;
      todo.push([from.nodes[id], node]);
    }
  }
  return conversation;
}

// A conversation that another browser has left on the server, checked like one of a file.
export function conversationFrom(value) {
  return cleanConversation(value, 'conversation');
}

// Throws an Error that names the field if the text is no such file.
export function importText(text) {
  const file = JSON.parse(text);
  if (file?.format !== kFormat) {
    throw new Error(`format is ${JSON.stringify(file?.format)}, expected "${kFormat}"`);
  }
  if (!Array.isArray(file.conversations)) throw new Error('conversations is not a list');
  return file.conversations.map((from, i) => cleanConversation(from, `conversations[${i}]`));
}
