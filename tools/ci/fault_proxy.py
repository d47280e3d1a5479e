#!/usr/bin/env python3
"""fault_proxy.py PORT TO MILLISECONDS: a proxy of TCP connections of this host that delays and cuts them."""
import contextlib
import selectors
import signal
import socket
import sys
import threading
import time


def proxy(port, to, milliseconds):
    """Passes TCP connections on, each piece after a while. SIGUSR1 cuts all of them, SIGUSR2 those to come as well."""
    pairs, refuse = [], threading.Event()

    def cut(number, _):
        if number == signal.SIGUSR2:
            refuse.set()
        for pair in pairs:
            for s in pair:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
        pairs.clear()

    def serve(a, b):
        selector = selectors.DefaultSelector()
        for this, other in ((a, b), (b, a)):
            selector.register(this, selectors.EVENT_READ, other)
        with contextlib.suppress(OSError):
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(1 << 16)
                    if not data:
                        raise OSError
                    time.sleep(milliseconds / 1000)
                    key.data.sendall(data)
        for s in (a, b):
            s.close()

    signal.signal(signal.SIGUSR1, cut)
    signal.signal(signal.SIGUSR2, cut)
    with socket.create_server(("127.0.0.1", port)) as listener:
        print("ready", flush=True)
        while True:
            a, _ = listener.accept()
            try:
                if refuse.is_set():
                    raise OSError
                pairs.append((a, socket.create_connection(("127.0.0.1", to))))
            except OSError:
                a.close()
                continue
            threading.Thread(target=serve, args=pairs[-1], daemon=True).start()


if __name__ == "__main__":
    proxy(*map(int, sys.argv[1:]))
