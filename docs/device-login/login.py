"""Logs in by device code (RFC 8628) with requests-oauthlib. The address of the API and the tenant are arguments."""

import os
import sys
import time

from oauthlib.oauth2 import DeviceClient, OAuth2Error
from requests_oauthlib import OAuth2Session

api, tenant = sys.argv[1:]
if api.startswith(("http://localhost", "http://127.0.0.1")):
    os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
# The client id is the name that the page shows. Clients are not registered.
session = OAuth2Session(client=DeviceClient("python-example"))
response = session.post(f"{api}/auth/device/code", data={"client_id": session.client_id, "tenant_id": tenant})
response.raise_for_status()
codes = response.json()
print("Open", codes["verification_uri"], "and enter", codes["user_code"], flush=True)
token, interval = None, codes["interval"]
while token is None:
    time.sleep(interval)
    try:
        token = session.fetch_token(f"{api}/auth/device/token", device_code=codes["device_code"], include_client_id=True)
    except OAuth2Error as error:
        if error.error == "slow_down":
            interval += 5
        elif error.error != "authorization_pending":
            raise
print("Token:", token["access_token"])
