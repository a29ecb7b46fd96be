// The panel at the side (at the bottom of a phone): settings, one token, or a replay.

import {announce, button, copyText, el, find} from './dom.js';
import {askAgain, keepTokens, requestFor} from './answers.js';
import {byteLength, checksum, compareAnswers, encodeLink} from './replay.js';
import {namedSettings, settingsForm} from './settings.js';
import {remoteOffered, remoteWanted, wantRemote} from './remote.js';
import {recall, remember} from './store.js';
import {tokenPanel} from './tokens.js';
import {messagesFor} from './tree.js';

let opener = null;

export function panelShows(kind) {
  return !find('panel').hidden && (!kind || find('panel').dataset.kind === kind);
}

function openPanel(kind, title, ...content) {
  const panel = find('panel');
  if (panel.hidden) opener = document.activeElement;
  panel.hidden = false;
  panel.dataset.kind = kind;
  document.body.dataset.panel = kind;
  find('panel-title').textContent = title;
  find('panel-body').replaceChildren(...content);
}

export function closePanel() {
  find('panel').hidden = true;
  delete document.body.dataset.panel;
  if (opener?.isConnected) opener.focus();
  opener = null;
}

export function openSettings(app) {
  const {current} = app;
  const changed = () => app.settingsChanged();
  const system = el('textarea', {id: 'system', rows: 4, value: current.system,
    placeholder: 'You are …', 'aria-describedby': 'system-help', oninput: () => {
      current.system = system.value;
      changed();
    }});
  const key = el('input', {id: 'key', type: 'password', autocomplete: 'off',
    value: recall('key', ''), 'aria-describedby': 'key-help', onchange: () => {
      remember('key', key.value.trim() || null);
      app.connect();
    }});
  openPanel('settings', 'Settings',
    el('p', {class: 'help'}, 'For this conversation, and for the next new one. ' +
      'An empty field leaves the default of the server and model.'),
    el('div', {class: 'setting text'}, el('label', {for: 'system'}, 'System prompt'), system,
      el('p', {class: 'help', id: 'system-help'},
        'Stands before the first question and tells the model how to answer.')),
    settingsForm(current.settings, app.defaults, changed),
    button('Reset all', () => {
      current.settings = {};
      current.system = '';
      changed();
      openSettings(app);
    }),
    el('h3', {}, 'This server'),
    el('div', {class: 'setting text'}, el('label', {for: 'key'}, 'API key'), key,
      el('p', {class: 'help', id: 'key-help'},
        'Only if the server was started with keys. It is kept in this browser.')),
    ...remoteSetting(app));
}

// Shown if the server keeps conversations.
function remoteSetting(app) {
  if (!remoteOffered()) return [];
  const input = el('input', {id: 'remote', type: 'checkbox', checked: remoteWanted(),
    'aria-describedby': 'remote-help', onchange: () => {
      wantRemote(input.checked);
      app.exchange();
    }});
  return [el('div', {class: 'setting check'},
    el('label', {for: 'remote'}, 'Keep conversations on this server too'), input,
    el('p', {class: 'help', id: 'remote-help'},
      'All of this browser are sent there. Other browsers with the same API key show them.'))];
}

export function openToken(node, tokens, places, index, branch) {
  openPanel('token', 'Token', tokenPanel(node, tokens, places, index, branch));
}

// Asks for the tokens of an answer that were not kept: the same seed gives the same bytes.
export async function fetchTokens(app, conversation, node) {
  app.list.note(node, 'Replaying the answer for its tokens…');
  try {
    const request = {...requestFor(conversation, node)};
    const again = await askUntil(request, node, new AbortController());
    const result = compareAnswers(node.text, again.text, node.stopped);
    if (!result.same) {
      app.list.note(node, `The replay differs from byte ${result.at}, so there are no ` +
        'probabilities for this answer.', 'bad');
      return false;
    }
    await keepTokens(node, again.tokens);
    app.list.note(node, '');
    return true;
  } catch (fault) {
    app.list.note(node, fault.message, 'bad');
    return false;
  }
}

