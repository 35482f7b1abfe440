# SPDX-License-Identifier: GPL-2.0
"""Ordinary programs as loads: how each is started, and how its report is read."""

import itertools
import json
import os
import re
import subprocess
import tempfile
import time

from smc_sockets import Sampler

HERE = os.path.dirname(os.path.abspath(__file__))
SMC_RUN = os.path.join(HERE, "../../tools/smc_run/smc_run")
# A server may not come back on a port with connections in TIME_WAIT: each has a new one.
PORTS = itertools.count(8000)


def listening(port):
    """Whether a TCP socket listens there; unlike a connection this leaves no trace."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(name, encoding="ascii") as file:
            if re.search(rf":{port:04X} [0-9A-F]+:0000 0A ", file.read()):
                return True
    return False


class Failure(Exception):
    """A program could not do its work."""


class Load:
    """A server, a client, and how to read the client's report."""

    unit = ""
    better = "higher"

    def __init__(self, name, seconds):
        self.name = name
        self.seconds = seconds
        self.folder = tempfile.mkdtemp()
        self.port = 0

    def server(self):
        raise NotImplementedError

    def client(self):
        raise NotImplementedError

    def read(self, output):
        """The figure and the number of errors in the client's output."""
        raise NotImplementedError

    def run(self, prefix, sample=True):
        """One round; the figure, the errors and the sockets seen, which takes a stack of SMC."""
        self.port = next(PORTS)
        with open(os.path.join(self.folder, "server.log"), "wb") as log:
            server = subprocess.Popen(prefix + self.server(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      cwd=self.folder)
        try:
            deadline = time.monotonic() + 60
            while not listening(self.port):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise Failure("server did not start: " + self.server_log())
                time.sleep(0.05)
            sampler = Sampler() if sample else None
            if sampler:
                if not (os.path.isdir("/sys/module/smc_diag") or os.path.isdir("/sys/module/smc_lo")):
                    raise Failure("no SMC stack is loaded")
                sampler.start()
            seen = {}
            try:
                client = subprocess.run(prefix + self.client(), stdin=subprocess.DEVNULL, capture_output=True,
                                        text=True, cwd=self.folder, check=False, timeout=self.seconds * 20 + 120)
            except subprocess.TimeoutExpired as error:
                raise Failure(f"client did not end: {error}") from error
            finally:
                if sampler:
                    seen = sampler.stop()
            if sampler and sampler.error:
                raise Failure(str(sampler.error))
            if client.returncode != 0:
                raise Failure(f"client left with {client.returncode}: {(client.stderr or client.stdout).strip()[-500:]}")
            value, errors = self.read(client.stdout)
            return value, errors, seen
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def server_log(self):
        with open(os.path.join(self.folder, "server.log"), encoding="utf-8", errors="replace") as file:
            return file.read().strip()[-500:]


def find(pattern, output):
    match = re.search(pattern, output)
    if not match:
        raise Failure(f"no figure in: {output.strip()[-500:]}")
    return match


class Nginx(Load):
    unit = "requests/s"

    def __init__(self, name, seconds, headers=()):
        super().__init__(name, seconds)
        self.headers = headers

    def server(self):
        path = os.path.join(self.folder, "nginx.conf")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"""daemon off; pid {self.folder}/pid; error_log {self.folder}/error.log; worker_processes 1;
                user root; events {{ worker_connections 1024; }}
                http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {self.folder}/a;
                proxy_temp_path {self.folder}/b; fastcgi_temp_path {self.folder}/c; uwsgi_temp_path {self.folder}/d;
                scgi_temp_path {self.folder}/e;
                server {{ listen 127.0.0.1:{self.port}; location / {{ return 200 "{'x' * 1000}"; }} }} }}""")
        return ["nginx", "-c", path]

    def client(self):
        headers = [part for header in self.headers for part in ("-H", header)]
        return ["wrk", "-t", "1", "-c", "8", "-d", f"{self.seconds}s", *headers, f"http://127.0.0.1:{self.port}/"]

    def read(self, output):
        errors = 0
        match = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
        if match:
            errors += sum(map(int, match.groups()))
        match = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
        if match:
            errors += int(match[1])
        return float(find(r"Requests/sec: +([\d.]+)", output)[1]), errors


class Redis(Load):
    unit = "requests/s"

    def __init__(self, name, seconds, command, clients=8, pipeline=1, requests=3000):
        super().__init__(name, seconds)
        self.command = command
        self.clients = clients
        self.pipeline = pipeline
        # Of the first round, which finds the number that fills the time.
        self.requests = requests

    def server(self):
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                "--io-threads", "1", "--dir", self.folder]

    def client(self):
        return ["redis-benchmark", "-h", "127.0.0.1", "-p", str(self.port), "-c", str(self.clients),
                "-P", str(self.pipeline), "-n", str(self.requests), "-t", self.command, "--csv"]

    def read(self, output):
        value = float(find(rf'(?i)"{self.command}","([\d.]+)"', output)[1])
        self.requests = max(1000, int(value * self.seconds))
        return value, len(re.findall(r"(?im)^.*error.*$", output))


class Sockperf(Load):
    def __init__(self, name, seconds, mode, size, unit, better, pattern):
        super().__init__(name, seconds)
        self.mode = mode
        self.size = size
        self.unit = unit
        self.better = better
        self.pattern = pattern

    def server(self):
        return ["sockperf", "server", "--tcp", "-i", "127.0.0.1", "-p", str(self.port)]

    def client(self):
        return ["sockperf", self.mode, "--tcp", "-i", "127.0.0.1", "-p", str(self.port), "-t", str(self.seconds),
                "-m", str(self.size)]

    def read(self, output):
        output = re.sub(r"\x1b\[[\d;]*m", "", output)
        # Dropped, duplicated or disordered messages, in the modes that count them.
        errors = sum(int(count) for found in re.findall(
            r"# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)", output)
            for count in found)
        return float(find(self.pattern, output)[1]), errors


class Iperf(Load):
    unit = "Gbit/s"

    def __init__(self, name, seconds, size=None):
        super().__init__(name, seconds)
        self.size = ["-l", str(size)] if size else []

    def server(self):
        return ["iperf3", "-s", "-B", "127.0.0.1", "-p", str(self.port), "--forceflush"]

    def client(self):
        return ["iperf3", "-c", "127.0.0.1", "-p", str(self.port), "-t", str(self.seconds), *self.size, "--json"]

    def read(self, output):
        report = json.loads(output)
        if report.get("error"):
            raise Failure(report["error"])
        return report["end"]["sum_received"]["bits_per_second"] / 1e9, 0
