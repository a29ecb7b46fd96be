// The chat page: connects the parts. What the user types is kept in this browser until it is sent,
// and a question stays in its conversation if the server refuses it.

import {getHealth, getModels, getProps} from './api.js';
import {fillAnswer, keptTokens, newSeed, runOf, stopAnswer} from './answers.js';
import {announce, el, find, perFrame} from './dom.js';
import {listenToKeys, showHelp} from './keys.js';
import {MessageList} from './messages.js';
import * as panel from './panel.js';
import {askRemote, deleteRemote, exchange, remoteWanted, saveRemote} from './remote.js';
import {checksum, decodeLink} from './replay.js';
import {cleanSettings, firstFault} from './settings.js';
import {Sidebar} from './sidebar.js';
import * as store from './store.js';
import * as tree from './tree.js';

const app = {
  conversations: new Map(),
  current: null,
  models: [],
  defaults: {},
  context: 0,
};

const question = find('question');

// ---- What is shown ----

app.say = (text, kind = '') => {
  const line = find('status');
  line.textContent = text;
  line.className = kind;
  line.hidden = !text;
};

function fitQuestion() {
  question.style.setProperty('height', 'auto');
  question.style.setProperty('height', `${question.scrollHeight + 2}px`);
}

function lastShown() {
  return tree.shownPath(app.current).at(-1);
}

function showComposer() {
  const last = lastShown();
  const run = last && runOf(last);
  const send = find('send');
  send.textContent = run ? 'Stop' : 'Ask';
  send.classList.toggle('stop', Boolean(run));
  const stats = tree.shownPath(app.current).findLast((node) => node.stats?.prompt)?.stats;
  let used = stats ? stats.prompt + stats.count : 0;
  if (run?.prompt) used = run.prompt + run.count;
  const context = find('context');
  context.hidden = !app.context;
  context.max = app.context || 1;
  context.value = used;
  find('context-text').textContent = app.context ?
    `${used.toLocaleString()} of ${app.context.toLocaleString()} tokens` : '';
  const seconds = run?.first ? (performance.now() - run.first) / 1000 : 0;
  const rate = run ? (seconds > 0.2 ? (run.count - 1) / seconds : 0) : last?.stats?.rate ?? 0;
  find('rate').textContent = rate > 0 ? `${rate.toFixed(rate < 10 ? 1 : 0)} tok/s` : '';
}

function emptyPage() {
  const fact = (title, text) => el('li', {}, el('strong', {}, title), ` ${text}`);
  return el('div', {class: 'empty'}, el('h2', {}, 'Ask something'),
    el('ul', {},
      fact('It stays here.', 'The model runs on the machine that serves this page; conversations ' +
        'are kept in this browser.'),
      fact('Replay.', 'The same seed gives the same bytes. A link reproduces an answer elsewhere.'),
      fact('Tokens.', 'See how probable each token was, and branch to what else could have come.'),
      fact('Nothing is overwritten.', 'An edited question and another answer become branches.')));
}

function showAll() {
  find('title').textContent = tree.titleOf(app.current);
  document.title = `${tree.titleOf(app.current)} – chaski`;
  app.list.show(app.current, emptyPage());
  app.sidebar.show();
  showComposer();
}

// ---- Keeping ----

const unsaved = new Set();

async function saveNow() {
  for (const conversation of [...unsaved]) {
    if (!unsaved.delete(conversation)) continue;  // deleted while others were saved
    try {
      await store.saveConversation(conversation);
      store.tellOthers(conversation.id);
    } catch (fault) {
      app.say(`This browser did not keep the conversation: ${fault.message}. Export it.`, 'error');
    }
    try {
      await saveRemote(conversation,
        () => app.conversations.get(conversation.id) === conversation);
    } catch (fault) {
      app.say(`The server did not keep the conversation: ${fault.message}`, 'error');
    }
  }
}

let saving = 0;
function keep(conversation) {
  if (Object.keys(conversation.nodes).length < 2) return;
  app.conversations.set(conversation.id, conversation);
  unsaved.add(conversation);
  saving ||= setTimeout(() => {
    saving = 0;
    saveNow();
  }, 1000);
}

function touched(conversation) {
  conversation.changed = Date.now();
  keep(conversation);
}

app.settingsChanged = () => {
  store.remember('settings', app.current.settings);
  store.remember('system', app.current.system);
  keep(app.current);
};

// ---- Conversations ----

app.open = (conversation, node) => {
  if (node) tree.showNode(conversation, node);
  app.current = conversation;
  store.remember('shown', conversation.id);
  question.value = store.recall(`draft.${conversation.id}`, '');
  if (panel.panelShows()) panel.closePanel();
  document.body.classList.remove('list-open');
  showAll();
  fitQuestion();
  if (node) app.list.reveal(node);
};

