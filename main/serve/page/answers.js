// Asks the server for an answer and fills its node as it arrives. Several answers may be under way,
// also in conversations that are not shown.

import {streamChat} from './api.js';
import {loadTokens, saveTokens} from './store.js';
import {messagesFor} from './tree.js';
import {requestFields, settingOf} from './settings.js';

const kAlternatives = 8;  // top_logprobs; OpenAI allows 20

const running = new Map();  // id of a node: its run, see fillAnswer()
const tokensOf = new Map();  // id of a node: its tokens, of this visit

export function newSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

export function runOf(node) {
  return running.get(node.id);
}

export function stopAnswer(node) {
  running.get(node.id)?.controller.abort();
}

export function requestFor(conversation, node) {
  const {model, seed, settings} = node.made;
  const request = {...requestFields(settings), messages: messagesFor(conversation, node), seed};
  if (model) request.model = model;
  return request;
}

function takeResult(node, result, run) {
  const {usage, timings, finish} = result;
  const seconds = (performance.now() - run.first) / 1000;
  const count = usage?.completion_tokens ?? timings?.predicted_n ?? run.count;
  node.stats = {finish, count,
    prompt: usage?.prompt_tokens ?? 0,
    cached: usage?.prompt_tokens_details?.cached_tokens ?? 0,
    rate: timings?.predicted_per_second ?? (seconds > 0 ? (run.count - 1) / seconds : 0),
    reading: timings?.prompt_per_second ?? 0};
  node.warnings = result.warnings.map((warning) => typeof warning === 'string' ? warning :
    String(warning.message ?? JSON.stringify(warning)));
}

// Fills `node` (its role is assistant). `onchange` is called whenever it has changed. Never throws:
// what went wrong is the node's `error`.
export async function fillAnswer(conversation, node, onchange) {
  // progress: of reading the prompt, {total, processed}; prompt: its tokens, 0 if not known yet;
  // count: tokens of the answer so far; first: when the first one came, in ms of performance.now().
  const run = {controller: new AbortController(), progress: null, prompt: 0, count: 0, first: 0};
  running.set(node.id, run);
  const tokens = [];
  tokensOf.set(node.id, tokens);
  const arrived = () => {
    run.first ||= performance.now();
    run.progress = null;
    onchange();
  };
  onchange();
  try {
    const request = requestFor(conversation, node);
    const kept = settingOf(node.made.settings, 'probabilities');
    if (kept) Object.assign(request, {logprobs: true, top_logprobs: kAlternatives});
    const result = await streamChat(request, run.controller.signal, {
      text: (text) => {
        node.text += text;
        if (!kept) ++run.count;
        arrived();
      },
      thoughts: (text) => {
        node.thoughts = (node.thoughts ?? '') + text;
        if (!kept) ++run.count;
        arrived();
      },
      tokens: (list) => {
        tokens.push(...list);
        run.count += list.length;
        arrived();
      },
      progress: (progress) => {
        run.progress = progress;
        run.prompt = progress.total;
        onchange();
      },
    });
    takeResult(node, result, run);
  } catch (fault) {
    if (fault.name === 'AbortError') node.stopped = true;
    else node.error = fault.message;
    node.errorStatus = fault.status ?? 0;
    node.stats = {finish: '', count: run.count, prompt: 0, cached: 0, reading: 0,
      rate: run.count > 1 ? (run.count - 1) / ((performance.now() - run.first) / 1000) : 0};
  }
  running.delete(node.id);
  if (tokens.length > 0) await saveTokens(node, tokens);
  onchange();
}

// The same request once more. Returns {text, thoughts, tokens}; throws ServerError.
// `enough(text)` ends it early.
export async function askAgain(request, signal, onprogress = () => {}) {
  const again = {text: '', thoughts: '', tokens: []};
  await streamChat({...request, logprobs: true, top_logprobs: kAlternatives}, signal, {
    text: (text) => {
      again.text += text;
      onprogress(again);
    },
    thoughts: (text) => {
      again.thoughts += text;
      onprogress(again);
    },
    tokens: (list) => again.tokens.push(...list),
    progress: () => {},
  });
  return again;
}

// The tokens of an answer, if this browser kept them.
export async function keptTokens(node) {
  if (!tokensOf.has(node.id)) {
    const kept = await loadTokens(node);
    if (kept) tokensOf.set(node.id, kept);
  }
  return tokensOf.get(node.id) ?? [];
}

export function keepTokens(node, tokens) {
  tokensOf.set(node.id, tokens);
  return saveTokens(node, tokens);
}
