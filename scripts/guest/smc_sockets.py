# SPDX-License-Identifier: GPL-2.0
"""What sock_diag says of the AF_SMC sockets of this network namespace."""

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
MODE_SMCD = 2
NOT_CONNECTED = {2, 7, 10}      # INIT, CLOSED, LISTEN


def smc_sockets():
    """The connected AF_SMC sockets as {inode: whether it is SMC-D}."""
    found = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as netlink:
        body = struct.pack("BBBB48x", AF_SMC, 0, 0, 0)
        netlink.send(struct.pack("IHHII", 16 + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0) + body)
        while True:
            data = netlink.recv(65536)
            while data:
                length, kind = struct.unpack_from("IH", data)
                if kind == NLMSG_ERROR:
                    raise OSError(-struct.unpack_from("i", data, 16)[0], "no sock_diag for AF_SMC")
                if kind == NLMSG_DONE:
                    return found
                _, state, mode, _ = struct.unpack_from("BBBB", data, 16)
                inode, = struct.unpack_from("Q", data, 16 + 4 + 48 + 4)
                if state not in NOT_CONNECTED and inode:
                    found[inode] = mode == MODE_SMCD
                data = data[(length + 3) & ~3:]


class Sampler(threading.Thread):
    """Looks at the sockets a few times a second while a load runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = {}
        self.error = None
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(0.2):
            try:
                for inode, smcd in smc_sockets().items():
                    # A socket that was once something else stays so counted.
                    self.seen[inode] = self.seen.get(inode, True) and smcd
            except OSError as error:
                self.error = error
                return

    def stop(self):
        self.ended.set()
        self.join()
        return self.seen
