#!/usr/bin/env python3
"""A name server for tests: answers questions for the IPv4 address of NAME from the file FOLDER/NAME, which may come and go.

The file has the address and, if the answer is to be slow, a number of seconds. Usage: name_server.py ADDRESS FOLDER
(UDP port 53; prints "ready" when it listens, then a line "TIME NAME ASKER" for each question for an IPv4
address)
"""
import pathlib
import socket
import struct
import sys
import threading
import time

NO_SUCH_NAME = 3
A = 1


def answer(question: bytes, asker: str, folder: pathlib.Path) -> tuple[bytes, float]:
    """The response, and the seconds after which it is due."""
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1:at + 1 + question[at]].decode("ascii").lower())
        at += 1 + question[at]
    (kind,) = struct.unpack_from("!H", question, at + 1)
    asked = question[12:at + 5]
    file = folder / ".".join(labels)
    address, delay = [*(file.read_text() if file.is_file() else "").split(), "", "0"][:2]
    if kind == A:
        print(f"{time.monotonic():.2f}", file.name, asker, flush=True)
    records = b""
    if address and kind == A:
        records = struct.pack("!HHHIH", 0xC00C, A, 1, 0, 4) + socket.inet_aton(address)
    # A response from the server that the name belongs to; recursion would be there.
    flags = 0x8580 | (0 if address else NO_SUCH_NAME)
    response = question[:2] + struct.pack("!HHHHH", flags, 1, 1 if records else 0, 0, 0) + asked + records
    return response, float(delay or 0)


def main():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[1], 53))
    print("ready", flush=True)
    while True:
        question, sender = server.recvfrom(1500)
        response, delay = answer(question, sender[0], pathlib.Path(sys.argv[2]))
        threading.Timer(delay, server.sendto, (response, sender)).start()


main()
