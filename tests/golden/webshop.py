"""Vectors of WebShop's own code: pages, clickable labels, goals, products and rewards of a small catalog.

    pip install flask beautifulsoup4 thefuzz numpy
    python tests/golden/webshop.py CHECKOUT > tests/golden/webshop.json

CHECKOUT is a clone of github.com/princeton-nlp/WebShop. Its Lucene is replaced by a list of results (recorded with each search) and
its spaCy by one to which every word of letters is a noun; all else runs as it is.
"""

import json
import random
import sys
import tempfile
import types
from pathlib import Path

out, sys.stdout = sys.stdout, sys.stderr  # the shop talks while it opens
checkout = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(checkout))


def item(number, name, **more):
    base = dict(
        asin=f"B{number:09d}",
        name=name,
        full_description=f"About {name}.",
        small_description=[f"First point of {name}", "Second point"],
        pricing="$10.99",
        customization_options={},
        category="fashion",
        query="Men's Shirts ",
        product_category="Clothing › Men › Shirts",
        images=["x.jpg"],
    )
    return {**base, **more}


ITEMS = [
    item(
        1,
        "Alder Classic Men's Shirt, Machine Wash",
        customization_options={
            "Color": [{"value": "Navy Blue", "image": None}, {"value": " Black/White "}],
            "Size": [{"value": "Small"}, {"value": "X-Large"}],
            "Fit": None,
        },
    ),
    item(2, "Birch Slim Shirt <b>&amp; Tie</b>", pricing="$1,299.50"),
    item(3, "Cedar Socks", pricing="$15.0$20.50", small_description="One point only"),
    item(4, "Dune Lamp", pricing="", product_category="Home › Light › Lamps", query="lamps", category="garden"),
    item(5, "Elm Desk", pricing=None, full_description="", product_category="Home › Office › Desks", query="desks"),
    item(1, "Listed Twice"),
    item(6, "Too Long An Id", asin="B0000000000006"),
] + [item(number, f"Shirt Number {number}") for number in range(7, 22)]

ATTRIBUTES = {
    "B000000001": dict(
        attributes=["machine wash", "long sleeve"],
        instruction="Find me machine wash shirts",
        instruction_attributes=["machine wash", "long sleeve"],
    ),
    "B000000002": dict(attributes=["slim fit"], instruction="Find me slim fit shirts", instruction_attributes=["slim fit"]),
    "B000000003": dict(attributes=["warm wool"], instruction=None, instruction_attributes=None),
    **{
        f"B{number:09d}": dict(instruction=None, instruction_attributes=None)
        for number in [4, 5, 6, *range(7, 22)]
    },
}


def module(name, **contents):
    made = types.ModuleType(name)
    made.__dict__.update(contents)
    sys.modules[name] = made
    return made


class Searcher:
    """Results in the order of the file: those whose name has a word of the query."""

    def __init__(self, path):
        pass

    def search(self, query, k):
        words = set(query.split())
        found = [i["asin"] for i in ITEMS if words & set(i["name"].lower().replace(",", "").split())]
        asins = list(dict.fromkeys(a for a in found if len(a) <= 10))[:k]
        return [types.SimpleNamespace(docid=asin) for asin in asins]

    def doc(self, docid):
        return types.SimpleNamespace(raw=lambda: json.dumps({"id": docid}))


def nouns(text):
    return [types.SimpleNamespace(text=word, pos_="NOUN" if word.isalpha() else "X") for word in text.split()]


def quiet(*_, **__):
    pass


module("cleantext")
module("rank_bm25", BM25Okapi=None)
module("gym", Env=object)
module("torch")
module("pyserini")
module("pyserini.search")
module("pyserini.search.lucene", LuceneSearcher=Searcher)
module("spacy", load=lambda _: nouns)
module("rich", print=quiet)
module("tqdm", tqdm=lambda items, **_: items)

