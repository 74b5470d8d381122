// Finds the token of an e-mail in a text, also if mail programs have changed the text around it.

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const TOKEN = /(svc_(iv|pr)_[0-9A-Za-z]{43})_([0-9A-Za-z]{6})/g;

// CRC-32 (IEEE 802.3) as six digits, as the service computes it.
function checksum(content) {
  let crc = -1;
  for (const character of content) {
    crc ^= character.charCodeAt(0);
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  let number = ~crc >>> 0;
  let digits = "";
  for (let digit = 0; digit < 6; digit++) {
    digits = ALPHABET[number % 62] + digits;
    number = Math.floor(number / 62);
  }
  return digits;
}

function decoded(content) {
  try {
    return decodeURIComponent(content);
  } catch {
    return content;
  }
}

// Returns the first token with a correct checksum, and its kind. Lines of the text can be broken at any place.
export function findToken(content) {
  const joined = decoded(content).replace(/=?[\s\u00ad\u200b-\u200d\u2060\ufeff]+/g, "");
  for (const candidate of [content, joined]) {
    for (const [token, checked, kind, sum] of candidate.matchAll(TOKEN)) {
      if (checksum(checked) === sum) return { token, kind };
    }
  }
  return null;
}
