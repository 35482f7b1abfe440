#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Boots one guest and stays with it until its command has ended.

Run inside the lab root by scripts/vm. The guest's root is this root, read-only
under an overlay; the shared folder is a second file system, writable. Output,
exit status and kernel log come back through ports of a virtio serial device, so
that the kernel's console never mixes with what the command prints.
"""

import argparse
import contextlib
import ctypes
import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

FAILED = 125
TIMED_OUT = 124
COMPLAINT = 120

PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


def die_with_parent(sig=signal.SIGKILL):
    """Makes the kernel end this process when its parent is gone."""
    libc.prctl(PR_SET_PDEATHSIG, sig)


def fail(text):
    print(f"vm: {text}", file=sys.stderr)
    sys.exit(FAILED)


def arguments():
    parser = argparse.ArgumentParser()
    for name in "repo image modules kernel stack module accel cpus mem dir log append link plugin".split():
        parser.add_argument("--" + name, default="")
    parser.add_argument("--timeout", type=float, default=0)
    parser.add_argument("--icount", action="store_true")
    parser.add_argument("--shell", action="store_true")
    parser.add_argument("command", nargs="*")
    return parser.parse_args()


def type_in(keyboard):
    """Types what is on standard input, and then the end of it."""
    with contextlib.suppress(BrokenPipeError), keyboard:
        while data := sys.stdin.buffer.read1():
            keyboard.write(data)
            keyboard.flush()
        keyboard.write(b"\4")


class Machine:
    """One guest with its helper processes and private folder."""

    def __init__(self, args):
        self.args = args
        remove_leftovers()
        self.run = tempfile.mkdtemp(prefix=f"vm-{os.getpid()}-", dir="/run")
        self.children = []
        self.litter = []
        self.status = b""
        self.kmsg = bytearray()
        self.selector = selectors.DefaultSelector()
        self.listeners = {}

    def path(self, name):
        return os.path.join(self.run, name)

    def spawn(self, argv, **kwargs):
        child = subprocess.Popen(argv, preexec_fn=die_with_parent, **kwargs)
        self.children.append(child)
        return child

    def share(self, tag, directory, *options):
        """Starts a file server for `directory`; its arguments for qemu."""
        path = self.path(tag + ".sock")
        with open(self.path(tag + ".log"), "wb") as log:
            self.spawn(["/usr/libexec/virtiofsd", "--socket-path", path, "--shared-dir", directory,
                        "--sandbox", "none", "--seccomp", "none",
                        # With less caching small kernels lose pages of mapped programs.
                        "--cache", "always", "--no-announce-submounts", *options],
                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while not os.path.exists(path):
            if self.children[-1].poll() is not None or time.monotonic() > deadline:
                fail("virtiofsd did not start: " + open(self.path(tag + ".log")).read().strip())
            time.sleep(0.01)
        return ["-chardev", f"socket,id={tag},path={path}",
                "-device", f"vhost-user-fs-pci,chardev={tag},tag={tag}"]

    def port(self, name, sink):
        """A port of the guest whose bytes go to `sink`; its arguments for qemu."""
        path = self.path(name + ".port")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        self.listeners[name] = listener
        self.selector.register(listener, selectors.EVENT_READ, (name, sink))
        return ["-chardev", f"socket,id={name},path={path}",
                "-device", f"virtserialport,chardev={name},name={name}"]

    def describe(self):
        """What the guest's init reads: one shell file in the private folder."""
        args = self.args
        spec = {"DIR": args.dir, "REPO": args.repo, "MODULES": args.modules, "KERNEL": args.kernel,
                "STACK": args.stack, "MODULE": args.module, "SHELL": "1" if args.shell else "",
                "LINK": args.link, "TERM": os.environ.get("TERM", "dumb")}
        if args.shell and sys.stdin.isatty():
            size = os.get_terminal_size(sys.stdin.fileno())
            spec["ROWS"], spec["COLUMNS"] = str(size.lines), str(size.columns)
        with open(self.path("spec"), "w", encoding="utf-8") as file:
            for name, value in spec.items():
                file.write(f"LAB_{name}={shlex.quote(value)}\n")
            file.write("LAB_COMMAND=(" + " ".join(map(shlex.quote, args.command)) + ")\n")

    def qemu(self):
        args = self.args
        argv = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                "-kernel", args.image, "-smp", args.cpus, "-m", args.mem,
                "-object", f"memory-backend-memfd,id=mem,size={args.mem},share=on", "-numa", "node,memdev=mem",
                "-device", "virtio-serial-pci,max_ports=8",
                "-chardev", f"file,id=console,path={self.path('console')}", "-serial", "chardev:console"]
        if args.icount:
            argv += ["-accel", "tcg", "-icount", "shift=0,sleep=off", "-rtc", "clock=vm,base=2026-01-01",
                     "-seed", "1", "-cpu", "max,-erms,-fsrm,-fsrs,-la57"]
        elif args.accel == "kvm":
            argv += ["-accel", "kvm", "-cpu", "host"]
        else:
            # Live text patching, which the lab's own kernels do without, needs one thread.
            thread = "multi" if args.kernel in ("prod", "debug") else "single"
            argv += ["-accel", f"tcg,thread={thread}", "-cpu", "max,-erms,-fsrm,-fsrs,-la57"]
        if args.plugin:
            argv += ["-plugin", args.plugin]
        if args.link:
            name, side = args.link.split(":")
            here, there = (1, 2) if side == "a" else (2, 1)
            local = f"/lab/link/{name}.{here}"
            if os.path.exists(local):
                os.unlink(local)
            self.litter.append(local)
            argv += ["-netdev", f"dgram,id=link,local.type=unix,local.path={local},"
                                f"remote.type=unix,remote.path=/lab/link/{name}.{there}",
                     "-device", f"virtio-net-pci,netdev=link,mac=52:54:00:07:00:0{here}"]
        argv += self.share("root", "/", "--readonly")
        argv += self.share("work", args.dir)
        for name, sink in (("stdout", sys.stdout.buffer), ("stderr", sys.stderr.buffer),
                           ("status", None), ("kmsg", None)):
            argv += self.port(name, sink)
        if args.shell:
            argv += ["-chardev", "stdio,id=shell,signal=off", "-device", "virtconsole,chardev=shell"]
        append = ("console=ttyS0 loglevel=5 panic=-1 oops=panic log_buf_len=8M mitigations=off nokaslr "
                  "root=root rootfstype=virtiofs ro "
                  f"init={args.repo}/scripts/guest/init lab.run={self.run} {args.append}")
        if args.icount:
            append += " norandmaps"
        elif args.accel == "tcg":
            # A busy host stops a processor for seconds: no fault of the kernel's.
            append += " no_timer_check rcupdate.rcu_cpu_stall_timeout=180"
        argv += ["-append", append]
        errors = open(self.path("qemu.log"), "wb")
        if not args.shell:
            return self.spawn(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        if sys.stdin.isatty():
            return self.spawn(argv, stderr=errors)
        guest = self.spawn(argv, stdin=subprocess.PIPE, stderr=errors)
        threading.Thread(target=type_in, args=(guest.stdin,), daemon=True).start()
        return guest

    def pump(self, data, name, sink):
        if name == "status":
            self.status += data
        elif name == "kmsg":
            self.kmsg += data
        else:
            sink.write(data)
            sink.flush()

    def follow(self, qemu, deadline):
        """Moves bytes until the guest has reported, or died; true within the time limit."""
        while b"\n" not in self.status:
            left = deadline - time.monotonic() if deadline else 1
            if left <= 0:
                return False
            dead = qemu.poll() is not None
            events = self.selector.select(0 if dead else min(left, 1))
            for key, _ in events:
                name, sink = key.data
                if key.fileobj is self.listeners[name]:
                    connection, _ = key.fileobj.accept()
                    self.selector.register(connection, selectors.EVENT_READ, (name, sink))
                    continue
                data = key.fileobj.recv(65536)
                if data:
                    self.pump(data, name, sink)
                else:
                    self.selector.unregister(key.fileobj)
            if dead and not events:
                break
        return True

    def close(self):
        for child in reversed(self.children):
            if child.poll() is None:
                child.terminate()
        for child in self.children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self.run, ignore_errors=True)
        for path in self.litter:
            if os.path.exists(path):
                os.unlink(path)


