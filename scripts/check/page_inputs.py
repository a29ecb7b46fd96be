"""What page.py feeds the chat page: canned streams, hostile replies and conversations."""

# One stream of events instead of the server's, for what a small model cannot be made to say.
STUB = '''
const [events, hold, status] = arguments;
window.realFetch ??= window.fetch;
window.fetch = (address, options) => {
  if (!String(address).includes('chat/completions')) return window.realFetch(address, options);
  window.asked = JSON.parse(options.body);
  const body = new ReadableStream({start(stream) {
    const put = (text) => stream.enqueue(new TextEncoder().encode(text));
    if (status !== 200) put(events);
    else for (const event of events) put(`data: ${JSON.stringify(event)}\\n\\n`);
    if (status === 200 && !hold) put('data: [DONE]\\n\\n');
    if (!hold) stream.close();
    options.signal.addEventListener('abort',
      () => stream.error(new DOMException('stopped', 'AbortError')));
  }});
  return Promise.resolve(new Response(body, {status}));
};
'''
# Chooses a model and then another one, which the server describes first.
TWO_MODELS = '''
window.realFetch ??= window.fetch;
window.answered = 0;
window.fetch = async (address, options) => {
  const model = /props[?]model=(slow|fast)/.exec(String(address))?.[1];
  if (!model) return window.realFetch(address, options);
  await new Promise((done) => setTimeout(done, model === 'slow' ? 200 : 0));
  setTimeout(() => ++window.answered, 50);
  return Response.json({default_generation_settings: {n_ctx: model === 'slow' ? 1111 : 2222}});
};
const select = document.querySelector('#model');
for (const model of ['slow', 'fast']) {
  select.append(new Option(model));
  select.value = model;
  select.dispatchEvent(new Event('change'));
}
'''
UNSTUB = 'if (window.realFetch) window.fetch = window.realFetch;'

HOSTILE = [
    '<script>window.pwned = 1</script>',
    '<img src=x onerror="window.pwned = 2">',
    '<svg onload="window.pwned = 3"><script>window.pwned = 4</script></svg>',
    '<iframe srcdoc="<script>parent.pwned = 5</script>"></iframe>',
    '[click](javascript:window.pwned=6) [click](JaVaScRiPt:window.pwned=7)',
    '[click](java\tscript:window.pwned=8) [click]( javascript:window.pwned=9 )',
    '[click](data:text/html,<script>window.pwned=10</script>)',
    '[x](vbscript:x) [x](file:///etc/passwd)',
    '<javascript:window.pwned=11> ![x](https://example.invalid/track.png)',
    '[a](https://example.invalid/" onmouseover="window.pwned=12)',
    '```html\n<script>window.pwned = 13</script>\n```',
    '| <b onclick=pwned=14>x</b> | [y](javascript:pwned=15) |\n| --- | --- |\n| `<i>` | <br> |',
    '<style>body { display: none }</style><link rel=stylesheet href=https://example.invalid/x.css>',
    '<meta http-equiv=refresh content="0;url=https://example.invalid/">',
    '<base href=https://example.invalid/><form action=https://example.invalid/><input autofocus>',
    '> ' * 3000 + 'deep', '*' * 20000, '[' * 5000 + '](' * 5000, '`' * 3001 + 'x', '- ' * 3000,
    '\u202e\u0000\ufffd\ud7ff <a href="javascript:pwned=16">x</a>', '_*_*' * 5000,
]


def plain(role, text, parent, identity):
    return {'id': identity, 'parent': parent, 'role': role, 'text': text, 'children': [],
            'chosen': None}


def conversation(turns, title):
    """A conversation in the form of an export: (role, text) one after the other."""
    nodes = {'root': plain('root', '', None, 'root')}
    last = 'root'
    for i, (role, text) in enumerate(turns):
        nodes[last]['children'] = [f'n{i}']
        nodes[last]['chosen'] = f'n{i}'
        nodes[f'n{i}'] = plain(role, text, last, f'n{i}')
        last = f'n{i}'
    return {'id': title, 'title': title, 'system': '', 'settings': {}, 'nodes': nodes}