folder = Path(tempfile.mkdtemp())
for name, contents in (("items_shuffle_1000", ITEMS), ("items_ins_v2_1000", ATTRIBUTES), ("items_human_ins", {})):
    (folder / f"{name}.json").write_text(json.dumps(contents))

import web_agent_site.utils as utils  # noqa: E402

utils.DEFAULT_ATTR_PATH = str(folder / "items_ins_v2_1000.json")
utils.HUMAN_ATTR_PATH = str(folder / "items_human_ins.json")

# The __init__ of web_agent_site.envs registers with gym and starts a browser.
module("web_agent_site.envs", __path__=[str(checkout / "web_agent_site" / "envs")])
import web_agent_site.envs.web_agent_text_env as text_env  # noqa: E402
from web_agent_site.engine import engine, goal as goals  # noqa: E402

random.seed(0)
path = str(folder / "items_shuffle_1000.json")
products, by_asin, prices, _ = engine.load_products(path, human_goals=False)
made = goals.get_goals(products, prices, human_goals=False)
env = text_env.WebAgentTextEnv(observation_mode="text", file_path=path, human_goals=False, session="0")


def visit(goal, script, show_attrs=False):
    env.server.goals = [goal]
    env.server.show_attrs = show_attrs
    env.server.user_sessions.clear()
    env.reset(session=0)
    seen = [dict(observation=env.observation, **env.get_available_actions())]
    for action in script:
        _, reward, done, _ = env.step(action)
        results = None
        session = env.server.user_sessions["0"]
        if action.startswith("search["):
            results = [hit.docid for hit in Searcher("").search(action[7:-1].lower(), 50)]
        page = dict(action=action, observation=env.observation, reward=reward, done=done, results=results)
        seen.append({**page, **env.get_available_actions(), "options": dict(session["options"])})
    return dict(goal=goal, show_attrs=show_attrs, pages=seen)


VISITS = [
    (0, ["search[Shirt]", "click[Next >]", "click[next >]", "click[< prev]", "click[b000000014]", "click[< Prev]"], False),
    (
        0,
        ["search[classic]", "click[B000000001]", "click[navy blue]", "click[x-large]", "click[description]", "click[< prev]"]
        + ["click[features]", "click[< prev]", "click[reviews]", "search[cedar]", "click[b000000003]", "click[features]"],
        False,
    ),
    (0, ["click[nothing]", "dance", "click[search]", "search[classic men's]", "click[b000000001]", "click[attributes]"], True),
    (0, ["search[slim]", "click[b000000002]", "click[back to search]", "search[nothing at all]", "click[next >]"], False),
    (0, ["search[dune elm]", "click[b000000005]", "click[description]"], False),
    (1, ["search[classic]", "click[b000000001]", "click[black | white]", "click[small]", "click[buy now]"], False),
    (4, ["search[dune]", "click[b000000004]", "click[buy now]"], False),
]

PURCHASES = [
    ("B000000001", ["navy blue", "small"]),
    ("B000000001", ["black | white", "x-large"]),
    ("B000000001", []),
    ("B000000002", []),
    ("B000000003", []),
    ("B000000004", []),
    ("B000000007", ["blue"]),
]


def reward(asin, options, goal):
    named = {str(i): value for i, value in enumerate(options)}
    total, info = goals.get_reward(by_asin[asin], goal, price=prices[asin], options=named, verbose=True)
    return dict(asin=asin, options=options, goal=goal, price=prices[asin], total=total, info=info)


KEEP = ["asin", "Title", "Description", "BulletPoints", "Price", "options", "Attributes", "query", "product_category", "category"]
print(
    json.dumps(
        dict(
            items=ITEMS,
            attributes=ATTRIBUTES,
            products=[{key: product[key] for key in KEEP} for product in products],
            goals=made,
            visits=[visit(made[number], script, attrs) for number, script, attrs in VISITS],
            rewards=[reward(asin, options, goal) for asin, options in PURCHASES for goal in made],
        ),
        ensure_ascii=False,
        indent=1,
    ),
    file=out,
)
