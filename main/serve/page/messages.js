// The messages of the shown conversation as nodes of the document. Each message keeps its article,
// so what has not changed is not built again, and what is not on the screen is not laid out
// (content-visibility in page.css).

import {button, copyText, el, whenSure} from './dom.js';
import {keptTokens, runOf} from './answers.js';
import {codeBlock, renderMarkdown} from './markdown.js';
import {recall, remember} from './store.js';
import {alignTokens, bitsPerToken, tokenText} from './tokens.js';
import {shownPath, siblingsOf, textOf, thoughtsOf} from './tree.js';

const kFinish = {length: 'ended at its longest length', content_filter: 'ended by a filter',
  context: 'ended because the context is full'};

function rateText(rate) {
  return rate >= 10 ? rate.toFixed(0) : rate.toFixed(1);
}

function statsText(node) {
  const {stats, made} = node;
  if (!stats) return '';
  const parts = [];
  if (stats.count) parts.push(`${stats.count} tokens`);
  if (stats.rate) parts.push(`${rateText(stats.rate)} tok/s`);
  if (stats.cached) parts.push(`${stats.cached}/${stats.prompt} cached`);
  if (made?.model) parts.push(made.model);
  if (kFinish[stats.finish]) parts.push(kFinish[stats.finish]);
  return parts.join(' · ');
}

export class MessageList {
  // `acts` are what the buttons do: edit(node, text), regenerate, again, resume, remove, choose,
  // replay, showTokens(node, ...).
  constructor(container, acts) {
    this.container = container;
    this.acts = acts;
    this.views = new Map();
    this.conversation = null;
    this.following = true;  // the end of the text stays in sight while it grows
    container.addEventListener('scroll', () => {
      const rest = container.scrollHeight - container.scrollTop - container.clientHeight;
      this.following = rest < 60;
    });
  }

  show(conversation, empty) {
    if (this.conversation !== conversation) {
      this.views.clear();
      this.conversation = conversation;
      this.following = true;
    }
    const path = shownPath(conversation);
    const articles = path.map((node) => this.viewOf(node).article);
    const wanted = articles.length > 0 ? articles : [empty];
    const now = [...this.container.children];
    // The shown branch usually differs only at its end.
    let same = 0;
    while (same < wanted.length && wanted[same] === now[same]) ++same;
    now.slice(same).forEach((node) => node.remove());
    this.container.append(...wanted.slice(same));
    path.forEach((node) => this.update(node));
    this.follow();
  }

  follow() {
    if (!this.following) return;
    this.container.scrollTop = this.container.scrollHeight;
  }

  // Scrolls to a message and gives it the focus.
  reveal(node) {
    const article = this.views.get(node.id)?.article;
    if (!article) return;
    this.following = false;
    article.focus({preventScroll: true});
    article.scrollIntoView({block: 'start'});
  }

  viewOf(node) {
    let view = this.views.get(node.id);
    if (view) return view;
    const parts = {body: el('div', {class: 'body'}), notes: el('div', {class: 'notes'}),
      footer: el('footer')};
    const speaker = node.role === 'user' ? 'You' : 'Answer';
    const article = el('article', {class: `message ${node.role}`, tabindex: '-1',
      'aria-label': speaker}, parts.body, parts.notes, parts.footer);
    article.node = node;
    view = {article, ...parts, shown: '', tokens: false, editing: recall(`edit.${node.id}`, null)};
    this.views.set(node.id, view);
    return view;
  }

  update(node) {
    const view = this.viewOf(node);
    view.article.node = node;
    const run = runOf(node);
    // Only what differs from before is built.
    const state = JSON.stringify([textOf(node).length, node.thoughts?.length, Boolean(run),
      run?.progress, node.error, node.stopped, view.tokens, view.editing !== null, view.checked,
      node.warnings, node.stats, siblingsOf(this.conversation, node).map((at) => at.id)]);
    if (view.shown === state) return;
    view.shown = state;
    view.article.classList.toggle('running', Boolean(run));
    view.article.setAttribute('aria-busy', run ? 'true' : 'false');
    if (view.editing !== null) this.showEditor(node, view);
    else if (view.tokens) this.showTokens(node, view);
    else this.showText(node, view, run);
    this.showNotes(node, view, run);
    if (!run || !view.footer.firstChild) this.showFooter(node, view, run);
  }

  showText(node, view, run) {
    if (view.mode !== 'text') view.body.replaceChildren();
    view.mode = 'text';
    if (node.role === 'user') {
      view.body.replaceChildren(el('div', {class: 'question'}, node.text));
      return;
    }
    if (!view.text?.isConnected || view.text.parentNode !== view.body) {
      view.text = el('div', {class: 'text'});
      view.thoughts = el('div', {class: 'text'});
      view.summary = el('summary');
      view.details = el('details', {class: 'thoughts', hidden: true}, view.summary, view.thoughts);
      view.details.addEventListener('toggle', () => this.showThoughts(node, view));
      view.body.replaceChildren(view.details, view.text);
    }
    const thoughts = thoughtsOf(node);
    view.details.hidden = !thoughts;
    if (thoughts) {
      const thinking = run && textOf(node) === '';
      const words = thoughts.split(/\s+/).length;
      view.summary.textContent = `${thinking ? 'Thinking' : 'Thoughts'} · ${words} words`;
      this.showThoughts(node, view);
    }
    const text = textOf(node);
    if (node.made?.settings.format && text) view.text.replaceChildren(codeBlock(text, 'json'));
    else renderMarkdown(view.text, text);
  }