// Replays until the answer ends, or until as much has come as there was before a stop.
async function askUntil(request, node, controller, onprogress = () => {}) {
  let last = null;
  try {
    return await askAgain(request, controller.signal, (again) => {
      last = again;
      onprogress(again);
      if (node.stopped && again.text.length >= node.text.length &&
          again.thoughts.length >= (node.thoughts ?? '').length) {
        controller.abort();
      }
    });
  } catch (fault) {
    if (fault.name === 'AbortError' && node.stopped && last) return last;
    throw fault;
  }
}

async function linkOf(conversation, node) {
  const messages = messagesFor(conversation, {...node, prefix: '',
    made: {...node.made, system: ''}});
  const value = await encodeLink({made: node.made, messages, prefix: node.prefix || undefined,
    begunThoughts: node.begunThoughts || undefined,
    sum: checksum(node.thoughts ?? '', node.text), stopped: node.stopped || undefined,
    bytes: byteLength(node.text)});
  return `${location.origin}${location.pathname}#replay=${value}`;
}

export function openReplay(app, conversation, node) {
  const {made} = node;
  const result = el('p', {class: 'result', role: 'status'});
  const facts = [['Model', made.model || 'the one that is loaded'], ['Seed', made.seed],
    ...(made.system ? [['System prompt', made.system]] : []), ...namedSettings(made.settings),
    ['Bytes', byteLength(node.text)], ['Checksum', checksum(node.thoughts ?? '', node.text)]];
  let controller = null;
  const start = button('Replay now', async () => {
    if (controller) {
      controller.abort();
      return;
    }
    controller = new AbortController();
    start.textContent = 'Stop';
    result.className = 'result';
    try {
      const again = await askUntil(requestFor(conversation, node), node, controller, (part) => {
        result.textContent = `${byteLength(part.text)} of ${byteLength(node.text)} bytes…`;
      });
      showResult(result, node, again);
    } catch (fault) {
      result.textContent = fault.name === 'AbortError' ? 'Stopped.' : fault.message;
      result.classList.toggle('bad', fault.name !== 'AbortError');
    }
    controller = null;
    start.textContent = 'Replay now';
    announce(result.textContent);
  }, {class: 'primary'});
  const link = el('textarea', {readonly: true, rows: 3, class: 'code', 'aria-label': 'Link',
    onfocus: () => link.select()});
  const copy = button('Copy link', () => copyText(link.value, copy));
  linkOf(conversation, node).then((text) => {
    link.value = text;
  });
  openPanel('replay', 'Replay',
    el('p', {class: 'help'}, 'An answer depends on the model, the messages, the settings and the ' +
      'seed, and on nothing else. Asked again, chaski computes the same bytes.'),
    el('dl', {class: 'facts'}, ...facts.flatMap(([name, value]) =>
      [el('dt', {}, name), el('dd', {}, String(value))])),
    el('div', {class: 'row'}, start, copy), result, link,
    el('p', {class: 'help'}, 'The link holds all of this and the messages before the answer, ' +
      'behind its #, so no server sees it. It opens on any chaski serve with the same model.'));
}

function showResult(result, node, again) {
  const thoughts = compareAnswers(node.thoughts ?? '', again.thoughts, node.stopped);
  const text = compareAnswers(node.text, again.text, node.stopped);
  if (thoughts.same && text.same) {
    result.textContent = `The same ${text.bytes} bytes.`;
    result.classList.add('good');
    return;
  }
  const [where, part, first, second] = thoughts.same ? ['The answer', text, node.text, again.text] :
    ['The thinking', thoughts, node.thoughts ?? '', again.thoughts];
  const excerpt = (whole) => new TextDecoder().decode(
    new TextEncoder().encode(whole).slice(Math.max(0, part.at - 20), part.at + 20));
  result.textContent = `${where} differs from byte ${part.at}: “${excerpt(first)}” was ` +
    `“${excerpt(second)}” now. Another model file or other defaults of the server do that.`;
  result.classList.add('bad');
}
