//! Recipes: how a random match becomes a valid token of its kind.

use super::Seeded;
use crate::anchors::percent;
use crate::decode::{encode_base64, encode_base64_url};
use crate::validate::{
    self, Verdict, base36_crc, base62_crc, bech32_checksum, crc16_xmodem, to_bech32,
};

/// Turns a random match into a valid token; `None` asks for another draw.
pub(super) type Recipe = fn(Vec<u8>, &mut Seeded) -> Option<Vec<u8>>;

const RECIPES: [(&str, Recipe); 32] = [
    ("regex", |text, _| Some(text)),
    ("crc32-base62", crc32_base62),
    ("github-fine-grained", |text, _| Some(with_tail(text, 6, |it| base62_crc(it).to_vec()))),
    ("gitlab-routable", |text, _| Some(with_tail(text, 7, |it| base36_crc(it).to_vec()))),
    ("atlassian", |text, _| Some(with_tail(text, 8, crc_hex))),
    ("aws-key-id", |text, _| drawn("aws-key-id", text)),
    ("aws-secret", |text, _| drawn("aws-secret", text)),
    ("bech32", bech32),
    ("nkey", nkey),
    ("pypi", pypi),
    ("jfrog-reference", jfrog_reference),
    ("snowflake", snowflake),
    ("json", |text, random| Some(json(&text, random))),
    ("jwt", |_, random| Some(jwt(random))),
    ("sentry", sentry),
    ("key-block", key_block),
    ("putty-key", putty_key),
    ("percent-key", percent_key),
    ("authorization-basic", |_, random| {
        Some([b"uthorization: Basic ", &basic(random)[..]].concat())
    }),
    ("docker-auth", |_, random| Some([b"\"auth\": \"", &basic(random)[..], b"\""].concat())),
    ("npmrc-auth", |_, random| Some([b"_auth=", &basic(random)[..]].concat())),
    ("kubernetes-secret", |_, random| Some([b"\n  password: ", &basic(random)[..]].concat())),
    ("kubernetes-secret-json", |_, random| {
        Some([b"\"password\": \"", &basic(random)[..], b"\""].concat())
    }),
    ("kubeconfig-key", kubeconfig_key),
    ("bearer", |_, random| Some(filled("uthorization: Bearer @#@@#@@@#@#@@#@@@#@@#@@@#@", random))),
    ("url", |_, random| Some(filled("://deploy:@@#@@#@@@#@@@@#@@@db.internal", random))),
    ("netrc", |_, random| {
        Some(filled("machine git.internal login deploy password @@#@@#@@@@@#@@@", random))
    }),
    ("pgpass", |_, random| Some(filled(":5432:app:deploy:@@#@@#@@@@@#@@@", random))),
    ("curl", |_, random| Some(filled("curl -s -u deploy:@@#@@#@@@@@#@@@", random))),
    ("mysql", |_, random| Some(filled("mysql -u deploy -p@@#@@#@@@@@#@@@", random))),
    ("password-argument", |_, random| Some(filled("--password @@#@@#@@@@@#@@@", random))),
    ("password", |_, random| Some(filled("@@#@@#@@@@@#@@@#@@@@#@@", random))),
];

/// Replaces `@` by a letter and `#` by a digit; the `@` before a host stays.
fn filled(template: &str, random: &mut Seeded) -> Vec<u8> {
    let letters = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let host = template.find("@db.").unwrap_or(usize::MAX);
    let fill = |(at, byte)| match byte {
        b'@' if at != host => random.pick(letters),
        b'#' => random.pick(b"23456789"),
        other => other,
    };
    template.bytes().enumerate().map(fill).collect()
}

pub(super) fn by_name(name: &str) -> Option<Recipe> {
    RECIPES.iter().find(|(known, _)| *known == name).map(|(_, recipe)| *recipe)
}

/// Replaces the last bytes by what they should be, given the bytes before them.
fn with_tail(mut text: Vec<u8>, len: usize, tail: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let at = text.len().saturating_sub(len);
    let tail = tail(&text[..at]);
    text.truncate(at);
    text.extend(tail);
    text
}

/// Bodies of other lengths carry no known checksum.
fn crc32_base62(mut text: Vec<u8>, _: &mut Seeded) -> Option<Vec<u8>> {
    // Four for the prefix and 36 for the body.
    text.truncate(40);
    Some(with_tail(text, 6, |covered| base62_crc(covered.get(4..).unwrap_or_default()).to_vec()))
}

fn crc_hex(covered: &[u8]) -> Vec<u8> {
    format!("{:08X}", crc32fast::hash(covered)).into_bytes()
}

/// Draws again until the validator has no objection.
fn drawn(validator: &str, text: Vec<u8>) -> Option<Vec<u8>> {
    // A random match may fail by chance, and nothing in it can be computed.
    let verdict = validate::by_name(validator)?(&text, &mut Vec::new());
    (!matches!(verdict, Verdict::Reject | Verdict::Fail)).then_some(text)
}

fn bech32(text: Vec<u8>, random: &mut Seeded) -> Option<Vec<u8>> {
    let at = text.iter().position(|&byte| byte == b'1')?;
    // 32 bytes in groups of five bits; the last group has one bit of padding fewer than four.
    let mut values: Vec<u8> = random.bytes(52).iter().map(|byte| byte & 31).collect();
    values[51] &= 0b1_0000;
    let checksum = bech32_checksum(&text[..at], &values);
    let body = to_bech32(&[&values[..], &checksum].concat()).to_ascii_uppercase();
    Some([&text[..=at], &body].concat())
}

