"""Serves envs to Bunraku over HTTP. Needs only Python's standard library. docs/remote-envs.md has the protocol.

An env is a class. An instance of the class is one episode, and has

    observation   the current text for the agent
    actions       all actions of the episode, or None if any text is an action  (optional)
    admissible    the actions that are possible now, or None                    (optional)
    expert()      the action of a good player, or None                          (optional)
    step(action)  plays one action; returns a dict with reward, done, success and optionally valid, effective, extra
    close()       releases the resources of the episode                         (optional)

Episodes run concurrently in threads. An episode plays one action at a time.
"""

import argparse
import contextlib
import hmac
import json
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROTOCOL = 1
BODY_BYTES_MAX = 1 << 20
REQUESTS = ("open", "step", "close")


class Refused(Exception):
    """A request that the server cannot answer; the HTTP status gives the kind of the fault."""

    def __init__(self, message, status=400):
        super().__init__(message)
        self.status = status


class Episode:
    """An open episode, its last request, and the answer to this request. If a client repeats the request, the server repeats the answer."""

    def __init__(self):
        self.lock = threading.Lock()
        self.env = None
        self.request = None
        self.answer = None
        self.steps = 0
        self.done = False
        self.expert = False
        self.touched = time.monotonic()


class EnvServer:
    """The protocol without HTTP. `envs` maps names to makers: maker(layout_seed, dynamics_seed, options)."""

    def __init__(self, envs, episodes_max=4096, idle_seconds=600.0, clock=time.monotonic):
        self.envs = envs
        self.episodes_max = episodes_max
        self.idle_seconds = idle_seconds
        self.clock = clock
        self.episodes = {}
        self.lock = threading.Lock()

    def health(self):
        return {"protocol": PROTOCOL, "envs": list(self.envs)}

    def answer(self, kind, body):
        return {"open": self.open, "step": self.step, "close": self.close}[kind](body)

    def open(self, body):
        name = body.get("env") or next(iter(self.envs))
        maker = self.envs.get(name)
        if maker is None:
            raise Refused(f"no env named {name}; there are {', '.join(self.envs)}", 404)
        seeds = field(body, "layoutSeed", int), field(body, "dynamicsSeed", int)
        request = ("open", name, *seeds, json.dumps(body.get("options")))
        episode = self.reserve(field(body, "episode", str))
        with episode.lock:
            if self.episodes.get(body["episode"]) is not episode:
                raise Refused("this episode was closed, or failed, while it was opening", 409)
            if episode.request is not None:
                if episode.request != request:
                    raise Refused("this episode is open already; another episode needs another name", 409)
                return episode.answer
            episode.expert = body.get("expert") is True
            try:
                episode.env = maker(*seeds, body.get("options") or {})
                answer = {**self.seen(episode), "actions": getattr(episode.env, "actions", None)}
            except BaseException as error:  # also SystemExit, which would end this thread without an answer
                self.forget(body["episode"])
                with contextlib.suppress(BaseException):  # report the first error, not an error of close()
                    release(episode)
                raise broken(error) from error
            episode.request, episode.answer = request, answer
            return answer

    def step(self, body):
        name, number, action = field(body, "episode", str), field(body, "step", int), field(body, "action", str)
        episode = self.find(name)
        with episode.lock:
            request = ("step", number, action)
            if episode.request == request:
                return episode.answer
            if episode.env is None or number != episode.steps or episode.done:
                state = "is over" if episode.done else f"is at step {episode.steps}"
                raise Refused(f"episode {name} {state}; cannot play step {number}", 409)
            try:
                played = episode.env.step(action)
                episode.steps += 1
                episode.done = bool(played["done"])
                answer = {**played, **self.seen(episode)}
            except BaseException as error:
                episode.done = True
                raise broken(error) from error
            episode.touched = self.clock()
            episode.request, episode.answer = request, answer
            return answer

    def close(self, body):
        episode = self.forget(field(body, "episode", str))
        if episode is not None:
            with episode.lock:
                try:
                    release(episode)
                except BaseException as error:
                    raise broken(error) from error
        return {}

    def reserve(self, name):
        idle = []
        try:
            with self.lock:
                if name not in self.episodes:
                    if len(self.episodes) >= self.episodes_max:
                        idle = self.forget_idle()
                    if len(self.episodes) >= self.episodes_max:
                        raise Refused(f"{self.episodes_max} episodes are open, which is the limit", 429)
                    self.episodes[name] = Episode()
                    self.episodes[name].touched = self.clock()
                return self.episodes[name]
        finally:
            # Outside of `self.lock`, because the close() of an env may take long.
            for forgotten, episode in idle:
                try:
                    release(episode)
                except BaseException as error:  # also SystemExit, after which the other idle episodes would stay locked
                    print(f"warning: idle episode {forgotten}: close() raised {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                finally:
                    episode.lock.release()

    def find(self, name):
        with self.lock:
            if name not in self.episodes:
                raise Refused(f"episode {name} is not open here", 404)
            return self.episodes[name]

    def forget(self, name):
        with self.lock:
            return self.episodes.pop(name, None)

    def forget_idle(self):
        """Removes idle episodes, and returns them with their names and with their locks held. The caller releases episodes and locks."""
        oldest = self.clock() - self.idle_seconds
        idle = [(name, e) for name, e in self.episodes.items() if e.touched < oldest and e.lock.acquire(blocking=False)]
        for name, _ in idle:
            del self.episodes[name]
        return idle

    @staticmethod
    def seen(episode):
        env = episode.env
        expert = getattr(env, "expert", None) if episode.expert and not episode.done else None
        return {
            "observation": env.observation,
            "admissible": getattr(env, "admissible", None),
            "expert": None if expert is None else expert(),
        }


def release(episode):
    close = getattr(episode.env, "close", None)
    episode.env = None
    if close is not None:
        close()


def broken(error):
    """422 tells the client not to repeat the request: the env would raise the same error again."""
    return Refused(f"the env raised {type(error).__name__}: {error}", 422)


def field(body, name, kind):
    value = body.get(name) if isinstance(body, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Refused(f"{name} must be of type {kind.__name__}")
    return value


class HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        """Ignores a client that closes its connection between two requests."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def make_handler(server, token):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet; Nagle's algorithm would delay a second packet
        timeout = 120  # seconds of silence before a connection is closed
        unread = False

        def do_GET(self):
            self.serve(lambda: server.health() if self.path == "/health" else unknown(self.path))

        def do_POST(self):
            self.unread = True
            kind = self.path.strip("/")
            self.serve(lambda: server.answer(kind, self.body()) if kind in REQUESTS else unknown(self.path))

        def serve(self, answer):
            try:
                self.check_token()
                self.send(200, answer())
            except Refused as refused:
                self.send(refused.status, {"error": str(refused)})
            except ConnectionError:  # the client has closed the connection; if it needs the answer, it sends the request again
                self.close_connection = True
            except Exception as error:
                self.send(500, {"error": f"{type(error).__name__}: {error}"})

        def check_token(self):
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if token is not None and not hmac.compare_digest(given.encode(), token.encode()):
                raise Refused("this server needs a token: Authorization: Bearer TOKEN", 401)

        def body(self):
            length = self.headers.get("Content-Length", "")
            if not length.isascii() or not length.isdigit():
                raise Refused("a body needs its Content-Length", 411)
            length = int(length)
            if length > BODY_BYTES_MAX:
                raise Refused(f"a body of {length} bytes; {BODY_BYTES_MAX} are allowed", 413)
            data = self.rfile.read(length)
            self.unread = False
            try:
                body = json.loads(data)
            except ValueError as error:
                raise Refused(f"the body is no JSON: {error}") from error
            if not isinstance(body, dict):
                raise Refused("the body must be an object")
            return body

        def send(self, status, answer):
            # JSON has no NaN, no Infinity and no types of numpy. The status is 422, because the env would return the same value again.
            try:
                text = json.dumps(answer, allow_nan=False)
            except (TypeError, ValueError) as error:
                status, text = 422, json.dumps({"error": f"the env returned what JSON cannot hold: {error}"})
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if self.unread:  # the unread body would be parsed as the next request
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

        def log_message(self, *_):
            pass

    return Handler


def unknown(path):
    raise Refused(f"nothing at {path}; there are /health, /open, /step and /close", 404)


def main(envs, description, parser=None):
    """Serves `envs` until the process ends. The first line of output is the server's address. `envs` is a dict of makers by name, or a
    function that makes such a dict from the arguments."""
    parser = parser or argparse.ArgumentParser()
    parser.description = description
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; any address except loopback needs a token")
    parser.add_argument("--port", type=int, default=7100, help="0 picks a free port")
    parser.add_argument("--token-variable", help="environment variable that holds the token which clients must send")
    parser.add_argument("--episodes-max", type=int, default=4096, help="maximum number of open episodes")
    arguments = parser.parse_args()
    token = os.environ.get(arguments.token_variable) if arguments.token_variable else None
    if arguments.token_variable and not token:
        parser.error(f"the environment variable {arguments.token_variable} is not set")
    if token is None and arguments.host not in ("127.0.0.1", "localhost", "::1"):
        parser.error(f"{arguments.host} is open to other machines: set --token-variable, or keep 127.0.0.1")
    server = EnvServer(envs(arguments) if callable(envs) else envs, arguments.episodes_max)
    is_ipv6 = ":" in arguments.host
    HttpServer.address_family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    try:
        http = HttpServer((arguments.host, arguments.port), make_handler(server, token))
    except (OSError, OverflowError) as error:
        parser.error(f"cannot listen on {arguments.host}:{arguments.port}: {error}; choose another --port, or 0 for a free one")
    host = f"[{arguments.host}]" if is_ipv6 else arguments.host
    print(f"http://{host}:{http.server_address[1]}", flush=True)
    try:
        http.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)
