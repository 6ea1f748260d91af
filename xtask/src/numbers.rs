//! Reads numbers of command lines, and formats numbers with commas between thousands.

/// Minimum number of digits for commas.
const DIGITS_MIN: usize = 4;

/// Returns whether a word of a command line is a number.
pub(crate) fn is_number(word: &str) -> bool {
    word.parse::<u64>().is_ok()
}

/// Returns a number with commas between thousands.
pub(crate) fn grouped(number: u64) -> String {
    group(&number.to_string())
}

/// Formats the figures of a text the same way: in table cells, and in other lines, that start with
/// a digit. Words are unchanged, and so are hashes, dates, years and seeds, which are copied into
/// commands.
pub(crate) fn grouped_in(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let cells: Vec<String> = line.split('|').map(grouped_cell).collect();
        cells.join("|")
    });
    lines.map(|line| line + "\n").collect()
}

fn grouped_cell(cell: &str) -> String {
    let is_figure = cell.trim_start_matches([' ', '*']).starts_with(|it: char| it.is_ascii_digit());
    if !is_figure {
        return cell.to_owned();
    }
    let words: Vec<&str> = cell.split(' ').collect();
    let with_commas = words.iter().enumerate().map(|(place, word)| {
        let before = place.checked_sub(1).map(|place| words[place]);
        if before.is_some_and(|before| before.ends_with("seed")) {
            (*word).to_owned()
        } else {
            grouped_word(word)
        }
    });
    with_commas.collect::<Vec<_>>().join(" ")
}

/// Adds commas to a word that is a number, with any punctuation around it.
fn grouped_word(word: &str) -> String {
    let is_sign = |it: char| it.is_ascii_punctuation();
    let front = word.len() - word.trim_start_matches(is_sign).len();
    let number = word.trim_matches(is_sign);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() < DIGITS_MIN || !is_digits(whole) || !is_digits(fraction) {
        return word.to_owned();
    }
    let rest = &word[front + whole.len()..];
    format!("{}{}{rest}", &word[..front], group(whole))
}

fn group(digits: &str) -> String {
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let output = [0, 999, 1_000, 123_456, 1_234_567].map(grouped);
        assert_eq!(output, ["0", "999", "1,000", "123,456", "1,234,567"]);
    }

    #[test]
    fn only_figures_of_a_text_get_commas() {
        let same = [
            "| fsync, in 2018 | 2026-11-15 | 1234e567 | `12345678` | 1.0000 (0) |",
            "| 999 | 150.2 of 400 allowed (seed 9667) | 1,234 | 12345abc, 7 |",
            "Written in 2018, by 1234 people.",
            "",
        ];
        for line in same {
            assert_eq!(grouped_in(line).trim_end(), line);
        }
        let text = "| 1 worlds, 1385 operations | **12345** | 1.840 (1085) | 6114.53 and 12 ms |\n\
                    1000000 leaves: 2.46 s, 406504 a second\n";
        let expected = "| 1 worlds, 1,385 operations | **12,345** | 1.840 (1,085) | 6,114.53 and 12 ms |\n\
                        1,000,000 leaves: 2.46 s, 406,504 a second\n";
        assert_eq!(grouped_in(text), expected);
    }
}
