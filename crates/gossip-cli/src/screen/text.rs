//! Text for a terminal: numbers, times, names that may contain anything, and their widths.

use std::time::Duration;

/// Formats a number with a comma between groups of three digits: `1,234,567`.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its noun: `1 key`, `2,000 keys`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", number(count), if count == 1 { "" } else { "s" })
}

/// Formats a rate per second: with a decimal below ten, where a whole number would say little.
pub(crate) fn rate(per_second: f64) -> String {
    // Above it the decimal would round to 10.0, which is wider than the whole number.
    if per_second > 0.0 && per_second < 9.95 {
        format!("{per_second:.1}/s")
    } else {
        format!("{}/s", number(per_second.round() as u64))
    }
}

/// Formats a time that has passed, rounded down, in the two largest units.
pub(crate) fn passed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Formats a time that has passed in its largest unit, in at most four columns.
pub(crate) fn passed_briefly(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..100 => format!("{seconds}s"),
        100..6000 => format!("{}m", seconds / 60),
        6000..360_000 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats bytes of others for one line of a terminal, so that they can neither move the cursor nor
/// change the direction of the text: control characters (C0, DEL, C1), bidirectional controls and
/// whatever else has no shape are escaped.
///
/// A backslash is doubled and a byte that is not UTF-8 is `\xNN`, so that different names are shown
/// differently.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                // Quotes are harmless here, and common in names.
                '\'' | '"' => text.push(letter),
                _ => text.extend(letter.escape_debug()),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// Returns the columns that a text takes at most.
///
/// Terminals differ about emoji, and about letters that others show as one: whatever is not surely
/// narrow counts as two, because a line that is too short does no harm and one that wraps does.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(letter_width).sum()
}

fn letter_width(letter: char) -> usize {
    match letter {
        // Latin, Greek, Cyrillic, Arabic and other alphabets; then the signs of frames.
        '\u{0}'..'\u{1100}' | '\u{2500}'..='\u{25ff}' | '…' | '✗' => 1,
        _ => 2,
    }
}

/// Shortens a text to so many columns; one that is cut ends with the mark.
pub(crate) fn clip(text: &str, columns: usize, mark: &str) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    // Where there is no room for the mark the text is more useful.
    let mark = if width(mark) < columns { mark } else { "" };
    let mut left = columns - width(mark);
    let mut clipped = String::new();
    for letter in text.chars() {
        let Some(rest) = left.checked_sub(letter_width(letter)) else { break };
        left = rest;
        clipped.push(letter);
    }
    clipped.push_str(mark);
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (count, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (20_000, "20,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(number(count), text);
        }
        assert_eq!(counted(1, "key"), "1 key");
        assert_eq!(counted(1000, "key"), "1,000 keys");
    }

    #[test]
    fn slow_rates_have_a_decimal() {
        let texts = [0.0, 0.25, 9.94, 9.96, 12_345.0].map(rate);
        assert_eq!(texts, ["0/s", "0.2/s", "9.9/s", "10/s", "12,345/s"]);
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        assert_eq!(escaped(b"a\xFFb"), "a\\xffb");
        // A name that contains the escape itself is another one, too.
        assert_eq!(escaped(b"a\\xffb"), "a\\\\xffb");
        assert_eq!(escaped("it's \"ü\"".as_bytes()), "it's \"ü\"");
        let controls =
            "\u{1b}]52;c;x\u{7}\n\t\u{7f}\u{9b}2J\u{202e}\u{2066}\u{200f}\u{200b}\u{feff}";
        let shown = escaped(controls.as_bytes());
        assert_eq!(
            shown,
            "\\u{1b}]52;c;x\\u{7}\\n\\t\\u{7f}\\u{9b}2J\\u{202e}\\u{2066}\\u{200f}\\u{200b}\\u{feff}"
        );
        assert!(shown.is_ascii());
        // Every control, alone and beside others.
        for code in (0..0x20).chain(0x7f..0xa0).chain(0x202a..0x202f).chain(0x2066..0x206a) {
            let letter = char::from_u32(code).unwrap();
            assert!(escaped(letter.to_string().as_bytes()).is_ascii(), "{code:x}");
        }
    }

    #[test]
    fn clipped_text_never_exceeds_its_columns() {
        for text in ["", "abc", "abcdefgh", "日本語の名前", "a日b本c", "👩‍👩‍👧 family"]
        {
            for columns in 0..12 {
                assert!(width(&clip(text, columns, "…")) <= columns, "{text} {columns}");
            }
        }
        assert_eq!(clip("abcdefgh", 5, "…"), "abcd…");
        assert_eq!(clip("abcdefgh", 2, "..."), "ab");
    }
}
