//! Gates: values that look like secrets and are none.
//!
//! Every rule passes the gate for placeholders. Rules that guess from a name also pass the gates
//! for hashes, ids, paths, identifiers and prose. Gates see the value only, never its surroundings.

use crate::compiled::CompiledRule;
use crate::entropy;
use crate::rule::Confidence;

/// The same byte this many times in a row is filler.
const REPEAT_MAX: usize = 6;
/// Words that only examples contain, in lower case.
const PLACEHOLDER_WORDS: [&[u8]; 12] = [
    b"example",
    b"changeme",
    b"change_me",
    b"placeholder",
    b"redacted",
    b"your_",
    b"your-",
    b"dummy",
    b"insert_",
    b"1234567890",
    b"abcdefgh",
    b"<your",
];
/// Values that only examples have, in lower case.
const PLACEHOLDERS: [&[u8]; 22] = [
    b"admin",
    b"apikey",
    b"bar",
    b"changeit",
    b"default",
    b"foobar",
    b"guest",
    b"hunter2",
    b"none",
    b"null",
    b"pass",
    b"passwd",
    b"password",
    b"postgres",
    b"pwd",
    b"root",
    b"secret",
    b"test",
    b"testing",
    b"token",
    b"user",
    b"username",
];
/// Endings of files whose values need no quotes.
const CONFIG_ENDINGS: [&[u8]; 17] = [
    b".env",
    b".ini",
    b".cfg",
    b".conf",
    b".config",
    b".properties",
    b".yml",
    b".yaml",
    b".toml",
    b"rc",
    b".tfvars",
    b".json",
    b".xml",
    b".pgpass",
    b"credentials",
    b".plist",
    b".env.local",
];

/// Returns whether a path is one of a configuration file.
pub(crate) fn is_config_path(path: &[u8]) -> bool {
    let lower = path.to_ascii_lowercase();
    // The name alone: a directory called `credentials` says nothing about a file in it.
    let name = lower.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or_default();
    name.starts_with(b".env") || CONFIG_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// A guess in a configuration file is a better guess.
pub(super) const fn raised_in_config(confidence: Confidence) -> Confidence {
    match confidence {
        Confidence::Low => Confidence::Medium,
        Confidence::Medium | Confidence::High => confidence,
    }
}

/// Returns whether a value passes every gate of its rule.
pub(super) fn pass(compiled: &CompiledRule, secret: &[u8]) -> bool {
    if is_placeholder(secret) {
        return false;
    }
    if compiled.entropy_millibits > 0 && entropy::millibits(secret) < compiled.entropy_millibits {
        return false;
    }
    !compiled.rule.generic || is_generic_secret(secret)
}

/// Filler, template variables and the words of examples.
fn is_placeholder(secret: &[u8]) -> bool {
    let has_repeat =
        secret.windows(REPEAT_MAX).any(|window| window.iter().all(|it| *it == window[0]));
    // Keys and certificates have long runs of `A` for zero bytes.
    if has_repeat && secret.len() < 200 {
        return true;
    }
    let is_template = |pair: &[u8]| matches!(pair, b"${" | b"{{" | b"<%" | b"$(" | b"%(");
    if secret.windows(2).any(is_template) {
        return true;
    }
    // Longer values are documents, in which such a word may occur by chance.
    if secret.len() > 256 {
        return false;
    }
    let lower = secret.to_ascii_lowercase();
    let digits = lower.iter().rev().take_while(|it| it.is_ascii_digit()).count();
    // `password` and `password1` alike.
    if PLACEHOLDERS.contains(&&lower[..lower.len() - digits.min(3)]) {
        return true;
    }
    PLACEHOLDER_WORDS.iter().any(|word| memchr::memmem::find(&lower, word).is_some())
}

/// The gates for guesses: at least one digit and one letter, and no hash, id, path, identifier or
/// prose.
fn is_generic_secret(secret: &[u8]) -> bool {
    let digits = secret.iter().filter(|it| it.is_ascii_digit()).count();
    let letters = secret.iter().filter(|it| it.is_ascii_alphabetic()).count();
    // Random tokens of a usual length have both; words and plain numbers do not.
    if digits == 0 || letters == 0 {
        return false;
    }
    // Blanks and other scripts are prose.
    if !secret.iter().all(|it| it.is_ascii_graphic()) {
        return false;
    }
    !is_hash(secret) && !is_uuid(secret) && !is_path(secret) && !is_expression(secret)
}

/// A digest: hexadecimal digits of a usual length.
fn is_hash(secret: &[u8]) -> bool {
    matches!(secret.len(), 32 | 40 | 56 | 64 | 96 | 128) && secret.iter().all(u8::is_ascii_hexdigit)
        || secret.starts_with(b"sha256-")
        || secret.starts_with(b"sha512-")
        || secret.starts_with(b"sha256:")
}

pub(super) fn is_uuid(secret: &[u8]) -> bool {
    secret.len() == 36
        && secret.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// A path, a URL, a version or a dotted name.
fn is_path(secret: &[u8]) -> bool {
    let separators = secret.iter().filter(|it| matches!(it, b'/' | b'\\')).count();
    let is_url = memchr::memmem::find(secret, b"://").is_some();
    // Base64 has a slash about every 64 characters at random; a path has them far more often.
    is_url || separators >= 2 && secret.len() < separators * 12 || secret.starts_with(b"./")
}

/// An expression or an identifier: words with few digits, calls, member access.
fn is_expression(secret: &[u8]) -> bool {
    if secret.iter().any(|it| matches!(it, b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>')) {
        return true;
    }
    if memchr::memmem::find(secret, b"::").is_some() || secret.starts_with(b"\\") {
        return true;
    }
    let is_word =
        |it: &u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-' | b'.' | b':' | b',');
    if !secret.iter().all(is_word) {
        return false;
    }
    // `access_token_2`, `com.vendor.v1.Key`: parts that are words, numbers or versions.
    let parts = secret.split(|it| !it.is_ascii_alphanumeric());
    let is_plain = |part: &[u8]| {
        let letters = part.iter().take_while(|it| it.is_ascii_alphabetic()).count();
        let digits = part[letters..].iter().take_while(|it| it.is_ascii_digit()).count();
        letters + digits == part.len() && digits <= 4 && is_one_case(&part[..letters])
    };
    parts.clone().count() > 1 && parts.clone().all(is_plain)
}

/// Lower case, upper case, or words joined in camel case without more capitals than words have.
fn is_one_case(letters: &[u8]) -> bool {
    let capitals = letters.iter().filter(|it| it.is_ascii_uppercase()).count();
    capitals == 0 || capitals == letters.len() || letters.len() >= capitals * 4
}