app.start = () => {
  const draft = store.recall('draft.new', '');
  const settings = cleanSettings(store.recall('settings', {}));
  app.open(tree.newConversation(settings, store.recall('system', '')));
  question.value = draft;
  fitQuestion();
  // On a phone the focus would open its keyboard.
  if (!matchMedia('(pointer: coarse)').matches) question.focus();
};

app.rename = (conversation, title) => {
  conversation.title = title;
  if (remoteWanted()) touched(conversation);
  else keep(conversation);
  showAll();
};

app.remove = async (conversation) => {
  Object.values(conversation.nodes).forEach(stopAnswer);
  app.conversations.delete(conversation.id);
  unsaved.delete(conversation);
  await store.deleteConversation(conversation.id);
  await store.deleteTokens(Object.keys(conversation.nodes));
  store.tellOthers(conversation.id);
  deleteRemote(conversation.id).catch((fault) => {
    app.say(`The server did not delete the conversation: ${fault.message}`, 'error');
  });
  if (conversation === app.current) app.start();
  else app.sidebar.show();
};

// Brings the conversations here and on the server together.
app.exchange = async () => {
  try {
    const before = new Set(app.conversations.keys());
    for (const conversation of await exchange(app.conversations)) {
      const {id} = conversation;
      const own = app.conversations.get(id);
      // It was deleted or changed here while the others came.
      if (before.has(id) && !own || own?.changed >= conversation.sent) continue;
      if (Object.values(own?.nodes ?? {}).some(runOf)) continue;
      app.conversations.set(id, conversation);
      await store.saveConversation(conversation);
      if (id === app.current.id) app.open(conversation);
    }
    app.sidebar.show();
  } catch (fault) {
    app.say(`The conversations on the server cannot be read: ${fault.message}`, 'error');
  }
};

app.add = async (list) => {
  list.forEach(touched);
  await saveNow();
  if (list.length > 0) app.open(list[0]);
};

function draftName() {
  return `draft.${app.conversations.has(app.current.id) ? app.current.id : 'new'}`;
}

// ---- Asking ----

function refreshOf(conversation, node) {
  return perFrame(() => {
    keep(conversation);
    if (conversation !== app.current) return;
    app.list.update(node);
    app.list.follow();
    showComposer();
  });
}

async function fill(conversation, node) {
  await fillAnswer(conversation, node, refreshOf(conversation, node));
  touched(conversation);
  saveNow();
  app.sidebar.show();
  if (conversation === app.current) {
    showComposer();
    announce(node.error ? node.error : 'The answer is complete');
  }
  if (node.errorStatus === 401) {
    app.say('This server wants an API key: enter it in the settings.', 'error');
  }
  return node;
}

// A new answer below `parent`; `begun` are the fields of one that continues a text.
function answer(parent, begun = {}) {
  const {current} = app;
  const {seed} = current.settings;
  const made = {model: find('model').value, system: current.system, settings: {...current.settings},
    seed: Number.isInteger(seed) ? (seed + parent.children.length) >>> 0 : newSeed()};
  const node = tree.addNode(current, parent, {role: 'assistant', thoughts: '', made, ...begun});
  touched(current);
  saveNow();
  app.list.following = true;
  const done = fill(current, node);
  showAll();
  return done;
}

// An answer that begins with `prefix` and the thoughts of `node`. Model, seed and settings are
// those of `node`, so it differs by this beginning only.
function answerFrom(node, prefix) {
  const begun = {prefix, begunThoughts: tree.thoughtsOf(node)};
  if (node.made) begun.made = {...node.made, settings: {...node.made.settings}};
  answer(tree.parentOf(app.current, node), begun);
}

// False if the settings cannot be sent; the status line says why.
function ready() {
  const fault = firstFault(app.current.settings);
  if (fault) {
    app.say(fault, 'error');
    panel.openSettings(app);
  } else {
    app.say('');
  }
  return !fault;
}

function send() {
  const last = lastShown();
  if (last && runOf(last)) {
    announce('The answer is still being written');
    return;
  }
  const text = question.value.trim();
  if (!text || !ready()) return;
  store.remember(draftName(), null);
  question.value = '';
  fitQuestion();
  answer(tree.addNode(app.current, last ?? app.current.nodes.root, {role: 'user', text}));
}

