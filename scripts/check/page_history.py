"""Part of page.py: a conversation of 500 turns stays fluid. Nodes of the document that change are
counted, which no load of the machine changes; times are printed."""
from page_inputs import UNSTUB

EVENTS = 300  # of the answer below the history
# Nodes that an event of a growing answer may build: its last block and the note above the text.
MOST_NODES = 4

# The words of an answer one by one, so that the page shows it growing.
PACED = '''
const [events, pause] = arguments;
window.realFetch ??= window.fetch;
window.fetch = (address, options) => {
  if (!String(address).includes('chat/completions')) return window.realFetch(address, options);
  const body = new ReadableStream({async start(stream) {
    const put = (text) => stream.enqueue(new TextEncoder().encode(`data: ${text}\\n\\n`));
    for (const event of events) {
      put(JSON.stringify(event));
      await new Promise((done) => setTimeout(done, pause));
    }
    put('[DONE]');
    stream.close();
  }});
  return Promise.resolve(new Response(body));
};
'''

# Counts what changes in the messages: new articles, other new nodes, and the articles they are in.
OBSERVE = '''
const articles = new Set();
window.changes = {articles: 0, nodes: 0, touched: 0};
window.observer?.disconnect();
window.observer = new MutationObserver((records) => {
  for (const {target, addedNodes} of records) {
    for (const node of addedNodes) {
      if (node.nodeName === 'ARTICLE') ++window.changes.articles;
      else window.changes.nodes += 1 + (node.querySelectorAll?.('*').length ?? 0);
    }
    const article = target.closest?.('article');
    if (article) articles.add(article);
    window.changes.touched = articles.size;
  }
});
window.observer.observe(document.querySelector('#messages'), {childList: true, subtree: true,
  characterData: true});
'''
CHANGES = 'return window.changes;'


def frames(browser):
    """Milliseconds of each frame while the messages are scrolled, in order of length."""
    return browser.call('POST', '/execute/async', {'args': [], 'script': '''
      const done = arguments[arguments.length - 1];
      const box = document.querySelector('#messages');
      const times = [];
      let last = performance.now();
      let n = 0;
      const step = (now) => {
        times.push(now - last);
        last = now;
        box.scrollTop -= 200;
        if (++n < 120) requestAnimationFrame(step);
        else done(times.slice(2).sort((a, b) => a - b));
      };
      requestAnimationFrame(step);'''})


def check_long_history(check):
    b = check.b
    answer = ('A paragraph of an answer with *some* words and `code`.\n\n' * 4 +
              '- one\n- two\n\n```python\nprint(1)\n```\n')
    turns = [turn for i in range(500)
             for turn in (('user', f'Question {i}?'), ('assistant', f'Answer {i}. {answer}'))]
    check.import_conversation(turns[:20], '10 turns')
    few = frames(b)
    check.import_conversation(turns, '500 turns')
    opened = b.run('''
      const entry = (is) => [...document.querySelectorAll('button.open')].find(is);
      entry((at) => at.title !== '500 turns').click();
      const start = performance.now();
      entry((at) => at.title === '500 turns').click();
      document.querySelector('#messages').offsetHeight;
      return performance.now() - start;''')
    check.that(b.count('.message') == 1000, '500 turns are shown')

    b.run(OBSERVE)
    scrolled = frames(b)
    check.that(b.run(CHANGES)['nodes'] == 0, 'scrolling builds no node')
    typed = b.run('''
      const q = document.querySelector('#question');
      const start = performance.now();
      for (let i = 0; i < 20; ++i) {
        q.value += 'x';
        q.dispatchEvent(new Event('input'));
        document.querySelector('#messages').offsetHeight;
      }
      q.value = '';
      q.dispatchEvent(new Event('input'));
      return (performance.now() - start) / 21;''')
    check.that(b.run(CHANGES)['touched'] == 0, 'typing changes no message')
    middle, worst, usual = scrolled[59], scrolled[112], few[59]
    # As 10 turns do, with two frames of 60 Hz for the new messages that come into sight.
    check.that(middle < usual + 34, f'opened in {opened:.0f} ms; a frame while scrolling: '
               f'median {middle:.0f} ms ({usual:.0f} ms with 10 turns), 95% {worst:.0f} ms; '
               f'a letter typed: {typed:.1f} ms')

    b.run(PACED, [{'choices': [{'index': 0, 'delta': {'content': f'word{i} '}}]}
                  for i in range(EVENTS)], 4)
    b.run(OBSERVE)
    check.ask('One more')
    changes = b.run(CHANGES)
    check.that(changes['articles'] == 2, f'a question builds 2 messages, and moves no other one '
               f'({changes["articles"]})')
    # The question, its answer, and the answer before them, which is no longer the last one.
    check.that(changes['touched'] <= 3, f'an answer that grows changes no other message '
               f'({changes["touched"]} changed)')
    check.that(changes['nodes'] < EVENTS * MOST_NODES, f'{changes["nodes"] / EVENTS:.1f} nodes are '
               f'built for an event, at most {MOST_NODES}')
    b.run('window.observer.disconnect();')
    b.run(UNSTUB)
