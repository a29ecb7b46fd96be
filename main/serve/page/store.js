// Conversations in this browser: IndexedDB, one record a conversation. The probabilities of an
// answer's tokens are a record of their own, because they are a hundred times its text. Where
// IndexedDB is closed (some private windows), the page works and says that nothing is kept.

const kName = 'chaski';
let database = null;

function promised(request) {
  return new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
}

// Returns false if this browser keeps nothing.
export async function openStore() {
  try {
    const request = indexedDB.open(kName, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore('conversations', {keyPath: 'id'});
      request.result.createObjectStore('tokens');
    };
    database = await promised(request);
    // A newer page in another tab may change the stores.
    database.onversionchange = () => database.close();
    return true;
  } catch {
    return false;
  }
}

function stored(name, mode, work) {
  if (!database) return Promise.resolve(undefined);
  return promised(work(database.transaction(name, mode).objectStore(name)));
}

export async function loadConversations() {
  return await stored('conversations', 'readonly', (store) => store.getAll()) ?? [];
}

export function loadConversation(id) {
  return stored('conversations', 'readonly', (store) => store.get(id));
}

export function saveConversation(conversation) {
  return stored('conversations', 'readwrite', (store) => store.put(conversation));
}

export function deleteConversation(id) {
  return stored('conversations', 'readwrite', (store) => store.delete(id));
}

export function saveTokens(node, tokens) {
  return stored('tokens', 'readwrite', (store) => store.put(tokens, node.id));
}

export function loadTokens(node) {
  return stored('tokens', 'readonly', (store) => store.get(node.id));
}

export async function deleteTokens(ids) {
  for (const id of ids) await stored('tokens', 'readwrite', (store) => store.delete(id));
}

// Small values of this browser: the theme, what is typed, the last settings.
export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`chaski.${name}`);
    else localStorage.setItem(`chaski.${name}`, JSON.stringify(value));
  } catch {
    // Closed or full: the page goes on without it.
  }
}

export function recall(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`chaski.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

// Other tabs of this page hear which conversation was changed.
const channel = 'BroadcastChannel' in globalThis ? new BroadcastChannel('chaski') : null;

export function tellOthers(id) {
  channel?.postMessage(id);
}

export function hearOthers(work) {
  if (channel) channel.onmessage = (event) => work(event.data);
}