const acts = {
  edit(node, text) {
    if (!ready()) return false;
    const parent = tree.parentOf(app.current, node);
    answer(tree.addNode(app.current, parent, {role: 'user', text}));
    return true;
  },
  regenerate(node) {
    if (ready()) answer(tree.parentOf(app.current, node));
  },
  // After an error: the same answer once more, if nothing of it came.
  again(node) {
    if (!ready()) return;
    if (tree.textOf(node) !== (node.prefix ?? '') || node.thoughts) {
      acts.regenerate(node);
      return;
    }
    delete node.error;
    delete node.stats;
    node.made.model = find('model').value;
    node.made.settings = {...app.current.settings};
    fill(app.current, node);
    showAll();
  },
  resume(node) {
    answerFrom(node, tree.textOf(node));
  },
  remove(node) {
    const path = [node];
    for (let i = 0; i < path.length; ++i) {
      stopAnswer(path[i]);
      path.push(...path[i].children.map((id) => app.current.nodes[id]));
    }
    store.deleteTokens(tree.removeNode(app.current, node));
    touched(app.current);
    showAll();
    question.focus();
  },
  choose(node, step) {
    const next = tree.chooseSibling(app.current, node, step);
    if (!next) return;
    touched(app.current);
    showAll();
    app.list.reveal(next);
  },
  replay(node) {
    panel.openReplay(app, app.current, node);
  },
  async needTokens(node) {
    if ((await keptTokens(node)).length > 0) return true;
    return panel.fetchTokens(app, app.current, node);
  },
  showToken(node, tokens, places, index) {
    panel.openToken(node, tokens, places, index, (prefix) => {
      panel.closePanel();
      answerFrom(node, prefix);
    });
  },
};

// ---- Links ----

// A link is only shown; its request is sent when the user presses the button.
async function openLink() {
  const found = /^#replay=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, '', location.pathname);
  let link;
  try {
    link = await decodeLink(found[1]);
  } catch (fault) {
    app.say(`This replay link cannot be read: ${fault.message}`, 'error');
    return;
  }
  const conversation = tree.newConversation(link.made.settings, link.made.system);
  let at = conversation.nodes.root;
  for (const {role, content} of link.messages) {
    at = tree.addNode(conversation, at, {role, text: content});
  }
  app.open(conversation);
  const line = find('status');
  const start = el('button', {type: 'button', class: 'primary', id: 'replay-link',
    onclick: () => runLink(conversation, at, link)}, 'Replay it');
  line.replaceChildren(`This link reproduces an answer of ${link.bytes} bytes with seed ` +
    `${link.made.seed}. `, start);
  line.className = '';
  line.hidden = false;
}

async function runLink(conversation, parent, link) {
  app.say('');
  const known = app.models.some((model) => model.id === link.made.model);
  const made = {...link.made, model: known ? link.made.model : find('model').value};
  const node = tree.addNode(conversation, parent, {role: 'assistant', thoughts: '',
    prefix: link.prefix, begunThoughts: link.begunThoughts, made});
  const done = fill(conversation, node);
  showAll();
  await done;
  if (node.error) return;
  const same = checksum(node.thoughts, node.text) === link.sum;
  if (same) {
    app.list.note(node, `The same bytes: checksum ${link.sum}.`, 'good');
  } else if (link.stopped) {
    app.list.note(node, 'The first answer was stopped early, so its checksum cannot be compared.');
  } else {
    app.list.note(node, `Other bytes than the link's: checksum ${checksum(node.thoughts,
      node.text)}, expected ${link.sum}. ${known ? 'The model file or the defaults of the server ' +
      'differ.' : `The link names the model ${link.made.model}, which this server does not have.`}`,
    'bad');
  }
}

// ---- The server ----

app.connect = async () => {
  for (;;) {
    const health = await getHealth();
    if (health.ready) break;
    const share = Number.isFinite(health.progress) ? `: ${Math.round(100 * health.progress)}%` : '';
    app.say(health.absent ? 'The server does not answer. Asking again every 2 seconds.' :
      `The model is being loaded${share}`, health.absent ? 'error' : 'waiting');
    await new Promise((done) => setTimeout(done, health.absent ? 2000 : 500));
  }
  if (find('status').className !== '') app.say('');
  try {
    app.models = await getModels();
    const select = find('model');
    const wanted = select.value || store.recall('model', '');
    select.replaceChildren(...app.models.map(({id}) => el('option', {value: id}, id)));
    if (app.models.some(({id}) => id === wanted)) select.value = wanted;
    await showModel();
  } catch (fault) {
    app.say(fault.message, 'error');
  }
  if (await askRemote()) await app.exchange();
};

async function showModel() {
  const select = find('model');
  const asked = select.value;
  select.title = `Model: ${asked}`;
  let props = {context: 0, settings: {}};
  try {
    props = await getProps(asked);
  } catch {
    // A server without /props: its defaults are unknown.
  }
  // Another model may have been chosen while the server answered.
  if (asked !== select.value) return;
  const {meta = {}} = app.models.find(({id}) => id === asked) ?? {};
  app.context = props.context || meta.n_ctx || meta.n_ctx_train || 0;
  app.defaults = props.settings;
  showComposer();
}

