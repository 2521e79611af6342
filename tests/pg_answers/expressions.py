"""The expressions that Strandline and PostgreSQL are asked, by topic and by function or feature.

Every function and type that PostgreSQL 15 documents has its place here, also those that Strandline
refuses. An expression gives the same answer whenever it is asked.
"""

from collections import defaultdict

TOPICS = defaultdict(lambda: defaultdict(list))


def ask(topic, name, *expressions):
    for expression in expressions:
        group = TOPICS[topic][name]
        if expression not in group:
            group.append(expression)


def call(topic, name, *arguments):
    """name(arguments) for each."""
    ask(topic, name, *(f"{name}({a})" for a in arguments))


def topics():
    import questions  # noqa: F401  fills TOPICS
    return TOPICS
