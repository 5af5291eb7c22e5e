#!/usr/bin/env python3
"""A name server for tests: answers questions for the IPv4 address of NAME from the file FOLDER/NAME, which may come and go.

Usage: name_server.py ADDRESS FOLDER     (UDP port 53; prints "ready" when it listens)
"""
import pathlib
import socket
import struct
import sys

NO_SUCH_NAME = 3
A = 1


def answer(question: bytes, folder: pathlib.Path) -> bytes:
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1:at + 1 + question[at]].decode("ascii").lower())
        at += 1 + question[at]
    (kind,) = struct.unpack_from("!H", question, at + 1)
    asked = question[12:at + 5]
    file = folder / ".".join(labels)
    address = file.read_text().strip() if file.is_file() else ""
    records = b""
    if address and kind == A:
        records = struct.pack("!HHHIH", 0xC00C, A, 1, 0, 4) + socket.inet_aton(address)
    # A response from the server that the name belongs to; recursion would be there.
    flags = 0x8580 | (0 if address else NO_SUCH_NAME)
    return question[:2] + struct.pack("!HHHHH", flags, 1, 1 if records else 0, 0, 0) + asked + records


def main():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[1], 53))
    print("ready", flush=True)
    while True:
        question, sender = server.recvfrom(1500)
        server.sendto(answer(question, pathlib.Path(sys.argv[2])), sender)


main()
