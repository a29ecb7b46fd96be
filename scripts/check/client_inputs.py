"""What the clients of the server ask, and a chat template that shows tools and their calls."""

QUESTION = "Tell me of a cat."
TEMPLATE = """{% if tools %}{% for t in tools %}{{ t | tojson }}
{% endfor %}<tool_call></tool_call>
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}\
<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""
