"""Part of page.py: the keys i, j, k, [, e, r, c and b, each button that copies a text, and buttons
whose work the other parts do by keys."""
from page_inputs import STUB, UNSTUB

ANSWER = 'A *program*:\n\n```python\nprint(1)\n```\n'
CHOSEN = ('return [...document.querySelectorAll(".message")]'
          '.findIndex((at) => at.contains(document.activeElement));')
FOCUS = 'return document.activeElement.id || document.activeElement.tagName;'
BLUR = 'document.activeElement.blur();'


def empty_clipboard(b):
    """Lets the page use the clipboard, and empties it."""
    b.cdp('Browser.grantPermissions', permissions=['clipboardReadWrite', 'clipboardSanitizedWrite'])
    b.run('return navigator.clipboard.writeText("");')


def copied(b):
    """The text of the clipboard; empties it."""
    b.until(lambda: b.run('return navigator.clipboard.readText();') != '', seconds=5)
    text = b.run('return navigator.clipboard.readText();')
    b.run('return navigator.clipboard.writeText("");')
    return text


def answered(b, branch):
    b.wait(f'answer {branch}', 'return !document.querySelector(".message.running") && '
           'document.querySelector(".message:last-child .siblings span")?.textContent '
           '=== arguments[0];', branch)


def check_copied_link(check, link):
    """In the panel of a replay."""
    empty_clipboard(check.b)
    check.b.run('[...document.querySelectorAll("#panel button")]'
                '.find((at) => at.textContent === "Copy link").click();')
    check.that(copied(check.b) == link, 'Copy link copies the link')


def check_copies(check):
    b = check.b
    empty_clipboard(b)
    check.act('copy')
    check.that(copied(b) == ANSWER, 'Copy copies the answer as it was written')
    check.act('copy', 'user')
    check.that(copied(b) == 'A program?', 'Copy of a question')
    b.click('.message.assistant figure button')
    check.that(copied(b).strip() == 'print(1)', 'Copy of a block of code')
    b.run(BLUR)
    b.press('c')
    check.that(copied(b) == ANSWER, 'the key c copies the last message')
    b.press('k', 'k', 'c')
    check.that(copied(b) == 'A program?', 'and the chosen one, if a message is chosen')
    # Where the page may not use the clipboard (an address that is not https), it copies otherwise.
    b.run('window.writes = navigator.clipboard.writeText;'
          'navigator.clipboard.writeText = () => Promise.reject(new Error("not allowed"));')
    check.act('copy')
    check.that(copied_as_before(b) == ANSWER, 'Copy without the interface of the clipboard')


def copied_as_before(b):
    b.run('navigator.clipboard.writeText = window.writes;')
    return copied(b)


def check_walks(check):
    b = check.b
    b.run(BLUR)
    chosen = []
    for key in 'jjkj':
        b.press(key)
        chosen.append(b.run(CHOSEN))
    check.that(chosen == [0, 1, 0, 1], f'j and k walk through the messages {chosen}')
    b.press('j')
    check.that(b.run(FOCUS) == 'question', 'j after the last message goes to the question')
    b.press('j')
    check.that(b.run('return document.querySelector("#question").value;') == 'j',
               'in a field, a letter is a letter')
    b.press('Escape')
    b.press('k')
    check.that(b.run(CHOSEN) == 1, 'k begins with the last message')
    b.press('i')
    check.that(b.run(FOCUS) == 'question', 'i goes to the question')
    b.run('const q = document.querySelector("#question"); q.value = "";'
          'q.dispatchEvent(new Event("input"));' + BLUR)


