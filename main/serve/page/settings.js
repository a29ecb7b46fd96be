// The settings of a conversation: what each does, its form, and its fields in a request.

import {el} from './dom.js';

// kind: number, choice, check, text or lines. An empty value leaves the server's default.
export const kSettings = [
  {group: 'Sampling'},
  {key: 'temperature', label: 'Temperature', kind: 'number', min: 0, max: 5, step: 0.05,
    help: 'Higher values draw improbable tokens more often; 0 always takes the most probable.'},
  {key: 'top_p', label: 'Top-p', kind: 'number', min: 0, max: 1, step: 0.01,
    help: 'Keeps the most probable tokens whose probabilities add up to this share.'},
  {key: 'top_k', label: 'Top-k', kind: 'number', min: 0, max: 1000, step: 1, whole: true,
    help: 'Keeps this many of the most probable tokens; 0 keeps all.'},
  {key: 'min_p', label: 'Min-p', kind: 'number', min: 0, max: 1, step: 0.01,
    help: 'Drops tokens that are less probable than this share of the most probable one.'},
  {key: 'repeat_penalty', label: 'Repeat penalty', kind: 'number', min: 0.1, max: 3, step: 0.05,
    help: 'Above 1, tokens that occurred recently become less probable.'},
  {key: 'presence_penalty', label: 'Presence penalty', kind: 'number', min: -2, max: 2, step: 0.1,
    help: 'Lowers a token that occurred before, once, however often it occurred.'},
  {key: 'frequency_penalty', label: 'Frequency penalty', kind: 'number', min: -2, max: 2, step: 0.1,
    help: 'Lowers a token by this amount for each time that it occurred.'},
  {key: 'seed', label: 'Seed', kind: 'number', min: 0, max: 4294967295, step: 1, whole: true,
    empty: 'random',
    help: 'The same seed gives the same bytes. Empty draws a new one for each answer.'},
  {group: 'Length and form'},
  {key: 'max_tokens', label: 'Longest answer', kind: 'number', min: 1, max: 1000000, step: 1,
    whole: true, empty: 'until the model ends it', help: 'An answer ends after this many tokens.'},
  {key: 'stop', label: 'Stop at', kind: 'lines',
    help: 'An answer ends before any of these texts, one a line.'},
  {key: 'format', label: 'Form of the answer', kind: 'choice',
    choices: [['', 'Text'], ['json_object', 'A JSON object'], ['json_schema', 'JSON by a schema']],
    help: 'The server lets the model write only tokens that fit the chosen form.'},
  {key: 'schema', label: 'JSON schema', kind: 'json', when: (all) => all.format === 'json_schema',
    help: 'Every answer is JSON that this schema accepts.'},
  {key: 'thinking', label: 'Thinking', kind: 'choice',
    choices: [['', 'As the model does'], ['on', 'On'], ['off', 'Off']],
    help: 'Whether a model that can think first does so; the answer then takes longer.'},
  {group: 'Token view'},
  {key: 'probabilities', label: 'Keep the probability of each token', kind: 'check', preset: true,
    help: 'The token view needs them; without them it replays the answer first.'},
];

const kFields = kSettings.filter((setting) => setting.key);

// The settings that a request has, as pairs of label and value.
export function namedSettings(settings) {
  return kFields.filter(({key}) => key !== 'seed' && key !== 'probabilities' &&
    settings[key] !== undefined && settings[key] !== '')
    .map(({key, label}) => [label, settings[key]]);
}

export function settingOf(settings, key) {
  return settings[key] ?? kFields.find((field) => field.key === key).preset ?? '';
}

// What is wrong with a value, as a sentence, or ''.
export function faultOf(field, value) {
  if (value === '' || value === undefined) return '';
  if (field.kind === 'number') {
    const number = Number(value);
    if (!Number.isFinite(number) || number < field.min || number > field.max ||
        field.whole && !Number.isInteger(number)) {
      const kind = field.whole ? 'a whole number' : 'a number';
      return `${field.label} is ${value}, expected ${kind} from ${field.min} to ${field.max}`;
    }
  }
  if (field.kind === 'json') {
    try {
      if (typeof JSON.parse(value) === 'object') return '';
      return `${field.label} is no object`;
    } catch (fault) {
      return `${field.label}: ${fault.message}`;
    }
  }
  return '';
}

