// A conversation is a tree of messages. An edited question and a regenerated answer are siblings of
// the first ones, so nothing is overwritten. Each message remembers which of its children is shown.
//
//   conversation  id, title, created, changed, system, settings, nodes {id: node}; root: 'root'
//   node          id, parent, role, text, children [id], chosen (an id or null), time; answers also
//                 thoughts, made (what was asked), stats, error, and what it was begun with:
//                 prefix (text) and begunThoughts

import {newId} from './dom.js';

export function newConversation(settings = {}, system = '') {
  const now = Date.now();
  const root = {id: 'root', parent: null, role: 'root', text: '', children: [], chosen: null};
  return {id: newId(), title: '', created: now, changed: now, system, settings: {...settings},
    nodes: {root}};
}

export function addNode(conversation, parent, fields) {
  const node = {id: newId(), parent: parent.id, children: [], chosen: null, time: Date.now(),
    text: '', ...fields};
  conversation.nodes[node.id] = node;
  parent.children.push(node.id);
  parent.chosen = node.id;
  return node;
}

export function parentOf(conversation, node) {
  return conversation.nodes[node.parent];
}

// The messages that are shown, first to last, without the root.
export function shownPath(conversation) {
  const path = [];
  let node = conversation.nodes.root;
  while (node.chosen) {
    node = conversation.nodes[node.chosen];
    path.push(node);
  }
  return path;
}

// The messages from the first one to `node`.
export function pathTo(conversation, node) {
  const path = [];
  for (let at = node; at.role !== 'root'; at = parentOf(conversation, at)) path.push(at);
  return path.reverse();
}

export function siblingsOf(conversation, node) {
  return parentOf(conversation, node).children.map((id) => conversation.nodes[id]);
}

// Shows the sibling `step` places further; below it, what was last shown there.
export function chooseSibling(conversation, node, step) {
  const siblings = siblingsOf(conversation, node);
  const next = siblings[siblings.indexOf(node) + step];
  if (next) parentOf(conversation, node).chosen = next.id;
  return next;
}

// Shows a message wherever it is in the tree.
export function showNode(conversation, node) {
  for (let at = node; at.role !== 'root'; at = parentOf(conversation, at)) {
    parentOf(conversation, at).chosen = at.id;
  }
}

// Removes a message and all that follows it. Returns the ids that are gone.
export function removeNode(conversation, node) {
  const parent = parentOf(conversation, node);
  const place = parent.children.indexOf(node.id);
  parent.children.splice(place, 1);
  if (parent.chosen === node.id) {
    parent.chosen = parent.children[Math.min(place, parent.children.length - 1)] ?? null;
  }
  const gone = [node.id];
  for (let i = 0; i < gone.length; ++i) gone.push(...conversation.nodes[gone[i]].children);
  for (const id of gone) delete conversation.nodes[id];
  return gone;
}

// The first line of the first question, unless the conversation was given a title.
export function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = conversation.nodes[conversation.nodes.root.children[0]];
  const line = first?.text.trim().split('\n')[0] ?? '';
  return line.length > 80 ? `${line.slice(0, 79)}…` : line || 'New conversation';
}

// All that an answer says after its thoughts, the text that it was begun with included.
export function textOf(node) {
  return (node.prefix ?? '') + node.text;
}

export function thoughtsOf(node) {
  return (node.begunThoughts ?? '') + (node.thoughts ?? '');
}

// Where `words` (lower case) first occur in a conversation: {node, text, start}, {} if only in its
// title, else null.
export function findText(conversation, words) {
  for (const node of Object.values(conversation.nodes)) {
    const text = textOf(node);
    const start = text.toLowerCase().indexOf(words);
    if (start >= 0) return {node, text, start};
  }
  return titleOf(conversation).toLowerCase().includes(words) ? {} : null;
}

// The messages of a request for the answer `node`, in OpenAI's form. If the answer was begun with a
// text, the last message is an assistant's with that text, which the server continues. An answer
// that failed before its first token is left out, and the questions around it become one.
export function messagesFor(conversation, node) {
  const messages = [];
  const system = node.made.system;
  if (system) messages.push({role: 'system', content: system});
  for (const at of pathTo(conversation, parentOf(conversation, node))) {
    const content = textOf(at);
    if (at.role === 'assistant' && content === '') continue;
    if (messages.at(-1)?.role === at.role) messages.at(-1).content += `\n\n${content}`;
    else messages.push({role: at.role, content});
  }
  if (node.prefix) {
    messages.push({role: 'assistant', content: node.prefix,
      reasoning_content: node.begunThoughts || undefined});
  }
  return messages;
}
