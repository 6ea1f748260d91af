//! A certificate as one page for people: verdict, map, gaps, counts, command, versions, times and
//! hashes.
//!
//! The page is self-contained and needs no script; everything in it that a user or another program
//! wrote is escaped.

use std::fmt::Write as _;

use gossip::certificate::{Trust, Verification};
use gossip::sources::{KeyFormat, Source};
use serde_json::Value;

use crate::duration;
use crate::output::{self, Bound};
use crate::screen::text::{counted, escaped, number};

/// Leaves listed at most; the certificate has all of them.
const LEAVES_LISTED: usize = 500;

/// Cells of the map.
const CELLS: usize = 400;

/// The certificate is part of the page if it is not longer.
const EMBEDDED_MAX: usize = 256 * 1024;

/// Returns the page of a verified certificate, whose text is `certificate`.
pub(crate) fn page(certificate: &str, found: &Verification, source: &Source) -> String {
    let format = source.key_format();
    // Lines that cannot be read are left out: the certificate was verified before.
    let lines = certificate.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines: Vec<Value> = lines.collect();
    let leaves: Vec<Leaf> = lines.iter().filter_map(|line| Leaf::of(line, format)).collect();
    // The format ends with the seal.
    let seal = lines.last().cloned().unwrap_or_default();
    let mut page = String::from(HEAD);
    let title = format!("Coverage of run {:016x}", found.request.run.as_raw());
    push(&mut page, format_args!("<title>{}</title>\n", text(&title)));
    push(&mut page, format_args!("<style>\n{STYLE}</style>\n</head><body><main>\n"));
    verdict(&mut page, &title, found);
    map(&mut page, &leaves);
    gaps(&mut page, &leaves, found);
    facts(&mut page, found, &seal);
    table(&mut page, &leaves);
    check(&mut page, certificate, found);
    page.push_str("</main></body></html>\n");
    page
}

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta http-equiv=\"Content-Security-Policy\" \
content=\"default-src 'none'; style-src 'unsafe-inline'\">
";

/// The style sheet, which is part of the page.
const STYLE: &str = include_str!("page.css");

/// A final range of the run.
struct Leaf {
    from: String,
    to: String,
    status: String,
    is_done: bool,
    keys: u64,
    unread: u64,
    sum: String,
}

impl Leaf {
    /// Reads a line of the certificate; `None` if it is not one of a leaf.
    fn of(line: &Value, format: KeyFormat) -> Option<Self> {
        let word = |name: &str| line.get(name).and_then(Value::as_str);
        let status = word("status")?;
        let count = |name: &str| line.get(name).and_then(Value::as_u64).unwrap_or(0);
        let bound = |name: &str, bound: Bound| {
            output::bound_text(&decoded(word(name).unwrap_or_default()), bound, format)
        };
        let is_done = status == "done";
        let shown = match word("reason") {
            Some("Poisoned") => "failed",
            Some("PermissionDenied") => "permission denied",
            Some("NotFound") => "not found",
            Some("TooManyErrors") => "too many errors",
            Some("Damaged") => "record damaged",
            Some(_) => "parked",
            None => status,
        };
        Some(Self {
            from: bound("start", Bound::Start),
            to: bound("end", Bound::End),
            status: shown.to_owned(),
            is_done,
            keys: count("keys"),
            unread: count("unread"),
            sum: word("sum").unwrap_or_default().to_owned(),
        })
    }

    const fn class(&self) -> u8 {
        if self.is_done && self.unread == 0 { 1 } else { 2 }
    }
}

/// Returns the bytes that a certificate writes as text, where `%NN` is a byte.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a string accepts every text");
}

/// Escapes a text for HTML or SVG. Controls were escaped before, or are shown as such here.
pub(crate) fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

fn verdict(page: &mut String, title: &str, found: &Verification) {
    let done = found.keys.saturating_sub(found.unread);
    let (class, words) = match found.is_complete() {
        true => ("done", format!("Complete: {}", counted(done, "key"))),
        false => ("failed", format!("Incomplete: {} done", counted(done, "key"))),
    };
    push(page, format_args!("<h1>{}</h1>\n", text(title)));
    push(page, format_args!("<p class=\"verdict {class}\">{}</p>\n", text(&words)));
    let gaps = match (found.parked, found.unread) {
        (0, 0) => "no gaps, nothing failed, nothing unread".to_owned(),
        (parked, unread) => {
            format!("{} not done, {} unread", counted(parked, "range"), counted(unread, "key"))
        }
    };
    let trust = trust_text(found);
    push(page, format_args!("<p class=\"dim\">{}. {}.</p>\n", text(&gaps), text(trust)));
}

