"""The trial's side of a Lockstep gate, in the Python standard library.

A trial that lives in the bubbles of another job asks before each quantum:

    gate = Gate(settle=torch.cuda.synchronize)
    while gate.wait(0.004):         # a step of this trial takes at most 4 ms
        step()

wait returns True when a quantum of that many seconds may start now, and blocks until
then. It returns False when the supervisor has gone: then the trial must not run. Before
it blocks it calls settle, which has to return only when the device has nothing queued,
and tells the supervisor that the trial is quiet.

The protocol, one line of printable ASCII a message, 256 bytes at the most:

    hook        hello 1 gate NAME
    supervisor  welcome 1 NOW            or: refuse WORD
    supervisor  open EPOCH SERIAL UNTIL  the trial may run until UNTIL
    supervisor  close EPOCH SERIAL       the trial may not run
    hook        quiet SERIAL QUANTA END  nothing runs under SERIAL any more; QUANTA
                                         were run since the last quiet, the last until END

NOW, UNTIL and END are nanoseconds of CLOCK_MONOTONIC. A trial starts quiet. It runs only
between open and UNTIL, so it stops by itself when no supervisor is left to say close.
After quiet it does not run until a message with a larger SERIAL opens the gate. It
answers every message with quiet, at the latest when it stops. Other verbs are ignored.
"""

import os
import socket
import time

MAX_LINE = 256


class Gate:
    def __init__(self, path=None, name=None, settle=None, timeout=30.0):
        path = path or os.environ["LOCKSTEP_GATE"]
        name = name or os.environ["LOCKSTEP_TRIAL"]
        self._settle = settle
        self._rest = b""
        self._epoch = self._serial = self._until = self._quanta = self._end = 0
        self._open = self._owed = self._loud = False
        deadline = time.monotonic() + timeout
        while True:
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._sock.connect(path)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                self._sock.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._send("hello 1 gate " + name)
        answer = (self._line(True) or "").split()
        if len(answer) < 3 or answer[:2] != ["welcome", "1"]:
            raise ConnectionError("the gate says: " + " ".join(answer))
        if time.monotonic_ns() < int(answer[2]):
            raise ConnectionError("this clock is behind the supervisor's")

    def wait(self, seconds=0.0):
        """Blocks until a quantum may start. False: never again."""
        need = int(seconds * 1e9)
        if self._loud:
            self._end = time.monotonic_ns()
        try:
            while True:
                while (line := self._line(False)) is not None:
                    self._take(line)
                if self._open and time.monotonic_ns() + need <= self._until:
                    self._loud = True
                    self._quanta += 1
                    return True
                self._quiet()
                self._take(self._line(True))
        except OSError:
            self._open = False
            return False

    def _take(self, line):
        words = line.split(" ")
        if words[0] not in ("open", "close"):
            return
        epoch, serial = int(words[1]), int(words[2])
        if serial <= self._serial or epoch < self._epoch:
            return
        self._epoch, self._serial, self._owed = epoch, serial, True
        self._open = words[0] == "open"
        if self._open:
            self._until = int(words[3])

    def _quiet(self):
        if self._loud and self._settle:
            self._settle()
            self._end = time.monotonic_ns()
        self._open = False
        if self._loud or self._owed:
            self._send("quiet %d %d %d" % (self._serial, self._quanta, self._end))
            self._loud, self._owed, self._quanta = False, False, 0

    def _send(self, line):
        self._sock.sendall(line.encode("ascii") + b"\n")

    def _line(self, block):
        """The next line; None if none has arrived whole and block is false."""
        while b"\n" not in self._rest:
            if len(self._rest) >= MAX_LINE:
                raise ConnectionError("a line is too long")
            try:
                flags = 0 if block else socket.MSG_DONTWAIT
                got = self._sock.recv(MAX_LINE, flags)
            except BlockingIOError:
                return None
            if not got:
                raise ConnectionError("the supervisor has gone")
            self._rest += got
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode("ascii")