// The first fault of all settings that apply, or ''.
export function firstFault(settings) {
  for (const field of kFields) {
    if (field.when && !field.when(settings)) continue;
    const fault = faultOf(field, settings[field.key]);
    if (fault) return fault;
  }
  return settings.format === 'json_schema' && !settings.schema ? 'JSON schema is empty' : '';
}

// Settings from a file or a link: known keys with possible values.
export function cleanSettings(from) {
  const settings = {};
  if (typeof from !== 'object' || from === null) return settings;
  for (const field of kFields) {
    const value = from[field.key];
    const type = {number: 'number', check: 'boolean'}[field.kind] ?? 'string';
    if (typeof value !== type || faultOf(field, value)) continue;
    if (field.choices && !field.choices.some(([choice]) => choice === value)) continue;
    settings[field.key] = value;
  }
  return settings;
}

// The fields of a request for OpenAI's chat completions, with llama.cpp's names for the others.
export function requestFields(settings) {
  const fields = {};
  for (const {key, kind} of kFields) {
    if (kind === 'number' && key !== 'seed' && Number.isFinite(settings[key])) {
      fields[key] = settings[key];
    }
  }
  const stop = (settings.stop ?? '').split('\n').filter((line) => line !== '');
  if (stop.length > 0) fields.stop = stop;
  if (settings.format === 'json_object') fields.response_format = {type: 'json_object'};
  if (settings.format === 'json_schema') {
    fields.response_format = {type: 'json_schema',
      json_schema: {name: 'answer', strict: true, schema: JSON.parse(settings.schema)}};
  }
  if (settings.thinking) {
    fields.chat_template_kwargs = {enable_thinking: settings.thinking === 'on'};
  }
  return fields;
}

function fieldInput(field, settings, changed) {
  const value = settingOf(settings, field.key);
  const id = `setting-${field.key}`;
  const common = {id, 'aria-describedby': `${id}-help`};
  switch (field.kind) {
    case 'choice': {
      const input = el('select', {...common, onchange: () => changed(field, input.value)},
        ...field.choices.map(([name, label]) => el('option', {value: name}, label)));
      input.value = value;
      return input;
    }
    case 'check': {
      const input = el('input', {...common, type: 'checkbox', checked: value === true,
        onchange: () => changed(field, input.checked)});
      return input;
    }
    case 'number': {
      const input = el('input', {...common, type: 'number', min: field.min, max: field.max,
        step: field.step, inputmode: field.whole ? 'numeric' : 'decimal', value,
        placeholder: field.empty ?? 'default', oninput: () => {
          if (input.validity.badInput) changed(field, 'no number');
          else changed(field, input.value === '' ? '' : Number(input.value));
        }});
      return input;
    }
    default: {
      const input = el('textarea', {...common, rows: field.kind === 'json' ? 8 : 2, value,
        spellcheck: 'false', class: field.kind === 'json' ? 'code' : '',
        oninput: () => changed(field, input.value)});
      return input;
    }
  }
}

// The form. `settings` is changed as it is filled in, and `onchange` is called. A value that cannot
// be sent stays in its field with a sentence below it.
export function settingsForm(settings, defaults, onchange) {
  const rows = [];
  const form = el('form', {class: 'settings', onsubmit: (event) => event.preventDefault()});
  const refresh = () => {
    for (const {field, row, fault} of rows) {
      row.hidden = Boolean(field.when && !field.when(settings));
      fault.textContent = faultOf(field, settings[field.key]);
    }
  };
  const changed = (field, value) => {
    if (value === '' && field.kind !== 'check') delete settings[field.key];
    else settings[field.key] = value;
    refresh();
    onchange();
  };
  for (const field of kSettings) {
    if (field.group) {
      form.append(el('h3', {}, field.group));
      continue;
    }
    const id = `setting-${field.key}`;
    const input = fieldInput(field, settings, changed);
    const preset = defaults[field.key];
    if (field.kind === 'number' && !field.empty && Number.isFinite(preset)) {
      input.placeholder = String(Math.round(preset * 1000) / 1000);
    }
    const fault = el('p', {class: 'fault', role: 'alert'});
    const row = el('div', {class: `setting ${field.kind}`},
      el('label', {for: id}, field.label), input,
      el('p', {class: 'help', id: `${id}-help`}, field.help), fault);
    rows.push({field, row, fault});
    form.append(row);
  }
  refresh();
  return form;
}