const fn trust_text(found: &Verification) -> &'static str {
    match (found.trust, found.is_compared) {
        (Trust::Signed, true) => "Signed, and compared with the source key by key",
        (Trust::Signed, false) => "Signed; checked for gaps, overlaps and sums",
        (Trust::Consistent, true) => "Compared with the source key by key; not signed",
        (Trust::Consistent, false) => "Checked for gaps, overlaps and sums; not signed",
    }
}

/// Draws the ranges, as wide as the keys they have; failed ones are always visible.
fn map(page: &mut String, leaves: &[Leaf]) {
    // A failed range without keys is as wide as one key.
    let width = |leaf: &Leaf| leaf.keys.max(1);
    let all: u64 = leaves.iter().map(width).sum();
    let mut cells = vec![0_u8; CELLS];
    let mut position = 0_u64;
    for leaf in leaves {
        // In 128 bits, because a product of two counts exceeds 64.
        let cell = |at: u64| (u128::from(at) * CELLS as u128 / u128::from(all.max(1))) as usize;
        let (first, last) = (cell(position), cell(position + width(leaf)));
        for cell in cells.iter_mut().take(last.max(first + 1)).skip(first) {
            // A failure wins over finished keys in the same cell.
            *cell = (*cell).max(leaf.class());
        }
        position += width(leaf);
    }
    page.push_str("<h2>Map of the source</h2>\n");
    push(
        page,
        format_args!(
            "<svg viewBox=\"0 0 {CELLS} 10\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"Map: {} ranges\">",
            leaves.len()
        ),
    );
    let mut start = 0;
    // One rectangle for equal neighbours keeps the page small.
    for run in cells.chunk_by(|one, other| one == other) {
        let (class, len) = (run[0], run.len());
        push(
            page,
            format_args!("<rect class=\"c{class}\" x=\"{start}\" width=\"{len}\" height=\"10\"/>"),
        );
        start += len;
    }
    page.push_str("</svg>\n<p class=\"ends\"><span>first key</span><span>last key</span></p>\n");
}

fn gaps(page: &mut String, leaves: &[Leaf], found: &Verification) {
    page.push_str("<h2>Gaps</h2>\n");
    let open: Vec<&Leaf> = leaves.iter().filter(|leaf| leaf.class() == 2).collect();
    if open.is_empty() {
        let leaves = number(found.done);
        push(
            page,
            format_args!(
                "<p>None. {leaves} ranges lie next to each other without gap or overlap, and all are done.</p>\n"
            ),
        );
        return;
    }
    list(page, &open, "gaps");
}

fn table(page: &mut String, leaves: &[Leaf]) {
    push(
        page,
        format_args!(
            "<h2>Ranges</h2>\n<details><summary>{} ranges</summary>\n",
            number(leaves.len() as u64)
        ),
    );
    list(page, &leaves.iter().collect::<Vec<_>>(), "ranges");
    page.push_str("</details>\n");
}

fn list(page: &mut String, leaves: &[&Leaf], what: &str) {
    page.push_str("<table><tr><th>From</th><th>Up to</th><th>Status</th><th>Keys passed</th><th>Unread</th><th>Sum of the keys&#39; hashes</th></tr>\n");
    // An empty bound is that of the source.
    let bound = |bound: &str, open: &str| if bound.is_empty() { text(open) } else { text(bound) };
    for leaf in leaves.iter().take(LEAVES_LISTED) {
        let class = if leaf.class() == 1 { "done" } else { "failed" };
        push(
            page,
            format_args!(
                "<tr><td class=\"k\">{}</td><td class=\"k\">{}</td><td class=\"{class}\">{}</td>\
                 <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"k dim\">{}</td></tr>\n",
                bound(&leaf.from, "the first key"),
                bound(&leaf.to, "the last key"),
                text(&leaf.status),
                number(leaf.keys),
                number(leaf.unread),
                text(leaf.sum.get(..16).unwrap_or(&leaf.sum)),
            ),
        );
    }
    page.push_str("</table>\n");
    if leaves.len() > LEAVES_LISTED {
        let more = number((leaves.len() - LEAVES_LISTED) as u64);
        push(
            page,
            format_args!(
                "<p class=\"dim\">and {more} more {what}; the certificate has all of them.</p>\n"
            ),
        );
    }
}

