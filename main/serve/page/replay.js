// Replay: a link holds what an answer depends on (model, seed, settings, messages) and a checksum
// of the answer. chaski computes the same bytes from it on any CPU with the same model file.

import {cleanMade} from './transfer.js';

const encoder = new TextEncoder();

// 64-bit FNV-1a over the UTF-8 bytes of the thoughts, a zero byte and the text; as 16 hex digits.
// It detects a difference, not a forgery.
export function checksum(thoughts, text) {
  const bytes = encoder.encode(`${thoughts}\0${text}`);
  // In four digits of 16 bits, because BigInt is slow for long answers.
  let [a, b, c, d] = [0x2325, 0x8422, 0x9ce4, 0xcbf2];
  for (const byte of bytes) {
    a ^= byte;
    // times 0x100000001b3
    const low = a * 0x1b3;
    const next = b * 0x1b3 + (low >>> 16);
    const third = c * 0x1b3 + a * 0x100 + (next >>> 16);
    const high = d * 0x1b3 + b * 0x100 + Math.floor(third / 0x10000);
    a = low & 0xffff;
    b = next & 0xffff;
    c = third & 0xffff;
    d = high & 0xffff;
  }
  return [d, c, b, a].map((digit) => digit.toString(16).padStart(4, '0')).join('');
}

export function byteLength(text) {
  return encoder.encode(text).length;
}

async function piped(bytes, stream) {
  const body = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(body).arrayBuffer());
}

// The value of #replay=: JSON, compressed, in base64url.
export async function encodeLink(value) {
  const bytes = await piped(encoder.encode(JSON.stringify(value)),
    new CompressionStream('deflate-raw'));
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

const kLargest = 16 << 20;  // bytes of a link's JSON; a small link must not fill the memory

async function decodeText(text) {
  const binary = atob(text.replace(/-/g, '+').replace(/_/g, '/'));
  const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'))
    .getReader();
  const parts = [];
  let size = 0;
  for (;;) {
    const {value, done} = await reader.read();
    if (done) break;
    size += value.length;
    if (size > kLargest) throw new Error('it holds more than 16 MiB');
    parts.push(value);
  }
  return new Blob(parts).text();
}

// What a link asks for: {made, messages, prefix, begunThoughts, sum, bytes, stopped}. A link comes
// from anywhere: each field is checked. Throws an Error.
export async function decodeLink(text) {
  const value = JSON.parse(await decodeText(text));
  if (!Array.isArray(value?.messages)) throw new Error('it has no list of messages');
  const messages = value.messages.map(({role, content}, i) => {
    if (!['user', 'assistant'].includes(role) || typeof content !== 'string') {
      throw new Error(`message ${i} has no role and text`);
    }
    return {role, content};
  });
  const made = cleanMade(value.made);
  if (!made) throw new Error('it does not say what was asked');
  const textOf = (field) => typeof value[field] === 'string' ? value[field] : '';
  return {made, messages, prefix: textOf('prefix'), begunThoughts: textOf('begunThoughts'),
    sum: String(value.sum ?? ''), bytes: Number(value.bytes) || 0,
    stopped: value.stopped === true};
}

// Compares an answer with its replay: {same, at}; `at` is the first byte that differs. Of an answer
// that was stopped only the part before the stop is compared.
export function compareAnswers(first, again, stopped) {
  const a = encoder.encode(first);
  const b = encoder.encode(again);
  const common = Math.min(a.length, b.length);
  let at = 0;
  while (at < common && a[at] === b[at]) ++at;
  const same = stopped ? at === a.length : at === a.length && at === b.length;
  return {same, at, bytes: stopped ? a.length : Math.max(a.length, b.length)};
}