  showThoughts(node, view) {
    if (view.details.open) renderMarkdown(view.thoughts, thoughtsOf(node));
  }

  showEditor(node, view) {
    if (view.mode === 'edit') return;
    view.mode = 'edit';
    const field = el('textarea', {value: view.editing, 'aria-label': 'Edit the question',
      oninput: () => {
        view.editing = field.value;
        remember(`edit.${node.id}`, field.value);
        fit();
      }, onkeydown: (event) => {
        if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
          event.preventDefault();
          save();
        } else if (event.key === 'Escape') {
          event.stopPropagation();
          close();
        }
      }});
    const fit = () => {
      field.style.setProperty('height', 'auto');
      field.style.setProperty('height', `${field.scrollHeight + 2}px`);
    };
    const close = () => {
      view.editing = null;
      remember(`edit.${node.id}`, null);
      this.update(node);
      view.article.focus();
    };
    const save = () => {
      const text = field.value.trim();
      if (text && this.acts.edit(node, text)) close();
    };
    view.body.replaceChildren(el('div', {class: 'editor'}, field, el('div', {class: 'row'},
      button('Ask', save, {class: 'primary'}), button('Cancel', close),
      el('span', {class: 'help'}, 'The first question stays as a branch.'))));
    fit();
    field.focus();
  }

  async showTokens(node, view) {
    view.mode = 'tokens';
    const tokens = await keptTokens(node);
    if (!view.tokens) return;
    const places = alignTokens(tokens, node.thoughts ?? '', node.text);
    const note = el('p', {class: 'help'}, `${tokens.length} tokens, ` +
      `${bitsPerToken(tokens).toFixed(2)} bits a token. The stronger the colour, the less ` +
      'probable. ' +
      'Choose a token to see what else could have come.');
    view.body.replaceChildren(note, tokenText(node, tokens, places, (index) =>
      this.acts.showToken(node, tokens, places, index)));
  }

  // Switches between text and tokens.
  async toggleTokens(node) {
    const view = this.viewOf(node);
    if (!view.tokens && !await this.acts.needTokens(node)) return;
    view.tokens = !view.tokens;
    view.shown = '';
    this.update(node);
  }

  startEdit(node) {
    const view = this.viewOf(node);
    view.editing ??= node.text;
    this.update(node);
  }

  // A line below the message, such as the result of a replay.
  note(node, text, kind = '') {
    const view = this.viewOf(node);
    view.checked = {text, kind};
    this.update(node);
  }

  showNotes(node, view, run) {
    const notes = [];
    if (run && !textOf(node) && !node.thoughts) {
      const {progress} = run;
      notes.push(el('p', {class: 'waiting'}, progress?.total ?
        `Reading the prompt: ${progress.processed} of ${progress.total} tokens` : 'Waiting…'));
    }
    if (node.error) {
      notes.push(el('p', {class: 'error', role: 'alert'}, node.error, ' ',
        button('Try again', () => this.acts.again(node))));
    }
    if (node.stopped && !node.error) notes.push(el('p', {class: 'help'}, 'Stopped.'));
    for (const warning of node.warnings ?? []) notes.push(el('p', {class: 'help'}, warning));
    if (view.checked) notes.push(el('p', {class: `checked ${view.checked.kind}`},
      view.checked.text));
    view.notes.replaceChildren(...notes);
  }

  showFooter(node, view, run) {
    const acts = this.acts;
    const siblings = siblingsOf(this.conversation, node);
    const place = siblings.indexOf(node);
    const row = [];
    if (siblings.length > 1) {
      row.push(el('span', {class: 'siblings'},
        button('‹', () => acts.choose(node, -1),
          {disabled: place === 0, 'aria-label': 'Previous branch'}),
        el('span', {}, `${place + 1}/${siblings.length}`),
        button('›', () => acts.choose(node, 1),
          {disabled: place + 1 === siblings.length, 'aria-label': 'Next branch'})));
    }
    const act = (name, text, work, title) =>
      row.push(button(text, work, {'data-act': name, title}));
    if (!run) {
      if (textOf(node)) {
        act('copy', 'Copy', (event) => copyText(textOf(node), event.currentTarget),
          'Copies the text as it was written');
      }
      if (node.role === 'user') {
        act('edit', 'Edit', () => this.startEdit(node), 'Asks another question in its place');
      } else {
        act('regenerate', 'Regenerate', () => acts.regenerate(node),
          'Another answer, with another seed');
        const cut = node.stopped || node.stats?.finish === 'length' || node.error;
        if (cut && textOf(node)) {
          act('resume', 'Continue', () => acts.resume(node), 'An answer that goes on from here');
        }
        if (node.text && node.made) {
          act('tokens', view.tokens ? 'Text' : 'Tokens', () => this.toggleTokens(node),
            'The probability of each token and its alternatives');
          act('replay', 'Replay', () => acts.replay(node),
            'Computes the same bytes again; a link for others');
        }
      }
      act('remove', 'Delete', whenSure(() => acts.remove(node)),
        'Deletes this message and what follows it');
    }
    const stats = el('span', {class: 'stats', title: 'Tokens of the answer, speed, prompt tokens ' +
      'that came from the cache, model'}, statsText(node));
    view.footer.replaceChildren(el('span', {class: 'acts'}, ...row), stats);
  }
}