fn facts(page: &mut String, found: &Verification, seal: &Value) {
    let request = &found.request;
    let setting = |wanted: &str| {
        let found = request.settings.iter().find(|(name, _)| name == wanted);
        found.map_or_else(|| "not stated".to_owned(), |(_, value)| escaped(value.as_bytes()))
    };
    let words: Vec<String> = request.command.iter().map(|word| quoted(word)).collect();
    let command = match words.is_empty() {
        true => "none: a program that uses the library".to_owned(),
        false => words.join(" "),
    };
    let options = request.options.iter().filter(|(_, on)| *on).map(|(name, _)| format!("--{name}"));
    let options = options.collect::<Vec<_>>().join(" ");
    let or_none = |text: &str| match text {
        "" => "none".to_owned(),
        text => escaped(text.as_bytes()),
    };
    let word = |name: &str| seal.get(name).and_then(Value::as_str).unwrap_or("none").to_owned();
    let rows = [
        ("Run", format!("{:016x}", request.run.as_raw())),
        ("Source", escaped(&request.source)),
        ("Options", or_none(&options)),
        ("Excluded", or_none(&request.excluded.join("; "))),
        ("Command", command),
        ("Started", setting("started")),
        ("Completed", setting("completed")),
        ("Lasted", lasted(&setting("started"), &setting("completed"))),
        ("Keys done", number(found.keys.saturating_sub(found.unread))),
        ("Keys unread", number(found.unread)),
        ("Ranges done", number(found.done)),
        ("Ranges not done", number(found.parked)),
        ("gossip version", setting("version")),
        ("Written on host", setting("host")),
        ("Hash of the certificate", word("hash")),
        ("Signature", word("signature")),
    ];
    page.push_str("<h2>What ran</h2>\n<table>\n");
    for (name, value) in rows {
        // The names are ours; every value may come from a source or an argument.
        push(page, format_args!("<tr><th>{name}</th><td class=\"k\">{}</td></tr>\n", text(&value)));
    }
    page.push_str("</table>\n");
}

/// Formats a word of a command as a shell would need it.
fn quoted(word: &[u8]) -> String {
    let word = escaped(word);
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:=,@%+{}".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn lasted(started: &str, completed: &str) -> String {
    let times = duration::parse_rfc3339(started).zip(duration::parse_rfc3339(completed));
    times.map_or_else(
        || "not stated".to_owned(),
        |(started, completed)| duration::rough(completed.saturating_sub(started)),
    )
}

fn check(page: &mut String, certificate: &str, found: &Verification) {
    page.push_str("<h2>Check it</h2>\n<p>This page was written from a certificate that was verified first. To check it again:</p>\n");
    push(
        page,
        format_args!(
            "<pre>gossip run verify {:016x} --source\ngossip verify CERTIFICATE --source SOURCE</pre>\n",
            found.request.run.as_raw()
        ),
    );
    // A longer one would make the page slow to open, and is not read by people.
    if certificate.len() <= EMBEDDED_MAX {
        push(
            page,
            format_args!(
                "<details><summary>The certificate</summary><pre>{}</pre></details>\n",
                text(certificate)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_users_cannot_become_markup() {
        let bad = "<script>alert(\"1\")</script>&'";
        assert_eq!(text(bad), "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;");
        assert_eq!(quoted(b"it's <b>"), "'it'\\''s <b>'");
        assert_eq!(quoted(b""), "''");
        assert_eq!(quoted(b"./a-b_c/{}"), "./a-b_c/{}");
    }

    #[test]
    fn bounds_are_decoded() {
        assert_eq!(decoded("%00a%ff"), [0, b'a', 255]);
        assert_eq!(decoded("a%"), b"a%");
        assert_eq!(decoded("%zz"), b"%zz");
    }
}