fn nkey(_: Vec<u8>, random: &mut Seeded) -> Option<Vec<u8>> {
    // Account, cluster, server, operator, user, curve.
    const KINDS: [u8; 6] = [0, 2 << 3, 13 << 3, 14 << 3, 20 << 3, 23 << 3];
    let kind = random.pick(&KINDS);
    let mut bytes = vec![(18 << 3) | (kind >> 5), (kind & 31) << 3];
    bytes.extend(random.bytes(32));
    bytes.extend(crc16_xmodem(&bytes).to_le_bytes());
    Some(encode_base32(&bytes))
}

fn encode_base32(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| (byte >> (7 - at % 8)) & 1);
    let groups = (bytes.len() * 8).div_ceil(5);
    let value = |group: usize| (0..5).fold(0, |it, index| (it << 1) | bit(group * 5 + index));
    (0..groups).map(|group| ALPHABET[usize::from(value(group))]).collect()
}

fn pypi(_: Vec<u8>, random: &mut Seeded) -> Option<Vec<u8>> {
    // The length and name of the index's host, then a body; any name of that length does.
    let mut bytes = vec![2, 1, 8];
    bytes.extend(random.text(b"abcdefgh", 8));
    bytes.push(2);
    bytes.extend(random.bytes(90));
    Some([b"pypi-", &encode_base64_url(&bytes)[..]].concat())
}

fn jfrog_reference(_: Vec<u8>, random: &mut Seeded) -> Option<Vec<u8>> {
    let body = random.text(b"0123456789abcdefghijklmnopqrstuvwxyz", 41);
    let text = [b"reftkn:01:".as_slice(), &body].concat();
    Some(encode_base64_url(&text)[..64].to_vec())
}

fn snowflake(text: Vec<u8>, random: &mut Seeded) -> Option<Vec<u8>> {
    let first = random.pick(b"123456789");
    let id = [&[first][..], &random.text(b"0123456789", 17)].concat();
    let at = text.iter().position(|&byte| byte == b'.')?;
    Some([&encode_base64_url(&id)[..], &text[at..]].concat())
}

/// Replaces everything from `eyJ` by a JSON object.
fn json(text: &[u8], random: &mut Seeded) -> Vec<u8> {
    let at = text.windows(3).position(|it| it == b"eyJ").unwrap_or(text.len());
    let value = random.text(b"0123456789abcdef", 240);
    let object = [b"{\"k\":\"".as_slice(), &value, b"\",\"n\":\"name\",\"id\":1}"].concat();
    [&text[..at], &encode_base64_url(&object)].concat()
}

fn jwt(random: &mut Seeded) -> Vec<u8> {
    let header = encode_base64_url(b"{\"alg\":\"HS256\",\"typ\":\"JWT\"}");
    let subject = random.below(1 << 30);
    let payload = format!("{{\"sub\":\"{subject}\",\"exp\":{}}}", 1_700_000_000 + subject);
    let signature = encode_base64_url(&random.bytes(32));
    [&header[..], b".", &encode_base64_url(payload.as_bytes()), b".", &signature].concat()
}

fn sentry(_: Vec<u8>, random: &mut Seeded) -> Option<Vec<u8>> {
    let region = random.text(b"abcdefgh", 12);
    let region = String::from_utf8(region).ok()?;
    let object =
        format!("{{\"iat\":1700000000.0,\"url\":\"https://{region}\",\"org\":\"{region}\"}}");
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let tail = random.text(alphabet, 43);
    Some([b"sntrys_", &encode_base64(object.as_bytes())[..], b"_", &tail].concat())
}

/// A user and a password in base64.
fn basic(random: &mut Seeded) -> Vec<u8> {
    let password = random.text(b"abcdefghijkmnpqrstuvwxyz23456789", 14);
    encode_base64(&[b"deploy:".as_slice(), &password].concat())
}

fn percent_key(_: Vec<u8>, random: &mut Seeded) -> Option<Vec<u8>> {
    let key = encode_base64(&random.bytes(32));
    Some([b"sig=", &percent(&key, true)[..]].concat())
}

fn putty_key(text: Vec<u8>, random: &mut Seeded) -> Option<Vec<u8>> {
    let body = encode_base64(&random.bytes(48));
    let lines = b"\nEncryption: none\nPrivate-Lines: 1\n";
    Some([&text[..], lines, &body, b"\nPrivate-MAC: "].concat())
}

fn kubeconfig_key(_: Vec<u8>, random: &mut Seeded) -> Option<Vec<u8>> {
    let block = key_block(b"-----BEGIN EC PRIVATE KEY-----".to_vec(), random)?;
    Some([b"client-key-data: ", &encode_base64(&block)[..]].concat())
}

/// A block between lines of dashes: a DER sequence of random bytes.
fn key_block(text: Vec<u8>, random: &mut Seeded) -> Option<Vec<u8>> {
    let der = [&[0x30, 0x82, 1, 0][..], &random.bytes(256)].concat();
    let mut block = text.clone();
    for line in encode_base64(&der).chunks(64) {
        block.push(b'\n');
        block.extend_from_slice(line);
    }
    let first = String::from_utf8(text).ok()?;
    // The words of the last line are those of the first, as readers of PEM expect.
    let last = first[first.find("-----")?..].replace("BEGIN", "END");
    block.push(b'\n');
    block.extend_from_slice(last.as_bytes());
    Some(block)
}