def check_branches(check):
    b = check.b
    b.press('r')
    answered(b, '2/2')
    check.that(b.count('.message') == 2, 'r adds a branch of the answer')
    b.run(BLUR)
    b.press('[')
    check.that(b.text('.message:last-child .siblings span') == '1/2', '[ shows the branch before')
    b.press(']')
    check.that(b.text('.message:last-child .siblings span') == '2/2', '] shows the next one')
    b.run(BLUR)
    b.press('e')
    check.that(b.run('return document.querySelector(".editor textarea")?.value;') == 'A program?' and
               b.run(FOCUS) == 'TEXTAREA', 'e edits the question')
    b.type('.editor textarea', '!')
    b.press('Enter')
    b.wait('the edited question', 'return !document.querySelector(".message.running") && '
           'document.querySelector(".message:last-child .stats")?.textContent;')
    check.that(b.text('.question') == 'A program?!', 'and Enter asks it')


def check_list(check):
    b = check.b
    shown = 'return document.querySelector("#sidebar").checkVisibility();'
    b.run(BLUR)
    before = b.run(shown)
    b.press('b')
    hidden = b.run(shown)
    b.run(BLUR)
    b.press('b')
    check.that([before, hidden, b.run(shown)] == [True, False, True],
               'b hides the list of conversations and shows it again')
    b.run(BLUR)


def named(text, inside):
    """A script that presses the first button with this text."""
    return (f'[...document.querySelectorAll("{inside} button")]'
            f'.find((at) => at.checkVisibility() && at.textContent === "{text}").click();')


def check_buttons(check):
    b = check.b
    check.act('edit', 'user')
    b.type('.editor textarea', ' or not')
    b.run(named('Cancel', '.editor'))
    check.that(b.count('.editor') == 0 and b.text('.question') == 'A program?!',
               'Cancel ends an edit, and the question stays')
    b.run('document.querySelector(".message.user [aria-label=\'Previous branch\']").click();')
    first = b.text('.question')
    b.run('document.querySelector(".message.user [aria-label=\'Next branch\']").click();')
    check.that([first, b.text('.question')] == ['A program?', 'A program?!'],
               'the arrows show the branches of a question')
    b.run(STUB, [{'choices': [{'index': 0, 'delta': {'content': 'Half'}}]}], True, 200)
    check.ask('Stop here', wait=False)
    b.wait('the first word', 'return document.querySelector(".message:last-child .body > .text")'
           '?.textContent === "Half";')
    b.click('#send')
    b.wait('the stop', 'return document.querySelector(".message:last-child .notes")'
           '?.textContent.includes("Stopped");')
    check.that(b.text('#send') != 'Stop', 'the button Stop stops')
    b.run(STUB, [{'choices': [{'index': 0, 'delta': {'content': 'All'}}]}], False, 200)
    count = b.count('.message')
    b.type('#question', 'By the button')
    b.click('#send')
    b.until(lambda: b.count('.message') == count + 2)
    check.that(b.count('.message') == count + 2, 'and Ask asks')
    b.click('#settings')
    b.type('#setting-temperature', '0.5')
    b.type('#system', 'Be brief.')
    b.run(named('Reset all', '#panel'))
    check.that(b.run('return document.querySelector("#setting-temperature").value + '
                     'document.querySelector("#system").value;') == '',
               'Reset all empties the settings')
    b.click('#settings')
    check.that(not b.run('return document.querySelector("#panel").checkVisibility();'),
               'a second press of Settings closes them')
    b.click('#keys-button')
    check.that(b.run('return document.querySelector("#help").open;'), 'the button ? lists the keys')
    b.click('#help .primary')
    before = b.text('#theme')
    texts = [(b.click('#theme'), b.text('#theme'))[1] for _ in range(3)]
    check.that(len(set(texts)) == 3 and texts[2] == before, f'the button of the theme: {texts}')


def check_keys(check):
    b = check.b
    b.run(STUB, [{'choices': [{'index': 0, 'delta': {'content': ANSWER}}]}], False, 200)
    check.start({})
    check.ask('A program?')
    check_copies(check)
    check_walks(check)
    check_branches(check)
    check_list(check)
    check_buttons(check)
    b.run(UNSTUB)
