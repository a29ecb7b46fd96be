// Requests to the server that sent this page. Addresses are relative to the page, so it also works
// below a path of a reverse proxy.

import {recall} from './store.js';

// An answer of the server that is no success, or no answer (status 0).
export class ServerError extends Error {
  constructor(message, status, field = '') {
    super(message);
    this.status = status;
    this.field = field;
  }
}

export async function ask(path, options = {}) {
  const headers = {};
  const key = recall('key', '');
  if (key) headers.Authorization = `Bearer ${key}`;
  if (options.body) headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), {...options, headers});
  } catch (fault) {
    if (fault.name === 'AbortError') throw fault;
    throw new ServerError('The server does not answer. Is chaski serve running?', 0);
  }
  if (!answer.ok) throw await errorOf(answer);
  return answer;
}

function errorIn(value, status) {
  const error = value?.error;
  const message = typeof error === 'string' ? error : error?.message;
  return new ServerError(message || `The server answered with status ${status}`, status,
    error?.param ?? '');
}

async function errorOf(answer) {
  const text = await answer.text();
  try {
    return errorIn(JSON.parse(text), answer.status);
  } catch {
    return new ServerError(text.trim().slice(0, 300) || `status ${answer.status}`, answer.status);
  }
}

// The models that answer questions. A server that does not name capabilities has no others.
export async function getModels() {
  const list = await (await ask('v1/models')).json();
  const answers = ({capabilities}) => !capabilities || capabilities.includes('completion');
  return (list.data ?? []).filter(answers).map((model) => ({id: String(model.id), meta: model.meta ?? {}}));
}

// The server's defaults, and the tokens that a context holds.
export async function getProps(model) {
  const props = await (await ask(`props?model=${encodeURIComponent(model)}`)).json();
  const defaults = props.default_generation_settings ?? {};
  return {context: defaults.n_ctx ?? props.n_ctx ?? 0, settings: defaults.params ?? {}};
}

// {ready, progress}: progress is from 0 to 1 while a model is loaded.
export async function getHealth() {
  try {
    const health = await (await fetch(new URL('health', document.baseURI))).json();
    const loading = health.status?.startsWith('loading') || health.error?.code === 503;
    return {ready: !loading, progress: health.progress ?? health.error?.progress};
  } catch {
    return {ready: false, absent: true};
  }
}

// The events of a stream (HTML standard, "server-sent events"): the data of each, as text.
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data = [];
  for (;;) {
    const {value, done} = await reader.read();
    rest += done ? '\n\n' : value;
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (data.length > 0) yield data.join('\n');
        data = [];
      } else if (line.startsWith('data:')) {
        data.push(line.slice(line[5] === ' ' ? 6 : 5));
      }
    }
    if (done) return;
  }
}

function bytesOf(token) {
  return token.bytes ?? [...new TextEncoder().encode(token.token)];
}

function readToken(token) {
  const others = (token.top_logprobs ?? []).map((other) => ({text: other.token,
    bytes: bytesOf(other), logprob: other.logprob}));
  return {text: token.token, bytes: bytesOf(token), logprob: token.logprob, others};
}

// Streams an answer. `on` hears what arrives: text(string), thoughts(string), tokens(list),
// progress({total, processed}). Returns {finish, usage, timings, warnings}.
export async function streamChat(request, signal, on) {
  const answer = await ask('v1/chat/completions', {method: 'POST', signal,
    body: JSON.stringify({...request, stream: true, stream_options: {include_usage: true},
      return_progress: true})});
  const result = {finish: '', usage: null, timings: null, warnings: []};
  let ended = false;
  for await (const data of eventsOf(answer.body)) {
    if (data === '[DONE]') {
      ended = true;
      break;
    }
    const event = JSON.parse(data);
    if (event.error) throw errorIn(event, 500);
    if (event.prompt_progress) on.progress(event.prompt_progress);
    if (event.usage) result.usage = event.usage;
    if (event.timings) result.timings = event.timings;
    if (event.warnings) result.warnings = event.warnings;
    const choice = event.choices?.[0];
    if (!choice) continue;
    if (choice.delta?.reasoning_content) on.thoughts(choice.delta.reasoning_content);
    if (choice.delta?.content) on.text(choice.delta.content);
    if (choice.logprobs?.content?.length) on.tokens(choice.logprobs.content.map(readToken));
    if (choice.finish_reason) result.finish = choice.finish_reason;
  }
  if (!ended && !result.finish) {
    throw new ServerError('The connection ended before the answer did', 0);
  }
  return result;
}