// ---- Keys and controls ----

const kThemes = ['system', 'light', 'dark'];

function showTheme() {
  const theme = store.recall('theme', 'system');
  document.documentElement.dataset.theme = theme;
  find('theme').textContent = {system: 'Auto', light: 'Light', dark: 'Dark'}[theme];
}

function nextTheme() {
  const now = kThemes.indexOf(store.recall('theme', 'system'));
  store.remember('theme', kThemes[(now + 1) % kThemes.length]);
  showTheme();
  announce(`Theme: ${find('theme').textContent}`);
}

function toggleList() {
  const wide = matchMedia('(min-width: 900px)').matches;
  const shown = document.body.classList.toggle(wide ? 'list-closed' : 'list-open');
  if (shown !== wide) find('search').focus();
}

// The message that a key acts on: the focused one, else the last one of that role.
function chosenNode(role) {
  const focused = document.activeElement?.closest('.message')?.node;
  if (focused && (!role || focused.role === role)) return focused;
  return tree.shownPath(app.current).findLast((node) => !role || node.role === role);
}

function walk(by) {
  const path = tree.shownPath(app.current);
  const focused = document.activeElement?.closest('.message')?.node;
  const at = focused ? path.indexOf(focused) + by : by > 0 ? 0 : path.length - 1;
  if (path[at]) app.list.reveal(path[at]);
  else if (at >= path.length) question.focus();
}

function press(name, role) {
  const node = chosenNode(role);
  const article = node && app.list.viewOf(node).article;
  article?.querySelector(`[data-act="${name}"]`)?.click();
}

function escape() {
  const last = lastShown();
  if (document.body.classList.contains('list-open')) document.body.classList.remove('list-open');
  else if (last && runOf(last)) stopAnswer(last);
  else if (panel.panelShows()) panel.closePanel();
  else document.activeElement?.blur();
}

function listen() {
  find('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    const last = lastShown();
    if (last && runOf(last)) stopAnswer(last);
    else send();
  });
  question.addEventListener('input', () => {
    store.remember(draftName(), question.value || null);
    fitQuestion();
  });
  question.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  find('model').addEventListener('change', async () => {
    store.remember('model', find('model').value);
    await showModel();
    // It names the defaults of the model.
    if (panel.panelShows('settings')) panel.openSettings(app);
  });
  const settings = () => panel.panelShows('settings') ? panel.closePanel() :
    panel.openSettings(app);
  find('settings').addEventListener('click', settings);
  find('theme').addEventListener('click', nextTheme);
  find('keys-button').addEventListener('click', showHelp);
  find('menu').addEventListener('click', toggleList);
  find('shade').addEventListener('click', () => document.body.classList.remove('list-open'));
  find('panel-close').addEventListener('click', panel.closePanel);
  listenToKeys({escape, settings, theme: nextTheme, help: showHelp, start: app.start,
    sidebar: toggleList, write: () => question.focus(), next: () => walk(1),
    previous: () => walk(-1),
    search: () => {
      if (!find('search').checkVisibility()) toggleList();
      find('search').focus();
    },
    left: () => acts.choose(chosenNode() ?? app.current.nodes.root, -1),
    right: () => acts.choose(chosenNode() ?? app.current.nodes.root, 1),
    edit: () => press('edit', 'user'), regenerate: () => press('regenerate', 'assistant'),
    copy: () => press('copy'), tokens: () => press('tokens', 'assistant'),
    replay: () => press('replay', 'assistant')});
  addEventListener('hashchange', openLink);
  addEventListener('pagehide', saveNow);
  store.hearOthers(async (id) => {
    const changed = await store.loadConversation(id);
    const busy = Object.values(app.conversations.get(id)?.nodes ?? {}).some(runOf);
    if (busy) return;
    if (changed) app.conversations.set(id, changed);
    else app.conversations.delete(id);
    if (id === app.current.id && changed) app.open(changed);
    else app.sidebar.show();
  });
  setInterval(() => {
    if (lastShown() && runOf(lastShown())) showComposer();
  }, 500);
}

async function begin() {
  showTheme();
  app.list = new MessageList(find('messages'), acts);
  app.sidebar = new Sidebar(app);
  listen();
  const kept = await store.openStore();
  for (const conversation of await store.loadConversations()) {
    // An answer without its figures was being written when the page was closed.
    for (const node of Object.values(conversation.nodes)) {
      if (node.role === 'assistant' && !node.stats && !node.error) node.stopped = true;
    }
    app.conversations.set(conversation.id, conversation);
  }
  const shown = app.conversations.get(store.recall('shown', ''));
  if (shown) app.open(shown);
  else app.start();
  if (!kept) app.say('This browser keeps nothing: conversations end with this tab.');
  await app.connect();
  await openLink();
}

begin();
