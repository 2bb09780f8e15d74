"""The job's side of a Lockstep checkpoint, in the Python standard library (3.8 or later).

    hook = Hook(save)                        # one for each rank; save(path, progress) writes a file
    signal.signal(signal.SIGTERM, lambda n, frame: hook.notice(n))    # a flag, and no more
    while hook.next(step):                   # before each step, on every rank
        train(step); step += 1

next returns True when the step may run and False when the loop is to be left: then exit. It
blocks while the host holds the rank. All ranks are held before the same step, so nobody
waits in a collective for one that has left. The save is called by next, in the loop, never
in a signal handler; it may call progress(done, total), in bytes. It gets a name beside the
place; the hook syncs the file, sums it up and renames it: there is a whole image or none. If
the host goes away the rank goes on, and looks for it again once a second. The messages are in doc.go.
"""
import errno, hashlib, os, select, socket, time
from urllib.parse import unquote_to_bytes

NOW = time.monotonic_ns
# How many numbers follow each verb of the host.
NUMBERS = dict(step=1, prepare=4, hold=2, snapshot=2, commit=2, abort=2, resume=1, terminate=1)


class Hook:
    def __init__(self, save, path=None, rank=None, committed=None, timeout=30.0):
        self.path = path or os.environ["LOCKSTEP_CHECKPOINT"]
        self.rank = int(os.environ.get("LOCKSTEP_RANK") or os.environ["RANK"]) if rank is None else rank
        self.save, self.committed = save, committed
        self.sock = self.due = self.stored = None
        self.held = self.left = False
        self.step = self.until = self.signal = 0
        deadline = NOW() + int(timeout * 1e9)
        while not self._connect():
            if self.refused or NOW() > deadline:
                raise ConnectionError("no host at %s: %s" % (self.path, self.refused))
            time.sleep(0.02)

    def notice(self, number):             # for a signal handler: the host hears of it at the next step
        self.signal = number

    def next(self, step):
        self.step = step
        while not self.left:
            if self.sock is None and (NOW() - self.tried < 10**9 or not self._connect()):
                return True
            try:
                number, self.signal = self.signal, 0
                if number:
                    self._say("notice", number)
                while self._ready(0):
                    self._take(*self._line().split(" "))
                self._arrive()
                if not self.held:
                    return not self.left
                if self._ready(max(self.until - NOW(), 0) / 1e9):
                    self._take(*self._line().split(" "))
                else:                     # the host was not heard of for too long
                    self.held = False
                    self._say("resumed", 0, step)
            except (OSError, ValueError, IndexError, TypeError):      # it has gone, or talks nonsense
                self.sock.close()
                self.sock, self.due, self.held = None, None, False
        return False

    def _arrive(self):
        if self.due and not self.held:
            serial, at, by, hold = self.due
            late = NOW() > by
            if late or at and self.step > at:
                self.due = self._say("refuse", serial, "late" if late else "passed")
            elif at in (0, self.step):
                self.due, self.held, self.until = None, True, NOW() + hold
                self._say("ready", serial, self.step)

    def _take(self, verb, *args):
        if verb not in NUMBERS:               # of a later version
            return
        if len(args) < NUMBERS[verb] or not all(word.isdigit() for word in args[:NUMBERS[verb]]):
            raise ValueError("a message lacks words")
        serial, args = args[0], args[1:]
        if verb == "step":
            self._say("step", serial, self.step)
        elif verb == "hold":
            self.until = max(self.until, int(args[0]))
        elif verb == "prepare" and not self.held:
            self.due = serial, int(args[0]), int(args[1]), int(args[2])
        elif verb == "prepare":
            self._say(*(("ready", serial, self.step) if int(args[0]) in (0, self.step) else ("refuse", serial, "state")))
        elif verb == "snapshot":
            self._snapshot(serial, args[0], unquote_to_bytes(args[1])) if self.held else self._say("refuse", serial, "state")
        elif verb == "commit":
            self.committed and self.committed(int(args[0]))
            self._say("done", serial)
        elif verb in ("resume", "abort", "terminate"):
            if verb == "abort" and self.stored and self.stored[0][0] == args[0]:
                self.stored = None
            self.due, self.held, self.left = None, False, verb == "terminate"
            self._say("leaving" if self.left else "resumed", serial, self.step)

    def _snapshot(self, serial, epoch, place):
        key, begin, part = (epoch, place, self.step), NOW(), place + b".part"
        try:
            if not self.stored or self.stored[0] != key:              # else it says the same again
                self.stored, total = None, hashlib.sha256()
                self.save(os.fsdecode(part), lambda done, total=0: self._say("progress", serial, int(done), int(total)))
                os.chmod(part, 0o600)
                with open(part, "rb") as f:
                    for block in iter(lambda: f.read(1 << 20), b""):
                        total.update(block)
                    os.fsync(f.fileno())
                    length = f.tell()
                os.rename(part, place)
                folder = os.open(os.path.dirname(place), os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)
                self.stored = key, (length, total.hexdigest(), NOW() - begin)
        except Exception as e:            # whatever it is, nothing was saved
            if os.path.exists(part):
                os.remove(part)
            return self._say("refuse", serial, "space" if getattr(e, "errno", 0) in (errno.ENOSPC, errno.EDQUOT) else "save")
        self._say("stored", serial, self.step, *self.stored[1])

    def _connect(self):
        self.tried, self.rest, self.refused = NOW(), b"", ""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(2)
        try:
            self.sock.connect(self.path)
            self._say("hello", 1, "checkpoint", self.rank)
            self.refused = self._line()
            words = self.refused.split(" ")
            if words[:2] == ["welcome", "1"] and NOW() >= int(words[2]):
                return True
        except (OSError, ValueError, IndexError):
            pass
        self.sock = self.sock.close()
        return False

    def _say(self, *words):
        self.sock.sendall(" ".join(map(str, words)).encode("ascii") + b"\n")

    def _ready(self, seconds):
        return b"\n" in self.rest or bool(select.select([self.sock], [], [], seconds)[0])

    def _line(self):
        while b"\n" not in self.rest:
            got = self.sock.recv(256)
            if not got or len(self.rest) > 256:
                raise ConnectionError("the host has gone")
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode("ascii")
