"""Drives headless Chromium by Debian's chromium-driver: WebDriver over HTTP, standard library."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = 'element-6066-11e4-a52e-4f735466cecf'
KEYS = {'Enter': '\ue007', 'Escape': '\ue00c', 'Tab': '\ue004', 'ArrowLeft': '\ue012',
        'ArrowUp': '\ue013', 'ArrowRight': '\ue014', 'ArrowDown': '\ue015', 'Shift': '\ue008'}


class Browser:
    """One window with an empty profile. Usable as `with Browser() as browser`."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix='chaski-page-')
        self.downloads = os.path.join(self.profile, 'downloads')
        self.driver = subprocess.Popen(['chromedriver', '--port=0'], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            if 'successfully on port' in line:
                port = int(line.rsplit('port', 1)[1].strip(' .\n'))
                break
        self.base = f'http://127.0.0.1:{port}'
        args = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
                '--no-first-run', '--disable-extensions', '--disable-background-networking',
                f'--user-data-dir={self.profile}/user', '--window-size=1600,1000']
        options = {'args': args, 'prefs': {'download.default_directory': self.downloads},
                   'perfLoggingPrefs': {'enableNetwork': True}}
        wanted = {'browserName': 'chrome', 'goog:chromeOptions': options,
                  'goog:loggingPrefs': {'browser': 'ALL', 'performance': 'ALL'}}
        self.session = '/session'
        answer = self.call('POST', '', {'capabilities': {'alwaysMatch': wanted}})
        self.session = f'/session/{answer["sessionId"]}'

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call('DELETE', '')
        finally:
            self.driver.terminate()
            self.driver.wait()
            shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, path, body=None):
        data = json.dumps(body or {}).encode() if method == 'POST' else None
        request = urllib.request.Request(self.base + self.session + path, data, method=method,
                                         headers={'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)['value']
        except urllib.error.HTTPError as error:
            value = json.load(error)['value']
            raise RuntimeError(f'{path}: {value["error"]}: {value["message"][:400]}') from None

    def open(self, address):
        self.call('POST', '/url', {'url': address})

    def run(self, script, *args):
        """The value of a script's `return`, which may be a promise."""
        return self.call('POST', '/execute/sync', {'script': script, 'args': list(args)})

    def element(self, selector):
        return self.call('POST', '/element', {'using': 'css selector', 'value': selector})[ELEMENT]

    def click(self, selector):
        self.call('POST', f'/element/{self.element(selector)}/click')

    def type(self, selector, text):
        self.call('POST', f'/element/{self.element(selector)}/value', {'text': text})

    def press(self, *keys):
        """Keys for what has the focus: names of KEYS or letters, one after the other."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{'type': 'keyDown', 'value': value}, {'type': 'keyUp', 'value': value}]
        self.call('POST', '/actions', {'actions': [{'type': 'key', 'id': 'k', 'actions': actions}]})

    def text(self, selector):
        """The text of the last element that the selector finds, or ''."""
        return self.run('const all = document.querySelectorAll(arguments[0]);'
                        'return all.length ? all[all.length - 1].textContent : "";', selector)

    def count(self, selector):
        return self.run('return document.querySelectorAll(arguments[0]).length;', selector)

    def wait(self, what, script, *args, seconds=60):
        """Waits until the script returns something true, and returns it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.run(script, *args)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f'{what}: not within {seconds} s; the status line says '
                             f'"{self.text("#status")}"')

    def until(self, holds, seconds=10):
        """Waits until holds() is true, or the time is over."""
        end = time.monotonic() + seconds
        while not holds() and time.monotonic() < end:
            time.sleep(0.1)

    def cdp(self, command, **params):
        return self.call('POST', '/goog/cdp/execute', {'cmd': command, 'params': params})

    def size(self, width, height, phone=False):
        self.cdp('Emulation.setDeviceMetricsOverride', width=width, height=height,
                 deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.cdp('Emulation.setTouchEmulationEnabled', enabled=phone)

    def dark(self, on):
        self.cdp('Emulation.setEmulatedMedia',
                 features=[{'name': 'prefers-color-scheme', 'value': 'dark' if on else 'light'}])

    def shot(self, path):
        with open(path, 'wb') as file:
            file.write(base64.b64decode(self.call('GET', '/screenshot')))

    def log(self, kind):
        return self.call('POST', '/se/log', {'type': kind})

    def requests(self):
        """The addresses that the page asked for since the last call."""
        addresses = []
        for entry in self.log('performance'):
            message = json.loads(entry['message'])['message']
            if message['method'] == 'Network.requestWillBeSent':
                addresses.append(message['params']['request']['url'])
        return addresses
