use proptest::prelude::*;
use rstest::rstest;

use super::filter::Filter;

/// Filters a stream that arrives in chunks of `size` bytes.
fn filtered(stream: &[u8], size: usize, is_terminal: bool, tag: Option<&str>) -> Vec<u8> {
    let (mut filter, mut shown) = (Filter::new(is_terminal, tag), Vec::new());
    stream.chunks(size).for_each(|chunk| filter.push(chunk, &mut shown));
    filter.finish(&mut shown);
    shown
}

#[rstest]
#[case::plain("a\tb\nc\n", "a\tb\nc\n")]
#[case::no_final_line_feed("a", "a\n")]
#[case::colors("\x1b[1;38:5:7mred\x1b[m\n", "\x1b[1;38:5:7mred\x1b[m\n\x1b[0m")]
#[case::color_after_the_last_line("a\n\x1b[0m", "a\n\x1b[0m\x1b[0m")]
#[case::cursor("\x1b[2J\x1b[1A", "\\u{1b}[2J\\u{1b}[1A\n")]
#[case::clipboard("\x1b]52;c;aGk=\x07\n", "\\u{1b}]52;c;aGk=\\u{7}\n")]
#[case::eight_bit_controls("\u{9b}1A\u{85}\n", "\\u{9b}1A\\u{85}\n")]
#[case::direction("a\u{202e}b\u{2066}c\u{200f}\n", "a\\u{202e}b\\u{2066}c\\u{200f}\n")]
#[case::windows_lines("a\r\nb\r\n", "a\nb\n")]
#[case::overwriting("10 %\r20 %\n", "10 %\\u{d}20 %\n")]
#[case::nul_and_delete("a\0b\x7f\n", "a\\u{0}b\\u{7f}\n")]
#[case::unfinished_color("\x1b[1;", "\\u{1b}[1;\n")]
#[case::lone_escape("\x1b", "\\u{1b}\n")]
#[case::text("Größe 名 🦀\n", "Größe 名 🦀\n")]
fn only_colors_and_tabs_pass_to_a_terminal(#[case] stream: &str, #[case] expected: &str) {
    for size in [1, 2, 3, 1000] {
        let shown = filtered(stream.as_bytes(), size, true, None);
        assert_eq!(String::from_utf8(shown).unwrap(), expected, "in chunks of {size}");
    }
}

#[test]
fn bytes_that_are_no_text_are_shown_as_numbers() {
    for size in [1, 1000] {
        assert_eq!(
            filtered(b"a\xff\xc3\n\xe2\x82", size, true, None),
            b"a\\xff\\xc3\n\\xe2\\x82\n"
        );
    }
}

#[test]
fn long_colour_sequence_is_shown() {
    let stream = format!("\x1b[{}m", "1;".repeat(100));
    assert!(filtered(stream.as_bytes(), 7, true, None).starts_with(b"\\u{1b}["));
}

#[test]
fn each_line_has_its_tag() {
    let tagged = filtered(b"a\n\nb", 1, false, Some("x\t"));
    assert_eq!(tagged, b"x\ta\nx\t\nx\tb\n");
    // Into a file, other bytes are not changed.
    assert_eq!(filtered(b"\x1b]0;\xff\r\n", 3, false, Some("x\t")), b"x\t\x1b]0;\xff\r\n");
    let colored = filtered(b"\x1b[1ma\n\x1b[0m", 1, true, Some("x\t"));
    assert_eq!(colored, b"\x1b[1mx\ta\n\x1b[0m\x1b[0m");
}

proptest! {
    /// The result does not depend on how the stream was cut, and has no control but colours.
    #[test]
    fn any_stream_is_safe(
        stream in proptest::collection::vec(any::<u8>(), 0..200),
        size in 1_usize..20,
    ) {
        let shown = filtered(&stream, size, true, None);
        prop_assert_eq!(&shown, &filtered(&stream, stream.len().max(1), true, None));
        let text = String::from_utf8(shown).unwrap();
        for (at, letter) in text.char_indices().filter(|(_, letter)| letter.is_control()) {
            let color = text[at..].strip_prefix("\x1b[").and_then(|rest| rest.split_once('m'));
            let is_color = color.is_some_and(|(parameters, _)| {
                parameters.chars().all(|it| it.is_ascii_digit() || ";:".contains(it))
            });
            prop_assert!(is_color || letter == '\n' || letter == '\t', "{:?}", text);
        }
        prop_assert!(text.is_empty() || text.ends_with('\n') || text.ends_with("\x1b[0m"));
    }
}
