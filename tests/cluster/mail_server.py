"""Runs in a pod: a mail server (aiosmtpd) on PORT, without encryption.

It accepts user `svc` with each password in the file PASSWORDS, one per line. Prints the recipient of each accepted mail.
"""

import asyncio
import os
from pathlib import Path

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword


class Handler:
    async def handle_DATA(self, server, session, envelope):
        print(*envelope.rcpt_tos, sep="\n", flush=True)
        return "250 2.0.0 accepted"


def authenticate(server, session, envelope, mechanism, data):
    passwords = Path(os.environ["PASSWORDS"]).read_bytes().split()
    known = isinstance(data, LoginPassword) and data.login == b"svc" and data.password in passwords
    return AuthResult(success=known, handled=False)


async def main():
    loop = asyncio.get_running_loop()

    def connection():
        return SMTP(Handler(), loop=loop, hostname="mail.test", authenticator=authenticate, auth_required=True, auth_require_tls=False)

    server = await loop.create_server(connection, "0.0.0.0", int(os.environ["PORT"]))
    await server.serve_forever()


asyncio.run(main())
