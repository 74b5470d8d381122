#!/usr/bin/env python3
"""Draws the terminal of the README: starts an instance, runs commands of `svc` in it at a pseudo terminal, and writes what they print.

Arguments: the directory of the programs, and the picture to write.
"""

import fcntl
import html
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

COLUMNS = 100
PASSWORD = "correct-horse-battery-9"
# The form in which a search of a SIEM is exported.
EXPORT = [
    {"udm": {"metadata": {"eventType": "USER_LOGIN", "eventTimestamp": "2026-01-05T08:00:00Z"}, "principal": {"ip": ["192.0.2.7"]}}},
    {"udm": {"metadata": {"eventType": "NETWORK_DNS", "eventTimestamp": "2026-01-05T08:00:01Z"}, "principal": {"ip": ["192.0.2.7"]}}},
]
COMMANDS = [
    "svc auth login --email admin@demo.example --tenant demo",
    "svc events send -f search.json --source-id siem",
    "svc events tail --since 1h --no-follow",
    "svc auth sessions list",
]

LINE, CHARACTER, MARGIN = 20, 8.4, 16
STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; fill: #24292f }
.command { font-weight: bold; fill: #0b57d0 }
rect { fill: #f6f8fa; stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .command { fill: #79b8ff }
  rect { fill: #0d1117; stroke: #30363d }
}
"""


def main():
    programs, picture = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as directory:
        data, run_file = Path(directory, "data"), Path(directory, "standalone.json")
        up = [programs / "svc-standalone", "up", "--port", "0", "--data", data, "--run-file", run_file]
        instance = subprocess.Popen(up, stdout=subprocess.DEVNULL)
        try:
            while not run_file.exists():
                if instance.poll() is not None:
                    sys.exit("svc-standalone up failed")
                time.sleep(0.1)
            picture.write_text(drawing(list(session(programs, Path(directory), json.loads(run_file.read_text())))))
        finally:
            instance.terminate()
            instance.wait()
    print(picture)


def session(programs, directory, run):
    """Yields pairs of a line and whether it is a command."""
    Path(directory, "search.json").write_text(json.dumps(EXPORT))
    Path(directory, "token").write_text(run["admin_invite_token"])
    environment = {"HOME": str(directory), "PATH": f"{programs}:/usr/bin:/bin", "TERM": "xterm", "SVC_BASE_URL": run["base_url"]}
    accept = [programs / "svc", "users", "accept-invite", "--token-file", Path(directory, "token"), "--password-stdin"]
    subprocess.run(accept, input=PASSWORD, text=True, env=environment, check=True, stdout=subprocess.DEVNULL)
    for command in COMMANDS:
        yield command, True
        for line in at_terminal(command.split(), directory, environment).splitlines():
            # Such a terminal has no session of a desktop.
            if "keyring" not in line and str(directory) not in line:
                yield line.replace(run["base_url"], "http://localhost:8080"), False


def at_terminal(command, directory, environment):
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(directory)
        os.execvpe(command[0], command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    output, answered = "", False
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        output += part.decode()
        if output.startswith("Password") and output.endswith(": ") and not answered:
            os.write(terminal, f"{PASSWORD}\n".encode())
            answered = True
    if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) != 0:
        sys.exit(f"{' '.join(command)}:\n{output}")
    return output


def drawing(lines):
    rows = []
    for line, is_command in lines:
        text = f"$ {line}" if is_command else line
        for start in range(0, max(len(text), 1), COLUMNS):
            rows.append((text[start : start + COLUMNS], is_command))
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, len(rows) * LINE + 2 * MARGIN
    texts = (
        f'<text x="{MARGIN}" y="{MARGIN + LINE * index + 14}"{" class=" + chr(34) + "command" + chr(34) if is_command else ""}>'
        f"{html.escape(text)}</text>"
        for index, (text, is_command) in enumerate(rows)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" aria-label="Terminal with commands of svc">\n'
        f'<style>{STYLE}</style>\n<rect x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>\n'
        + "\n".join(texts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
