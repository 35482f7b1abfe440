# SPDX-License-Identifier: GPL-2.0
"""What sock_diag says of the AF_SMC sockets of this network namespace."""

import collections
import socket
import struct
import threading

# include/uapi/linux/sock_diag.h, smc_diag.h and the states of net/smc/smc.h.
AF_SMC = 43
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x1 | 0x300
NLMSG_DONE = 3
NLMSG_ERROR = 2
MODE_TCP = 1
MODE_SMCD = 2
NOT_CONNECTED = {2, 7, 10}      # INIT, CLOSED, LISTEN
SMC_DIAG_FALLBACK = 5

Socket = collections.namedtuple("Socket", "inode mode local remote reason")


def attributes(data):
    while len(data) >= 4:
        length, kind = struct.unpack_from("HH", data)
        yield kind, data[4:length]
        data = data[(length + 3) & ~3:]


def connected():
    """The connected AF_SMC sockets; those in TCP mode with the reason and the peer's reason."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as netlink:
        # The extension is asked for by the bit of its number less one.
        body = struct.pack("BxxB48x", AF_SMC, 1 << (SMC_DIAG_FALLBACK - 1))
        netlink.send(struct.pack("IHHII", 16 + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0) + body)
        while True:
            data = netlink.recv(65536)
            while data:
                length, kind = struct.unpack_from("IH", data)
                if kind == NLMSG_ERROR:
                    raise OSError(-struct.unpack_from("i", data, 16)[0], "no sock_diag for AF_SMC")
                if kind == NLMSG_DONE:
                    return
                _, state, mode, _, here, there, source, target = struct.unpack_from("BBBB2s2s16s16s", data, 16)
                inode, = struct.unpack_from("Q", data, 16 + 4 + 48 + 4)
                if state not in NOT_CONNECTED and inode:
                    more = dict(attributes(data[16 + 64:length]))
                    reason = struct.unpack_from("II", more[SMC_DIAG_FALLBACK]) if SMC_DIAG_FALLBACK in more else None
                    yield Socket(inode, mode, (source, here), (target, there), reason)
                data = data[(length + 3) & ~3:]


class Sampler(threading.Thread):
    """Looks at the sockets a few times a second while a load runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = {}
        # Of connections with an SMC socket at each end: whether SMC-D, and the reasons where it is not.
        self.pairs = {}
        self.error = None
        self.ended = threading.Event()

    def look(self):
        sockets = {found.local + found.remote: found for found in connected()}
        for found in sockets.values():
            smcd = found.mode == MODE_SMCD
            # A socket that was once something else stays so counted.
            self.seen[found.inode] = self.seen.get(found.inode, True) and smcd
            peer = sockets.get(found.remote + found.local)
            if peer and found.inode < peer.inode:
                both_tcp = found.mode == peer.mode == MODE_TCP
                self.pairs[found.inode, peer.inode] = (found.reason, peer.reason) if both_tcp else None

    def run(self):
        while not self.ended.wait(0.2):
            try:
                self.look()
            except OSError as error:
                self.error = error
                return

    def stop(self):
        self.ended.set()
        self.join()
        return self.seen
