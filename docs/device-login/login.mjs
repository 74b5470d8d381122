// Logs in by device code (RFC 8628) with openid-client. The address of the API and the tenant are arguments.
import * as client from "openid-client";

const [api, tenant] = process.argv.slice(2);
const server = {
  issuer: api,
  device_authorization_endpoint: `${api}/auth/device/code`,
  token_endpoint: `${api}/auth/device/token`,
};
// The client id is the name that the page shows. Clients are not registered.
const config = new client.Configuration(server, "node-example", undefined, client.None());
if (api.startsWith("http://localhost") || api.startsWith("http://127.0.0.1")) {
  client.allowInsecureRequests(config);
}
const codes = await client.initiateDeviceAuthorization(config, { tenant_id: tenant });
console.log("Open", codes.verification_uri, "and enter", codes.user_code);
const tokens = await client.pollDeviceAuthorizationGrant(config, codes);
console.log("Token:", tokens.access_token);
