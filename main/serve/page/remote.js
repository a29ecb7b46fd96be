// Conversations on the server (chaski serve --store), if it has them and the user wants it. Each is
// kept in this browser too; the one that was changed last counts.

import {ask} from './api.js';
import {recall, remember, saveConversation} from './store.js';
import {conversationFrom} from './transfer.js';

const kPath = 'page/api/conversations';
let offered = false;
const sending = new Map();  // by id: settles when what was being sent has come to its end

// Whether the server keeps conversations. Asks it.
export async function askRemote() {
  try {
    await ask(kPath);
    offered = true;
  } catch {
    offered = false;
  }
  return offered;
}

export function remoteOffered() {
  return offered;
}

export function remoteWanted() {
  return offered && recall('remote', false);
}

export function wantRemote(wanted) {
  remember('remote', wanted || null);
}

function pathOf(id) {
  return `${kPath}/${encodeURIComponent(id)}`;
}

async function send(conversation, isKept) {
  const {changed} = conversation;
  if (!remoteWanted() || !isKept() || changed <= (conversation.sent ?? 0)) return;
  await ask(pathOf(conversation.id), {method: 'POST', body: JSON.stringify(conversation)});
  conversation.sent = changed;
  if (isKept()) await saveConversation(conversation);
}

// Sends a conversation that was changed since it was sent. `isKept()` is false when it has been
// deleted or replaced, before or while it is sent.
export function saveRemote(conversation, isKept) {
  const {id} = conversation;
  const before = sending.get(id) ?? Promise.resolve();
  const sent = before.then(() => send(conversation, isKept));
  const end = sent.catch(() => {}).then(() => {
    if (sending.get(id) === end) sending.delete(id);
  });
  sending.set(id, end);
  return sent;
}

// Waits for a conversation that is being sent, which would be there again.
export async function deleteRemote(id) {
  if (!remoteWanted()) return;
  await sending.get(id);
  try {
    await ask(pathOf(id), {method: 'DELETE'});
  } catch (fault) {
    if (fault.status !== 404) throw fault;
  }
}

// Sends the conversations that were changed since they were sent. One that the server lacks was
// deleted elsewhere, and stays here. Returns those that the server has in a newer state. What comes
// from there is checked like a file.
export async function exchange(conversations) {
  if (!remoteWanted()) return [];
  const {conversations: list} = await (await ask(kPath)).json();
  const there = new Map(list.map(({id, changed}) => [id, changed]));
  for (const conversation of conversations.values()) {
    if (conversation.changed <= (there.get(conversation.id) ?? 0)) continue;
    await saveRemote(conversation, () => conversations.get(conversation.id) === conversation);
  }
  const newer = [];
  for (const [id, changed] of there) {
    if (changed <= (conversations.get(id)?.changed ?? 0)) continue;
    const conversation = conversationFrom(await (await ask(pathOf(id))).json());
    conversation.id = id;
    conversation.sent = changed;
    newer.push(conversation);
  }
  return newer;
}
