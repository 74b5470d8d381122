#!/usr/bin/env python3
"""A mail server for tests, built on aiosmtpd. It stores each accepted mail as a JSON file, parsed by the standard library.

    smtp_server.py DIRECTORY PORT ENCRYPTION CERTIFICATE KEY

Listens on loopback (port 0: any free port) and writes the port to DIRECTORY/port. ENCRYPTION is tls, starttls or none. With
encryption it requires user `svc` and the password in DIRECTORY/password, by default `p:w/d`. The local part of the recipient selects the behaviour: `refused` (550),
`deferred` (451), `unwanted` (554 after DATA), `silent` (no reply to DATA), `late…` (accepted, but no reply to DATA), `clinging` (accepted, but no reply to QUIT),
`parrot` (554 with a word of the mail that contains `svc_`), `slow…` (no reply to DATA until the file DIRECTORY/open exists).
"""

import asyncio
import email
import email.policy
import json
import ssl
import sys
from pathlib import Path

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword


class Handler:
    def __init__(self, directory):
        self.directory = directory
        self.count = len(list(directory.glob("*.json")))

    async def handle_RCPT(self, server, session, envelope, address, options):
        self.note(f"RCPT {address}")
        name = address.split("@")[0]
        if name == "refused":
            return f"550 5.1.1 <{address}>: mailbox unavailable"
        if name == "deferred":
            return "451 4.7.1 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        name = envelope.rcpt_tos[0].split("@")[0]
        if name == "silent":
            await asyncio.Event().wait()
        while name.startswith("slow") and not (self.directory / "open").exists():
            await asyncio.sleep(0.01)
        if name == "unwanted":
            return "554 5.7.1 message rejected"
        if name == "parrot":
            said = envelope.content.decode("ascii", "replace")
            return "554 5.6.0 " + next(word for word in said.split() if "svc_" in word)[:400]
        self.keep(server, session, envelope)
        if name.startswith("late"):
            await asyncio.Event().wait()
        return "250 2.0.0 accepted"

    def authenticate(self, server, session, envelope, mechanism, data):
        changed = self.directory / "password"
        password = changed.read_bytes() if changed.exists() else b"p:w/d"
        known = isinstance(data, LoginPassword) and (data.login, data.password) == (b"svc", password)
        return AuthResult(success=known, handled=False, auth_data=data.login if known else None)

    async def handle_QUIT(self, server, session, envelope):
        if getattr(session, "clings", False):
            await asyncio.Event().wait()
        return "221 Bye"

    def keep(self, server, session, envelope):
        session.clings = envelope.rcpt_tos[0].startswith("clinging")
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        single = (part for part in message.walk() if not part.is_multipart())
        parts = {part.get_content_type(): part.get_content().replace("\r\n", "\n") for part in single}
        kept = {
            "hello": session.host_name, "tls": server.transport.get_extra_info("sslcontext") is not None, "user": (session.auth_data or b"").decode(),
            "from": envelope.mail_from, "to": envelope.rcpt_tos, "options": envelope.mail_options, "parts": parts,
            "type": message.get_content_type(), "headers": [[name, str(value)] for name, value in message.items()],
            "defects": [f"{name}: {defect!r}" for name, value in message.items() for defect in value.defects],
            "raw": envelope.content.decode("utf-8", "backslashreplace"),
        }  # fmt: skip
        self.count += 1
        part = self.directory / f".{self.count}"
        part.write_text(json.dumps(kept))
        part.rename(self.directory / f"{self.count:04}.json")

    def note(self, line):
        with (self.directory / "log").open("a") as log:
            log.write(line + "\n")


async def serve(directory, port, encryption, certificate, key):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    handler = Handler(directory)
    starttls = encryption == "starttls"

    loop = asyncio.get_running_loop()

    def connection():
        return SMTP(
            handler, loop=loop, hostname="mail.test", enable_SMTPUTF8=True, authenticator=handler.authenticate,
            tls_context=tls if starttls else None, require_starttls=starttls,
            auth_required=encryption != "none", auth_require_tls=starttls,
        )  # fmt: skip

    outer = tls if encryption == "tls" else None
    server = await loop.create_server(connection, "127.0.0.1", port, ssl=outer)
    part = directory / ".port"
    part.write_text(str(server.sockets[0].getsockname()[1]))
    part.rename(directory / "port")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
