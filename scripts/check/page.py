#!/usr/bin/env python3
"""Clicks every function of the chat page in headless Chromium.

    scripts/check/page.py build/chaski [MODEL]    starts `chaski serve` on a free port
    scripts/check/page.py http://127.0.0.1:8080/  uses a server that runs
    --shots FOLDER      also writes pictures: desktop and phone, light and dark

Needs Debian's chromium and chromium-driver; without them it prints SKIPPED. Figures (time to open
500 turns, frames while scrolling) are printed, and are no limits except where a line says so.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from browser import Browser
from page_history import check_long_history
from page_inputs import HOSTILE, STUB, TWO_MODELS, UNSTUB, conversation
from page_keys import check_copied_link, check_keys

DONE = ('return !document.querySelector(".message.running") && '
        'document.querySelector(".message.assistant:last-child .stats")?.textContent;')
SHOWN = '.message.assistant:last-child .body > .text'

class Check:
    def __init__(self, browser, url, folder, shots, stores):
        self.b, self.url, self.folder, self.shots = browser, url, folder, shots
        self.stores = stores
        self.failed = []
        self.addresses = []

    def that(self, holds, what):
        if not holds:
            self.failed.append(what)
        print(f'  {"ok  " if holds else "FAIL"} {what}', flush=True)

    def reload(self):
        self.b.run(UNSTUB)
        self.b.open(self.url)
        self.b.wait('the models', 'return document.querySelector("#model").options.length > 0;')

    def start(self, settings):
        """A new conversation with these settings."""
        self.b.run('localStorage.setItem("chaski.settings", JSON.stringify(arguments[0]));'
                   'localStorage.removeItem("chaski.system");'
                   'document.querySelector("#new").click();', settings)

    def ask(self, text, wait=True):
        before = self.b.count('.message.assistant')
        self.b.type('#question', text)
        self.b.press('Enter')
        if wait:
            self.b.wait('an answer', 'return document.querySelectorAll(".message.assistant")'
                        f'.length > {before} && (() => {{ {DONE} }})();')

    def act(self, name, role='assistant'):
        self.b.run('[...document.querySelectorAll(`.message.${arguments[0]} '
                   '[data-act="${arguments[1]}"]`)].at(-1).click();', role, name)

    def import_file(self, value):
        path = os.path.join(self.folder, 'import.json')
        with open(path, 'w') as file:
            file.write(value if isinstance(value, str) else json.dumps(value))
        self.b.type('#file', path)

    def import_conversation(self, turns, title):
        self.import_file({'format': 'chaski conversations', 'version': 1,
                          'conversations': [conversation(turns, title)]})
        self.b.wait(f'the import of {title}', 'return document.querySelector("#title").textContent'
                    ' === arguments[0];', title)

    # ---- the functions of the page ----

    def asking(self):
        b = self.b
        self.start({'max_tokens': 40, 'seed': 7})
        self.ask('Once upon a time')
        first = b.text(SHOWN)
        self.that(len(first) > 20, f'an answer arrives ({len(first)} characters)')
        self.that('tok/s' in b.text('#rate'), f'speed is shown: {b.text("#rate")}')
        self.that(' of ' in b.text('#context-text'), f'context is shown: {b.text("#context-text")}')
        self.start({'max_tokens': 40, 'seed': 7})
        self.ask('Once upon a time')
        self.that(b.text(SHOWN) == first, 'the same seed gives the same bytes')
        self.act('regenerate')
        b.wait('another answer', DONE)
        self.that(b.text('.siblings span') == '2/2', 'regenerate adds a branch')
        self.that(b.text(SHOWN) != first, 'regenerate with a fixed seed uses the next one')
        b.click('.message.assistant:last-child [aria-label="Previous branch"]')
        self.that(b.text(SHOWN) == first, 'the previous branch is shown again')
        b.press(']')
        self.that(b.text('.siblings span') == '2/2', 'the key ] shows the next branch')
        self.ask('And then?')
        self.that(b.count('.message') == 4, 'a second question goes on from there')
        self.act('edit', 'user')
        b.run('const t = document.querySelector(".editor textarea"); t.value = ""; t.focus();')
        b.type('.editor textarea', 'And what came?')
        b.press('Enter')
        b.wait('the edited question', DONE)
        self.that(b.text('.message.user:nth-last-child(2) .siblings span') == '2/2' and
                  b.text('.question') == 'And what came?', 'an edited question is a branch')

        self.act('remove', 'user')
        self.that(b.count('.message') == 4, 'one press deletes no message')
        b.run('document.querySelector(".sure").click();')
        self.that(b.count('.message') == 4 and b.text('.question') == 'And then?',
                  'two presses delete a branch, and its sibling is shown')
        self.act('edit', 'user')
        b.run('document.querySelector(".editor textarea").value = "And what came?";')
        b.click('.editor .primary')
        b.wait('the edited question once more', DONE)

    def typing(self):
        b = self.b
        b.type('#question', 'half a thought')
        self.reload()
        self.that(b.run('return document.querySelector("#question").value;') == 'half a thought',
                  'what is typed survives a reload')
        self.that(b.count('.message') == 4, 'so does the conversation')
        b.run('const q = document.querySelector("#question"); q.value = "";'
              'q.dispatchEvent(new Event("input"));')

    def stopping(self):
        b = self.b
        b.run(STUB, [{'choices': [{'index': 0, 'delta': {'content': 'The road goes'}}]}], True, 200)
        self.start({})
        self.ask('Tell me', wait=False)
        b.wait('the first words', f'return document.querySelector("{SHOWN}")?.textContent;')
        self.that(b.text('#send') == 'Stop', 'while it writes, the button stops')
        b.type('#question', 'next question')
        b.press('Enter')
        self.that(b.count('.message') == 2, 'Enter sends nothing meanwhile')
        b.press('Escape')
        b.wait('the stop', DONE.replace('?.textContent', ''))
        self.that('Stopped' in b.text('.notes') and b.text(SHOWN) == 'The road goes',
                  'Escape stops, and the text stays')
        self.that(b.run('return document.querySelector("#question").value;') == 'next question',
                  'the typed question stays too')
        b.run(STUB, [{'choices': [{'index': 0, 'delta': {'content': ' north.'}}]}], False, 200)
        self.act('resume')
        b.wait('the rest', DONE)
        asked = b.run('return window.asked.messages.at(-1);')
        self.that(asked == {'role': 'assistant', 'content': 'The road goes'} and
                  b.text(SHOWN) == 'The road goes north.', 'Continue goes on from the stop')
        b.run('const q = document.querySelector("#question"); q.value = "";'
              'q.dispatchEvent(new Event("input"));')

    def faults(self):
        b = self.b
        b.run(STUB, json.dumps({'error': {'message': 'the prompt has 5000 tokens, expected 512'}}),
              False, 400)
        self.start({})
        self.ask('A question that is refused', wait=False)
        b.wait('the error', 'return document.querySelector(".notes .error");')
        self.that('5000 tokens' in b.text('.notes .error'), 'an error is a line of its own')
        self.that(b.text('.question') == 'A question that is refused', 'the question stays')
        b.run(STUB, [{'choices': [{'index': 0, 'delta': {'content': 'Half'}}]},
                     {'error': {'message': 'out of pages'}}], False, 200)
        b.click('.notes .error button')
        b.wait('the error inside a stream',
               'return document.querySelector(".error")?.textContent.includes("pages");')
        self.that(b.text(SHOWN) == 'Half', 'what came before an error stays')
        b.run(STUB, [{'choices': [{'index': 0, 'delta': {'content': 'Cut'}}]}], False, 200)
        b.run('const f = window.fetch; window.fetch = () => Promise.reject(new TypeError("x"));')
        self.act('regenerate')
        b.wait('no server', 'return document.querySelector(".message:last-child .error");')
        self.that('does not answer' in b.text('.error'), 'a server that is gone is named')
        b.run(UNSTUB)

    def thinking(self):
        b = self.b
        delta = [{'reasoning_content': 'Let me *see*. '}, {'reasoning_content': '<b>Yes</b>'},
                 {'content': 'It is **so**.'}]
        b.run(STUB, [{'choices': [{'index': 0, 'delta': at}]} for at in delta], False, 200)
        self.start({})
        self.ask('Why?')
        self.that(not b.run('return document.querySelector(".thoughts").open;') and
                  'Thoughts' in b.text('.thoughts summary'), 'thoughts are folded')
        b.click('.thoughts summary')
        b.wait('the thoughts', 'return document.querySelector(".thoughts .text").textContent;')
        self.that(b.text('.thoughts .text') == 'Let me see. <b>Yes</b>', 'and can be read')
        self.that(b.text(f'{SHOWN} strong') == 'so', 'Markdown is shown')
        b.run(UNSTUB)

    def settings(self):
        b = self.b
        self.start({})
        b.run('document.activeElement.blur();')
        b.press('s')
        b.type('#setting-temperature', '9')
        self.that('expected a number from 0 to 5' in b.run(
            'return document.querySelector("#setting-temperature ~ .fault").textContent;'),
            'an impossible temperature is named')
        b.type('#question', 'Hello')
        b.press('Enter')
        self.that(b.count('.message') == 0 and b.text('#status').startswith('Temperature is 9'),
                  'it is not sent')
        b.run('const f = document.querySelector("#setting-temperature"); f.value = "0";'
              'f.dispatchEvent(new Event("input"));')
        b.type('#system', 'You answer in JSON.')
        b.type('#setting-max_tokens', '60')
        b.run('const f = document.querySelector("#setting-format"); f.value = "json_schema";'
              'f.dispatchEvent(new Event("change"));')
        self.that(b.run('return document.querySelector("#setting-schema").checkVisibility();'),
                  'the schema has a field')
        b.type('#setting-schema', '{"type": "object"')
        self.that('JSON schema' in b.run(
            'return document.querySelector("#setting-schema ~ .fault").textContent;'),
            'a schema that is no JSON is named')
        schema = ', "properties": {"old": {"type": "boolean"}}, "required": ["old"], ' \
            '"additionalProperties": false}'
        b.type('#setting-schema', schema)
        b.click('#panel-close')
        b.run('document.querySelector("#question").focus();')
        b.press('Enter')
        b.wait('an answer by a schema', DONE)
        text = b.text(f'{SHOWN} pre')
        try:
            fits = list(json.loads(text)) == ['old']
        except ValueError:
            fits = False
        self.that(fits, f'the answer fits the schema: {text[:60]!r}')
        b.run('document.activeElement.blur();')
        b.press('s')
        helps = b.run('return [...document.querySelectorAll(".setting:not(.text)")].every('
                      '(at) => at.querySelector(".help").textContent.length > 20);')
        self.that(helps, 'each setting has its sentence')
        b.press('Escape')
        self.that(not b.run('return document.querySelector("#panel").checkVisibility();'),
                  'Escape closes the panel')

    def replay(self):
        b = self.b
        self.start({'max_tokens': 30})
        self.ask('Once upon a time')
        first = b.text(SHOWN)
        b.run('document.activeElement.blur();')
        b.press('p')
        b.wait('the link', 'return document.querySelector("#panel [readonly]").value;')
        link = b.run('return document.querySelector("#panel [readonly]").value;')
        check_copied_link(self, link)
        b.click('#panel .primary')
        b.wait('the replay', 'return document.querySelector(".result.good, .result.bad");')
        self.that('The same' in b.text('.result'), f'replay: {b.text(".result")}')
        b.run('location.hash = arguments[0];', link.split('#')[1])
        b.wait('the link to be read', 'return document.querySelector("#replay-link");')
        self.that(b.count('.message') == 1, f'a link ({len(link)} characters) runs only on a press')
        b.click('#replay-link')
        b.wait('the replay of the link', 'return document.querySelector(".checked");')
        self.that('The same bytes' in b.text('.checked') and b.text(SHOWN) == first,
                  f'a link gives the same bytes: {b.text(".checked")}')
        for bad in ['replay=AAAA', 'replay=' + 'A' * 5000, 'replay=q1YqSy0qzszPU7JSMjQyVqoFAA']:
            b.run('location.hash = arguments[0];', bad)
            b.wait('a bad link', 'return document.querySelector("#status.error");')
        self.that('cannot be read' in b.text('#status'), f'a bad link: {b.text("#status")[:70]}')

    def tokens(self):
        b = self.b
        self.start({'max_tokens': 24, 'temperature': 1})
        self.ask('Once upon a time')
        first = b.text(SHOWN)
        b.run('document.activeElement.blur();')
        b.press('t')
        b.wait('the tokens', 'return document.querySelector(".token");')
        joined = b.run('return [...document.querySelectorAll(".token:not(.outside)")]'
                       '.map((at) => at.textContent).join("");')
        self.that(b.count('.token') > 5 and joined.strip(), f'{b.count(".token")} tokens are shown')
        b.run('document.querySelectorAll(".token")[3].click();')
        self.that('Token 4' in b.text('.token-panel p:first-child'), 'a token opens the panel')
        b.press('ArrowRight')
        self.that('Token 5' in b.text('.token-panel p:first-child'), 'arrow keys walk on')
        others = b.count('button.alternative')
        self.that(others >= 3, f'{others} alternatives to choose from')
        before = b.run('return [...document.querySelectorAll(".token:not(.outside)")].slice(0, 4)'
                       '.map((at) => at.textContent).join("");')
        piece = b.run('return document.querySelector("button.alternative .piece").textContent;')
        b.run('document.querySelector("button.alternative").click();')
        b.wait('the branch', DONE)
        begun = before + piece.replace('·', ' ').replace('↵', '\n')
        self.that(' '.join(b.text(SHOWN).split()).startswith(' '.join(begun.split())) and
                  b.text('.siblings span') == '2/2', f'a branch begins with {begun!r}')
        self.that(b.text(SHOWN) != first, 'and goes its own way')
        b.click('.message.assistant:last-child [data-act="replay"]')
        b.wait('the panel', 'return document.querySelector("#panel [readonly]")?.value;')
        b.click('#panel .primary')
        b.wait('the replay', 'return document.querySelector(".result.good, .result.bad");')
        self.that('The same' in b.text('.result'), 'a branch replays too')
        b.press('Escape')
        self.start({'max_tokens': 12, 'probabilities': False})
        self.ask('Once upon a time')
        self.act('tokens')
        b.wait('the tokens by a replay', 'return document.querySelector(".token");')
        self.that(True, 'tokens that were not kept come by a replay')

    def conversations(self):
        b = self.b
        count = b.count('.entry')
        self.that(count > 5, f'{count} conversations are listed')
        b.run('document.activeElement.blur();')
        b.press('/')
        b.type('#search', 'what came')
        self.that(b.count('.entry') == 1 and b.text('.excerpt mark').lower() == 'what came',
                  'search finds words inside a conversation')
        b.press('ArrowDown', 'Enter')
        self.that(b.count('.message') == 4, 'Enter opens what was found')
        b.run('const s = document.querySelector("#search"); s.value = "";'
              's.dispatchEvent(new Event("input"));')
        b.run('[...document.querySelectorAll(".entry .row button")][0].click();')
        b.run('const f = document.querySelector(".entry input"); f.value = "Of visitors";')
        b.press('Enter')
        self.that(b.text('#title') == 'Of visitors', 'a conversation is renamed')
        os.makedirs(b.downloads, exist_ok=True)
        b.cdp('Browser.setDownloadBehavior', behavior='allow', downloadPath=b.downloads)
        b.click('#export')
        end = time.monotonic() + 10
        while time.monotonic() < end:
            names = [name for name in os.listdir(b.downloads) if name.endswith('.json')]
            if names:
                break
            time.sleep(0.1)
        with open(os.path.join(b.downloads, names[0])) as file:
            text = file.read()
        self.that(len(json.loads(text)['conversations']) == count, 'all are exported')
        b.run('[...document.querySelectorAll(".entry .row button")][2].click();')
        self.that(b.count('.entry') == count, 'one press does not delete')
        b.run('document.querySelector(".sure").click();')
        entries = 'return document.querySelectorAll(".entry").length === arguments[0];'
        b.wait('the deletion', entries, count - 1)
        self.import_file(text)
        b.wait('the import', entries, 2 * count - 1)
        self.that(True, 'a file is imported')
        for bad in ['{', '{"format": "other"}', '{"format": "chaski conversations"}',
                    '{"format": "chaski conversations", "conversations": [{"nodes": {"root": '
                    '{"children": ["a"]}, "a": {"role": "system"}}}]}']:
            self.import_file(bad)
            b.wait('a bad file', 'return document.querySelector("#status.error");')
        self.that('expected user or assistant' in b.text('#status'),
                  f'a bad file: {b.text("#status")}')
        loop = conversation([('user', 'a'), ('assistant', 'b')], 'loop')
        loop['nodes']['n1']['children'] = ['n0', 'root', 'n1', 'toString']
        self.import_file({'format': 'chaski conversations', 'conversations': [loop]})
        b.wait('the loop', 'return document.querySelector("#title").textContent === "loop";')
        self.that(b.count('.message') == 2, 'a cycle in a file is cut')

    def server(self):
        """Conversations on the server, if it was started with --store."""
        b = self.b
        b.run('document.activeElement.blur();')
        b.press('s')
        if not self.stores:
            self.that(b.count('#remote') == 0, 'a server without --store offers nothing')
            b.press('Escape')
            return
        b.click('#remote')
        kept = ('const done = arguments[0];'
                'fetch("page/api/conversations").then((at) => at.json())'
                '.then((all) => done(all.conversations.length));')
        ask = lambda: b.call('POST', '/execute/async', {'args': [], 'script': kept})
        here = b.count('.entry')
        b.until(lambda: ask() >= here)
        self.that(ask() == here, f'all {here} conversations are on the server')
        b.press('Escape')
        self.start({'max_tokens': 8, 'seed': 2})
        self.ask('A question for both browsers')
        b.until(lambda: ask() > here)
        answer = b.text(SHOWN)
        # Another browser: nothing is kept in it.
        b.call('POST', '/execute/async', {'args': [], 'script': '''
          const done = arguments[0];
          const gone = indexedDB.deleteDatabase('chaski');
          gone.onsuccess = gone.onerror = gone.onblocked = () => done(true);'''})
        self.reload()
        b.wait('the conversations of the server',
               'return document.querySelectorAll(".entry").length > arguments[0];', here)
        b.type('#search', 'both browsers')
        b.press('ArrowDown', 'Enter')
        self.that(b.text(SHOWN) == answer, 'another browser shows them')
        b.run('const s = document.querySelector("#search"); s.value = "";'
              's.dispatchEvent(new Event("input"));')
        b.run('[...document.querySelectorAll(".entry .row button")][2].click();')
        b.run('document.querySelector(".sure").click();')
        b.until(lambda: ask() <= here)
        self.that(ask() == here, 'one that is deleted here is deleted there')

    def models(self):
        self.b.run(TWO_MODELS)
        self.b.wait('both models', 'return window.answered === 2;')
        shown = self.b.text('#context-text')
        self.that('2,222' in shown, f'the context is that of the model chosen last: {shown}')
        self.reload()

    def menus(self):
        b = self.b
        listed = b.run('''return (async () => {
          window.realFetch ??= window.fetch;
          window.fetch = async () => Response.json({data: [
            {id: 'both', capabilities: ['completion', 'embedding']},
            {id: 'vectors', capabilities: ['embedding']}, {id: 'elsewhere'}]});
          const {getModels} = await import(new URL('page/api.js', document.baseURI));
          return (await getModels()).map(({id}) => id);
        })();''')
        self.that(listed == ['both', 'elsewhere'],
                  f'a model for embeddings alone is not in the menu {listed}')
        b.run(UNSTUB)

    def hostile(self):
        b = self.b
        turns = [turn for text in HOSTILE for turn in (('user', text), ('assistant', text))]
        start = time.monotonic()
        self.import_conversation(turns, '<img src=x onerror=pwned=17>')
        seconds = time.monotonic() - start
        b.run(STUB, [{'choices': [{'index': 0, 'delta': {'content': text + '\n\n',
                                                         'reasoning_content': text}}]}
                     for text in HOSTILE], False, 200)
        self.ask('Say it as a stream')
        for address in ['javascript:alert(1)', 'java\nscript:alert(1)', 'data:text/html,x']:
            b.run('document.querySelectorAll("#messages a").forEach((at) => at.href.startsWith('
                  'arguments[0]) && at.click());', address)
        bad = b.run('''
          const kinds = /^(script|iframe|img|svg|object|embed|style|link|meta|base|form|video)$/i;
          return [...document.querySelectorAll('#messages *, #list *, #title *')].filter((at) =>
            kinds.test(at.tagName) || [...at.attributes].some((a) => a.name.startsWith('on')) ||
            at.tagName === 'A' && !/^(https?|mailto):/.test(at.getAttribute('href')))
            .map((at) => at.outerHTML);''')
        self.that(bad == [], f'hostile replies stay text {bad[:2]}')
        self.that(b.run('return window.pwned === undefined;'), 'nothing of them ran')
        self.that(b.text('.question').startswith('Say') and '<script>window.pwned = 1</script>' in
                  b.text(SHOWN), 'their source can be read')
        print(f'       {len(turns)} hostile messages opened in {seconds:.2f} s')
        blocked = b.run('''
          const script = document.createElement('script');
          try { script.textContent = 'window.pwned = 20'; document.body.append(script); } catch {}
          try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); return false; } catch {}
          return window.pwned === undefined;''')
        self.that(blocked, 'the policy blocks inline script and markup from text')
        b.run(UNSTUB)

    def long_history(self):
        check_long_history(self)

    def keys(self):
        check_keys(self)

    def appearance(self):
        b = self.b
        b.run('document.activeElement.blur();')
        b.press('?')
        self.that(b.run('return document.querySelector("#help").open;') and
                  b.count('#keys dt') > 15, 'the keys are listed')
        b.click('#help .primary')
        self.that(not b.run('return document.querySelector("#help").open;'), 'and go away')
        themes = []
        for _ in range(3):
            b.press('d')
            themes.append(b.run('return getComputedStyle(document.body).backgroundColor;'))
        self.that(len(set(themes)) == 2, f'light and dark: {sorted(set(themes))}')
        b.press('n')
        self.that(b.run('return document.activeElement.id;') == 'question',
                  'n begins a conversation')
        self.start({'max_tokens': 60, 'seed': 3})
        self.ask('Once upon a time')
        for width, height, phone in [(1600, 1000, False), (360, 740, True)]:
            b.size(width, height, phone)
            time.sleep(0.3)
            for part in ['', '#settings']:
                if part:
                    b.click(part)
                wide = b.run('return document.documentElement.scrollWidth;')
                cut = b.run('''return [...document.querySelectorAll('button, select, h2')]
                  .filter((at) => at.checkVisibility({visibilityProperty: true}))
                  .filter((at) => at.getBoundingClientRect().right > innerWidth + 1)
                  .map((at) => at.textContent);''')
                self.that(wide <= width and cut == [],
                          f'{width} px{" with " + part if part else ""}: nothing is cut off {cut}')
                for dark in [False, True] if self.shots else []:
                    b.dark(dark)
                    name = f'{width}{part.replace("#", "-")}-{"dark" if dark else "light"}.png'
                    b.shot(os.path.join(self.shots, name))
            b.press('Escape')
        b.click('#menu')
        self.that(b.run('return document.querySelector("#sidebar").checkVisibility('
                        '{visibilityProperty: true});'), 'the list slides in on a phone')
        b.press('Escape')
        b.size(1600, 1000)
        names = b.run('''return [...document.querySelectorAll('button, input, select, textarea')]
          .filter((at) => at.checkVisibility() && !at.textContent.trim() && !at.labels?.length &&
            !at.getAttribute('aria-label')).map((at) => at.id);''')
        self.that(names == [], f'each control has a name {names}')

    def all(self):
        self.b.size(1600, 1000)
        self.b.dark(False)
        self.reload()
        self.b.requests()
        for part in [self.asking, self.typing, self.stopping, self.faults, self.thinking,
                     self.settings, self.replay, self.tokens, self.conversations, self.server,
                     self.models, self.menus, self.hostile, self.long_history, self.keys,
                     self.appearance]:
            print(part.__name__.replace('_', ' '))
            try:
                part()
            except (AssertionError, RuntimeError) as error:
                self.that(False, f'{part.__name__}: {error}')
                self.reload()
            self.addresses += self.b.requests()
        foreign = [at for at in self.addresses
                   if not at.startswith((self.url, 'blob:' + self.url, 'chrome:', 'data:'))]
        self.that(foreign == [],
                  f'{len(self.addresses)} requests, none left the origin {foreign[:3]}')
        expected = ('Content Security Policy', 'TrustedHTML', 'TrustedScript', '400')
        errors = [at['message'] for at in self.b.log('browser') if at['level'] == 'SEVERE' and
                  not any(words in at['message'] for words in expected)]
        self.that(errors == [], f'no error in the console {errors[:3]}')


def serve(program, model, store):
    """Starts `chaski serve` on a free port; returns (process, address)."""
    command = [program, 'serve', '--port', '0', '--no-log', '--store', store]
    command += ['-m', model] if model else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = server.stdout.readline().strip()
    if not address:
        sys.exit(f'{" ".join(command)} ended')
    return server, address.rstrip('/') + '/'


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('server', help='a program or an address')
    options.add_argument('model', nargs='?', help='a model file; without it, the bundled model')
    options.add_argument('--shots', metavar='FOLDER')
    given = options.parse_args()
    missing = [name for name in ('chromium', 'chromedriver') if not shutil.which(name)]
    if missing:
        print(f'SKIPPED: the chat page in a browser: {" and ".join(missing)} not found '
              '(packages chromium and chromium-driver)')
        return 0
    server, address = None, given.server
    if given.shots:
        os.makedirs(given.shots, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            if not address.startswith('http'):
                store = os.path.join(folder, 'store')
                server, address = serve(given.server, given.model, store)
            with Browser() as browser:
                check = Check(browser, address, folder, given.shots, server is not None)
                check.all()
        finally:
            if server:
                server.terminate()
                server.wait()
    print(f'{len(check.failed)} failed' if check.failed else 'every function of the page works')
    return 1 if check.failed else 0


if __name__ == '__main__':
    sys.exit(main())
