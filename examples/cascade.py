"""Ask several served models in turn: two equal answers end it, and prose decides where all differ.

    python examples/cascade.py --trace URL#MODEL --trace URL#MODEL --trace URL#MODEL [--prose URL#MODEL] < questions.txt

A question a line. ``--trace`` names a model that writes short traces, such as one of three trainings of a method (``seed: 1, 2,
3``), each on an OpenAI-compatible server (``http://localhost:8000/v1#mine``). The first two are asked at once. Without prose
the first answer counts where all differ. A server that fails ends the program. Prints a JSON line for each question: the
answer, the models asked, and their tokens.
"""

import argparse
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI, OpenAIError

ENDS_REASONING = re.compile(r"</cirf>|</think>|####")  # where a server returns the reasoning in the text


def ask(place, question, max_tokens):
    """A model's greedy answer without its reasoning, empty if it has none, and the number of tokens of both."""
    url, _, model = place.partition("#")
    try:
        with OpenAI(base_url=url, api_key="none") as client:
            messages = [{"role": "user", "content": question}]
            made = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=max_tokens)
    except OpenAIError as error:
        raise SystemExit(f"{place}: {error}") from None
    if made.usage is None:
        raise SystemExit(f"{place}: its answers have no token count (usage.completion_tokens)")
    return ENDS_REASONING.split(made.choices[0].message.content or "")[-1].strip(), made.usage.completion_tokens


def cascade(question, traces, prose=None, max_tokens=512):
    """A dict of the ``answer``, the models ``asked`` and the ``tokens`` of all of them. ``traces`` are two models or more."""
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda place: ask(place, question, max_tokens), traces[:2]))
    for place in [*traces[2:], None]:
        answers = [answer for answer, _ in made if answer]
        agreed = [answer for answer in answers if answers.count(answer) > 1]
        if agreed or place is None:
            break
        made.append(ask(place, question, max_tokens))
    asked = list(traces[: len(made)])
    if not agreed and prose:
        made.append(ask(prose, question, max_tokens))
        asked.append(prose)
        answers.insert(0, made[-1][0])
    answer = next(filter(None, [*agreed, *answers]), "")
    return {"answer": answer, "asked": [place.partition("#")[2] for place in asked], "tokens": sum(count for _, count in made)}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", action="append", required=True, metavar="URL#MODEL")
    parser.add_argument("--prose", metavar="URL#MODEL")
    parser.add_argument("--max-tokens", type=int, default=512)
    given = parser.parse_args(arguments)
    if len(given.trace) < 2:
        parser.error("give --trace twice or more")
    for line in filter(str.strip, sys.stdin):
        print(json.dumps(cascade(line.strip(), given.trace, given.prose, given.max_tokens)), flush=True)


if __name__ == "__main__":
    main()
