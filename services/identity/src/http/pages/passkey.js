// Passkeys: the part of the browser in WebAuthn Level 3. Older browsers do not convert the JSON form of its messages.

const bytesOf = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const textOf = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
const descriptors = (list) => list.map((item) => ({ ...item, id: bytesOf(item.id) }));
const challengeOf = (options) => ({ ...options, challenge: bytesOf(options.challenge) });

// Browsers have passkeys at secure origins only.
export const isAvailable = () => Boolean(window.PublicKeyCredential && navigator.credentials);

// The service reads the key from a member that older browsers with passkeys lack.
export const canBeCreated = () =>
  isAvailable() && "getAuthenticatorData" in window.AuthenticatorAttestationResponse.prototype;

// Returns whether the browser can offer passkeys among its suggestions for a field.
export const canSuggest = async () =>
  isAvailable() && Boolean(await window.PublicKeyCredential.isConditionalMediationAvailable?.());

// The request that waits for the person. A browser has one at a time, so a new one replaces it.
let pending = null;

export function cancel() {
  pending?.abort();
  pending = null;
}

// Returns an assertion for request options. With the mediation `conditional`, the browser offers the passkeys among its suggestions.
export async function get(options, mediation) {
  cancel();
  const publicKey = { ...challengeOf(options), allowCredentials: descriptors(options.allowCredentials) };
  pending = new AbortController();
  const { id, response } = await navigator.credentials.get({ publicKey, mediation, signal: pending.signal });
  const [clientDataJSON, authenticatorData, signature] =
    [response.clientDataJSON, response.authenticatorData, response.signature].map(textOf);
  const userHandle = response.userHandle ? textOf(response.userHandle) : undefined;
  return { id, response: { clientDataJSON, authenticatorData, signature, userHandle } };
}

// Creates a passkey for creation options.
export async function create(options) {
  cancel();
  const user = { ...options.user, id: bytesOf(options.user.id) };
  const publicKey = { ...challengeOf(options), user, excludeCredentials: descriptors(options.excludeCredentials) };
  const { id, response } = await navigator.credentials.create({ publicKey });
  const [clientDataJSON, authenticatorData] = [response.clientDataJSON, response.getAuthenticatorData()].map(textOf);
  return { id, response: { clientDataJSON, authenticatorData } };
}
