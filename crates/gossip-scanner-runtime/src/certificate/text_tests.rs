use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;

use super::text::*;

fn escaped(bytes: &[u8]) -> String {
    let mut line = Vec::new();
    push_escaped(&mut line, bytes);
    String::from_utf8(line).unwrap()
}

#[rstest]
#[case(b"plain/path-1.txt", "plain/path-1.txt")]
#[case(b"100%", "100%25")]
#[case(b"say \"hi\" \\o/", "say %22hi%22 %5Co/")]
#[case(b"line\nbreak\0", "line%0Abreak%00")]
#[case(b"\xc3\xa9\xff", "%C3%A9%FF")]
fn bytes_as_text(#[case] bytes: &[u8], #[case] expected: &str) {
    assert_eq!(escaped(bytes), expected);
}

/// There is one way to write each byte string, so the hashed and the parsed bytes cannot differ.
#[rstest]
#[case("\"%41\"")]
#[case("\"%0a\"")]
#[case("\"%0\"")]
#[case("\"%\"")]
#[case("\"a")]
#[case("a\"")]
#[case("\"\\u0041\"")]
#[case("\"\n\"")]
#[case("\"é\"")]
fn other_ways_to_write_bytes_are_refused(#[case] line: &str) {
    let mut bytes = Vec::new();
    assert_eq!(Scanner::new(line.as_bytes()).escaped(&mut bytes), Err(Unexpected));
}

#[rstest]
#[case("0", Ok(0))]
#[case("42,", Ok(42))]
#[case("18446744073709551615", Ok(u64::MAX))]
#[case("18446744073709551616", Err(Unexpected))]
#[case("007", Err(Unexpected))]
#[case("-1", Err(Unexpected))]
#[case("+1", Err(Unexpected))]
#[case("", Err(Unexpected))]
#[case("\"1\"", Err(Unexpected))]
fn numbers(#[case] line: &str, #[case] expected: Result<u64, Unexpected>) {
    assert_eq!(Scanner::new(line.as_bytes()).number(), expected);
}

#[test]
fn hex_has_one_form() {
    let hex = |line: &str| Scanner::new(line.as_bytes()).hex::<2>();
    assert_eq!(hex("\"0aff\""), Ok([0x0a, 0xff]));
    for bad in ["\"0AFF\"", "\"0af\"", "\"0aff0\"", "0aff", "\"0aff", "\"0xff\"", "\"é00\""] {
        assert_eq!(hex(bad), Err(Unexpected), "{bad}");
    }
}

proptest! {
    #[test]
    fn text_reads_back(bytes in vec(any::<u8>(), 0..60)) {
        let line = format!("\"{}\"", escaped(&bytes));
        let mut read = vec![0xEE];
        let mut scan = Scanner::new(line.as_bytes());
        prop_assert_eq!(scan.escaped(&mut read), Ok(()));
        prop_assert_eq!(scan.end(), Ok(()));
        prop_assert_eq!(&read, &bytes);
    }

    #[test]
    fn text_is_json(bytes in vec(any::<u8>(), 0..60)) {
        let line = format!("\"{}\"", escaped(&bytes));
        let parsed: String = serde_json::from_str(&line).unwrap();
        prop_assert_eq!(parsed, escaped(&bytes));
    }
}
