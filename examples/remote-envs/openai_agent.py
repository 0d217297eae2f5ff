"""An agent that calls an OpenAI client, as a remote env. The agent is a function. Each request of the function for a chat completion becomes
an observation of the episode. The next action of the episode becomes the answer to this request.

    class Mine(AgentEpisode):
        def __init__(self, layout_seed, dynamics_seed, options):
            super().__init__(lambda base_url: {"reward": my_agent(OpenAI(base_url=base_url, api_key="none"), layout_seed), "success": …})

The function runs in a thread of its own. The function's client sends its requests to a port of this process on loopback. An observation has
what the request adds to the previous request: messages and results of tools. The first observation also has the tools. An action
NAME {"argument": value} is a call of a tool. The episode fails if the function raises, or neither sends a request nor returns for
seconds_max seconds. The server refuses streaming.
"""

import json
import os
import queue
import re
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOL_CALL = re.compile(r"([\w-]+)\s*(\{.*\})?", re.DOTALL)
TOOL_HINT = 'To call a tool, answer with its name and its arguments: NAME {"argument": value}. Any other answer ends the task.'
OVER = object()
BODY_BYTES_MAX = 1 << 24


class Question:
    def __init__(self, text):
        self.text = text
        self.answer = queue.Queue(1)


class AgentEpisode:
    actions = None
    seconds_max = 600.0

    def __init__(self, play):
        self.events = queue.Queue()
        self.name = uuid.uuid4().hex
        self.before = ([], [])
        self.calls = 0
        self.over = False
        self.question = None
        endpoint().episodes[self.name] = self
        threading.Thread(target=self.run, args=(play,), daemon=True).start()
        if self.wait() is not None:
            raise RuntimeError("the agent ended without a question to the policy")

    def run(self, play):
        try:
            self.events.put(checked(play(f"http://127.0.0.1:{endpoint().server_address[1]}/{self.name}/v1")))
        except Exception as error:
            self.events.put(error)
        except BaseException as error:  # such as SystemExit: without an event the episode would wait forever
            self.events.put(RuntimeError(f"the agent ended by {type(error).__name__}: {error}"))

    def wait(self):
        """Waits for the next question; returns the result if the function has ended instead."""
        try:
            event = self.events.get(timeout=self.seconds_max)
        except queue.Empty:  # a longer wait would keep the episode's lock and its place in the server
            event = TimeoutError(f"the agent neither asked nor ended in {self.seconds_max:g} s; raise seconds_max if the agent needs longer")
        if isinstance(event, Question):
            self.question = event
            return None
        self.close()
        if isinstance(event, Exception):
            raise event
        return event

    @property
    def observation(self):
        return "" if self.question is None else self.question.text

    def step(self, action):
        asked, self.question = self.question, None
        asked.answer.put(action)
        result = self.wait()
        return {"reward": 0.0, "done": False, "success": False} if result is None else {**result, "done": True}

    def close(self):
        """Ends the episode. Calls in progress and later calls of the client fail."""
        self.over = True
        endpoint().episodes.pop(self.name, None)
        if self.question is not None:
            self.question.answer.put(OVER)
        while not self.events.empty():
            event = self.events.get()
            if isinstance(event, Question):
                event.answer.put(OVER)

    def complete(self, body):
        """The body of the answer to a chat completion request; None if the episode is over."""
        tools = [tool["function"] for tool in body.get("tools") or []]
        question = Question(self.shown(body["messages"], tools))
        self.events.put(question)
        if self.over:
            return None
        action = question.answer.get()
        if action is OVER:
            return None
        self.calls += 1
        called = TOOL_CALL.fullmatch(action)
        message = {"role": "assistant", "content": action}
        if called is not None and called[1] in [tool["name"] for tool in tools]:
            function = {"name": called[1], "arguments": called[2] or "{}"}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": f"call-{self.calls}", "type": "function", "function": function}]}
        finish = "tool_calls" if "tool_calls" in message else "stop"
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        head = {"id": f"{self.name}-{self.calls}", "object": "chat.completion", "created": int(time.time()), "model": body.get("model", "policy")}
        return {**head, "choices": [choice], "usage": usage}

    def shown(self, messages, tools):
        seen, listed = self.before
        goes_on = len(seen) > 0 and messages[: len(seen)] == seen and len(messages) > len(seen)
        added = messages[len(seen) :] if goes_on else messages
        self.before = (messages, tools)
        texts = [text_of(message) for message in added if message["role"] != "assistant"]
        if tools and not (goes_on and tools == listed):
            lines = [f"{tool['name']}: {tool.get('description', '')} {json.dumps(tool.get('parameters', {}))}" for tool in tools]
            texts += ["Tools:", *lines, TOOL_HINT]
        return "\n".join(texts)


def text_of(message):
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    if any(part.get("type") != "text" for part in content):
        raise ValueError("a policy reads text only; a message has a part that is not text")
    return "".join(part["text"] for part in content)


def checked(result):
    """@returns the agent's result. An agent without a result fails the episode; a missing result does not count as a reward of 0."""
    if isinstance(result, dict) and "reward" in result and "success" in result:
        return result
    raise TypeError(f"the agent returned {result!r:.200}; return a dict with reward (a number) and success (a boolean)")


class Endpoint(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    episodes = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self):
        name, _, path = self.path.strip("/").partition("/")
        episode = self.server.episodes.get(name)
        length = self.headers.get("Content-Length", "")
        if episode is None or not length.isascii() or not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True  # the unread body would be parsed as the next request
            status, text = (410, "the episode is over") if episode is None else (413, f"a body has at most {BODY_BYTES_MAX} bytes")
            self.send(status, {"error": {"message": text}})
            return
        self.answer(episode, path, self.rfile.read(int(length)))

    def answer(self, episode, path, data):
        try:
            body = json.loads(data)
            if path != "v1/chat/completions" or body.get("stream"):
                raise ValueError("only chat completions without streaming are answered")
            answer = episode.complete(body)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self.send(400, {"error": {"message": f"{type(error).__name__}: {error}"}})
            return
        self.send(*((410, {"error": {"message": "the episode is over"}}) if answer is None else (200, answer)))

    def send(self, status, answer):
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


started = []
starting = threading.Lock()


def endpoint():
    with starting:
        if not started:
            for name in ("NO_PROXY", "no_proxy"):  # otherwise clients send requests to this port through HTTP_PROXY
                os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1"]))
            started.append(Endpoint(("127.0.0.1", 0), Handler))
            threading.Thread(target=started[0].serve_forever, daemon=True).start()
        return started[0]