def remove_leftovers():
    """Removes the folders of machines whose supervisor was killed."""
    for name in os.listdir("/run"):
        match = re.fullmatch(r"vm-(\d+)-\w+", name)
        if match and not os.path.exists("/proc/" + match[1]):
            shutil.rmtree(os.path.join("/run", name), ignore_errors=True)


def readable(kmsg):
    """The records of /dev/kmsg as dmesg prints them."""
    lines = []
    for record in kmsg.decode(errors="replace").splitlines():
        match = re.match(r"\d+,\d+,(\d+),[^;]*;(.*)", record)
        if match:
            text = re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), match[2])
            stamp = int(match[1])
            lines += [f"[{stamp // 1000000:5}.{stamp % 1000000:06}] {line}" for line in text.split("\n")]
    return "\n".join(lines) + "\n"


def main():
    args = arguments()
    die_with_parent(signal.SIGTERM)
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sig, lambda number, frame: sys.exit(128 + number))
    machine = Machine(args)
    try:
        machine.describe()
        qemu = machine.qemu()
        deadline = time.monotonic() + args.timeout if args.timeout and not args.shell else None
        in_time = machine.follow(qemu, deadline)
        with open(machine.path("console"), encoding="utf-8", errors="replace") as file:
            console = file.read().replace("\r\n", "\n")
        with open(args.log, "w", encoding="utf-8") as file:
            # A guest that died has not handed its log over; then the console has the end.
            file.write(readable(machine.kmsg) if machine.status else console)
        scan = subprocess.run([os.path.join(args.repo, "scripts/guest/klog-scan"), args.log],
                              stdout=sys.stderr.buffer, check=False)
        complained = scan.returncode != 0
        if complained:
            print(f"vm: the kernel complained; whole log: {args.log}", file=sys.stderr)
        if not in_time:
            print(f"vm: no end after {args.timeout:g} s; kernel log: {args.log}", file=sys.stderr)
            return TIMED_OUT
        if b"\n" not in machine.status:
            with open(machine.path("qemu.log"), encoding="utf-8", errors="replace") as file:
                reason = file.read().strip()
            print(f"vm: the machine stopped before its command had ended {reason}; kernel log: {args.log}",
                  *console.splitlines()[-12:], sep="\n    ", file=sys.stderr)
            return FAILED
        status = int(machine.status)
        return status or (COMPLAINT if complained else 0)
    finally:
        machine.close()


sys.exit(main())
